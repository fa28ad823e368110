"""From the logits of one forward to accepted tokens: greedy or sampled, lossy or verified."""

from dataclasses import dataclass

import torch

from .acceptance import accepts, confidence, count_leading, first_columns, sample, verify
from .processing import process_drafts, process_masks, process_position_wise
from .rows import Rows
from .sampling import SamplingTensors


__all__ = ["AcceptedTokens", "Decision", "assemble", "decide"]


@dataclass(frozen=True)
class Decision:
    """
    What one forward says.

    Args:
        num_accepted (`torch.LongTensor` of shape `(rows,)`): Leading draft tokens that hold.
        bonus_token (`torch.LongTensor` of shape `(rows, 1)`): The token after them, the model's own choice.
        mask_tokens (`torch.LongTensor` of shape `(rows, num_masks)`): Tokens of the masks that follow it.
        num_offered (`torch.LongTensor` of shape `(rows,)`): Leading masks that the row could use.
        num_confident (`torch.LongTensor` of shape `(rows,)`): Those of them whose confidence passes the threshold.
        confidences (`torch.FloatTensor` of shape `(rows, num_masks)`): Confidence of each mask token.
        scores (`torch.FloatTensor` of shape `(rows, max_drafts + 1, vocab_size)`):
            Processed scores of the columns that decide, right-aligned.
        mask_scores (`torch.FloatTensor` of shape `(rows, num_masks, vocab_size)`): Processed scores of the masks.
    """

    num_accepted: torch.Tensor
    bonus_token: torch.Tensor
    mask_tokens: torch.Tensor
    num_offered: torch.Tensor
    num_confident: torch.Tensor
    confidences: torch.Tensor
    scores: torch.Tensor
    mask_scores: torch.Tensor

    @property
    def all_scores(self) -> torch.Tensor:
        """Scores of what may be accepted now, of shape `(rows, max_drafts + 1 + num_masks, vocab_size)`."""
        return torch.cat([self.scores, self.mask_scores], dim=1)


@dataclass(frozen=True)
class AcceptedTokens:
    """
    What one forward adds to each row.

    Args:
        tokens (`torch.LongTensor` of shape `(rows, width)`): Accepted tokens, left-aligned.
        lengths (`torch.LongTensor` of shape `(rows,)`): Acceptance lengths: how many of them a row has.
    """

    tokens: torch.Tensor
    lengths: torch.Tensor


def decide(
    logits: torch.Tensor,
    rows: Rows,
    sampling: SamplingTensors,
    thresholds: torch.Tensor,
    groups: torch.Tensor,
    sequences: torch.Tensor,
    uniforms: torch.Tensor | None,
) -> Decision:
    """
    Choose tokens.

    Args:
        logits (`torch.FloatTensor` of shape `(rows, max_drafts + 1 + num_groups * num_masks, vocab_size)`):
            Float32, right-aligned: the last known token and the drafts, then the masks. The mask token's is -inf.
        rows ([`Rows`]): The rows.
        sampling ([`SamplingTensors`]): How each of them decodes.
        thresholds (`torch.FloatTensor` of shape `(rows, 1)`): Threshold of each row.
        groups (`torch.LongTensor` of shape `(rows, num_groups)`): After how many drafts each group of masks follows.
        sequences (`torch.LongTensor` of shape `(batch_size, capacity)`): All tokens so far, for the processors.
        uniforms (`torch.FloatTensor` of shape `(rows, at least max_drafts + 1 + num_masks)`, *optional*):
            The random numbers of the next tokens of each row, see [`draw_uniforms`]; `None` if no row samples.
    """
    max_drafts = rows.drafts.shape[1]
    start = max_drafts - rows.num_drafts

    # The drafts that hold, and the token after them
    logits, masks = logits[:, : max_drafts + 1], logits[:, max_drafts + 1 :]
    # Drafts that are still to be verified have no true prefix yet: they meet the position-wise processors only.
    scores = process_position_wise(logits, sampling)
    if sampling.with_prefix:
        scores = process_drafts(logits, scores, rows, sampling, sequences, uniforms)
    aligned = None if uniforms is None else first_columns(uniforms, -start, max_drafts + 1)
    tokens = choose_tokens(scores, sampling, aligned)
    num_accepted, bonus_token = verify(first_columns(tokens, start, max_drafts + 1), rows.drafts, rows.num_drafts)

    # The masks that follow them: void if none do
    masks, has_masks = select_group(masks, groups, num_accepted)
    num_masks = masks.shape[1]
    mask_scores, reach = process_position_wise(masks, sampling), num_masks
    if sampling.with_prefix:
        mask_scores, reach = process_masks(
            masks, mask_scores, bonus_token, rows, sampling, thresholds, sequences, uniforms
        )
    aligned = None if uniforms is None else first_columns(uniforms, num_accepted + 1, num_masks)
    confidences = measure_confidences(mask_scores, sampling)
    num_offered = count_offered(rows, sampling, thresholds).clamp(max=num_masks)
    num_confident = count_leading(passes(confidences, sampling, thresholds)).clamp(max=reach)
    return Decision(
        num_accepted=num_accepted,
        bonus_token=bonus_token,
        mask_tokens=choose_tokens(mask_scores, sampling, aligned),
        num_offered=num_offered,
        num_confident=torch.minimum(num_confident, num_offered) * has_masks,
        confidences=confidences,
        scores=scores,
        mask_scores=mask_scores,
    )


def assemble(decision: Decision, rows: Rows, sampling: SamplingTensors) -> AcceptedTokens:
    """
    The accepted tokens of each row: the draft tokens that hold, the bonus token, and in lossy mode the masks whose
    confidence passes. In verify mode those masks are the next forward's drafts.

    Args:
        decision ([`Decision`]): What the forward says.
        rows ([`Rows`]): The rows.
        sampling ([`SamplingTensors`]): How each of them decodes.
    """
    max_drafts, num_masks = rows.drafts.shape[1], decision.mask_tokens.shape[1]
    tokens = torch.cat([rows.drafts, decision.bonus_token, decision.mask_tokens], dim=1)
    width = max(sampling.any_verified * max_drafts, sampling.any_lossy * num_masks) + 1
    position = torch.arange(width, device=tokens.device)
    num_rejected = max_drafts - decision.num_accepted  # with the columns of rows that have fewer drafts
    skipped = (position >= decision.num_accepted[:, None]) * num_rejected[:, None]
    return AcceptedTokens(
        tokens=tokens.gather(1, (position + skipped).clamp(max=tokens.shape[1] - 1)),
        lengths=(decision.num_accepted + 1 + decision.num_confident * ~sampling.is_verified) * rows.is_active,
    )


def count_offered(rows: Rows, sampling: SamplingTensors, thresholds: torch.Tensor) -> torch.Tensor:
    """How many masks each row can use: within its block and its budget, and where its threshold accepts any."""
    useful = torch.minimum(sampling.block_sizes, sampling.max_lengths - rows.lengths) - 1
    return useful.clamp(min=0) * ((thresholds[:, 0] < 1) | sampling.is_entropy)


def measure_confidences(scores: torch.Tensor, sampling: SamplingTensors) -> torch.Tensor:
    """How sure each mask of each row is, of shape `(rows, num_masks)`, by the row's own metric."""
    if len(sampling.by_metric) == 1:
        return confidence(scores, sampling.params[0].decoding.metric)
    confidences = scores.new_zeros(scores.shape[:2])
    for rows in sampling.by_metric:
        confidences[rows.indices] = confidence(scores[rows.indices], rows.params[0].decoding.metric)
    return confidences


def passes(confidences: torch.Tensor, sampling: SamplingTensors, thresholds: torch.Tensor) -> torch.Tensor:
    """Which masks pass the threshold of their row, of shape `(rows, num_masks)`."""
    is_high = accepts(confidences, thresholds)
    if len(sampling.by_metric) == 1 and sampling.params[0].decoding.metric != "entropy":
        return is_high
    return torch.where(sampling.is_entropy[:, None], accepts(confidences, thresholds, "entropy"), is_high)


def choose_tokens(scores: torch.Tensor, sampling: SamplingTensors, uniforms: torch.Tensor | None) -> torch.Tensor:
    """The token of every column: the most likely one, or a sample by the random number of its position."""
    if uniforms is None:
        return scores.argmax(-1)
    sampled = sample(scores.softmax(-1), uniforms)
    return sampled if sampling.all_sampled else sampled.where(sampling.is_sampled[:, None], scores.argmax(-1))


def select_group(
    masks: torch.Tensor, groups: torch.Tensor, num_accepted: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """
    The group of masks that follows the last draft that holds.

    Args:
        masks (`torch.FloatTensor` of shape `(rows, num_groups * num_masks, vocab_size)`): Group after group.
        groups (`torch.LongTensor` of shape `(rows, num_groups)`): After how many drafts each group follows.
        num_accepted (`torch.LongTensor` of shape `(rows,)`): Drafts that hold.

    Returns:
        `tuple(torch.FloatTensor, torch.BoolTensor)`: its masks, of shape `(rows, num_masks, vocab_size)`, and whether
        there is such a group, of shape `(rows,)`.
    """
    is_next = groups == num_accepted[:, None]
    num_groups = groups.shape[1]
    if num_groups > 1:
        rows = torch.arange(len(masks), device=masks.device)
        masks = masks.unflatten(1, (num_groups, -1))[rows, is_next.long().argmax(1)]
    return masks, is_next.any(1)
