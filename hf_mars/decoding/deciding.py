"""From the logits of one forward to accepted tokens: greedy or sampled, lossy or verified."""

from dataclasses import dataclass

import torch

from .acceptance import accepts, confidence, count_leading, first_columns, rejection_sample, sample, verify_greedily
from .processing import process_by_position, process_position_wise
from .rows import Rows
from .sampling import SamplingTensors, draw_uniforms


__all__ = ["AcceptedTokens", "Decision", "assemble", "decide"]


@dataclass(frozen=True)
class Decision:
    """
    What one forward says.

    Args:
        num_accepted (`torch.LongTensor` of shape `(rows,)`): Leading draft tokens that hold.
        bonus_token (`torch.LongTensor` of shape `(rows, 1)`): The token after them, the model's own choice.
        mask_tokens (`torch.LongTensor` of shape `(rows, num_masks)`): Tokens of the masks.
        num_offered (`torch.LongTensor` of shape `(rows,)`): Leading masks that the row could use.
        num_confident (`torch.LongTensor` of shape `(rows,)`): Those of them whose confidence passes the threshold.
        scores (`torch.FloatTensor` of shape `(rows, columns, vocab_size)`): Processed scores.
        mask_probabilities (`torch.FloatTensor` of shape `(rows, num_masks, vocab_size)`, *optional*):
            Distributions that the mask tokens were sampled from.
    """

    num_accepted: torch.Tensor
    bonus_token: torch.Tensor
    mask_tokens: torch.Tensor
    num_offered: torch.Tensor
    num_confident: torch.Tensor
    scores: torch.Tensor
    mask_probabilities: torch.Tensor | None = None


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
    sequences: torch.Tensor,
) -> Decision:
    """
    Choose tokens.

    Args:
        logits (`torch.FloatTensor` of shape `(rows, max_drafts + 1 + num_masks, vocab_size)`):
            Float32, right-aligned: the last known token and the drafts, then the masks. The mask token's is -inf.
        rows ([`Rows`]): The rows.
        sampling ([`SamplingTensors`]): How each of them decodes.
        thresholds (`torch.FloatTensor` of shape `(rows, 1)`): Threshold of each row.
        sequences (`torch.LongTensor` of shape `(batch_size, capacity)`): All tokens so far, for the processors.
    """
    max_drafts = rows.drafts.shape[1]
    num_masks = logits.shape[1] - max_drafts - 1
    uniforms = None
    if sampling.any_sampled:
        rows, uniforms = rows.with_draft_probabilities(vocab_size=logits.shape[-1]), draw_uniforms(sampling)
    # Drafts that are still to be verified have no true prefix yet: they meet the position-wise processors only.
    scores, reach = process_position_wise(logits, sampling), None
    if sampling.with_prefix:
        scores, reach = process_by_position(logits, scores, rows, sampling, thresholds, uniforms, sequences)

    # The drafts that hold, and the token after them
    start = max_drafts - rows.num_drafts
    if sampling.any_sampled:
        num_accepted, bonus_token = rejection_sample(
            to_probabilities(first_columns(scores, start, max_drafts + 1), sampling),
            rows.drafts,
            rows.num_drafts,
            rows.draft_probabilities,
            uniforms[:, 1, :max_drafts],
            uniforms[:, 0, 0],
        )
    else:
        candidates = first_columns(scores[:, : max_drafts + 1].argmax(-1), start, max_drafts + 1)
        num_accepted, bonus_token = verify_greedily(candidates, rows.drafts, rows.num_drafts)

    # The masks, which followed the last draft: void if one did not hold
    masks = scores[:, max_drafts + 1 :]
    if sampling.any_sampled:
        mask_probabilities = to_probabilities(masks, sampling)
        mask_tokens = sample(mask_probabilities, uniforms[:, 0, 1 : 1 + num_masks])
    else:
        mask_probabilities, mask_tokens = None, masks.argmax(-1)
    num_offered = count_offered(rows, sampling, thresholds)
    num_confident = torch.minimum(count_confident(masks, sampling, thresholds), num_offered)
    if reach is not None:
        num_confident = torch.minimum(num_confident, reach)
    return Decision(
        num_accepted=num_accepted,
        bonus_token=bonus_token,
        mask_tokens=mask_tokens,
        num_offered=num_offered,
        num_confident=num_confident * (num_accepted == rows.num_drafts),
        scores=scores,
        mask_probabilities=mask_probabilities,
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


def count_confident(masks: torch.Tensor, sampling: SamplingTensors, thresholds: torch.Tensor) -> torch.Tensor:
    """How many leading masks of each row, of shape `(rows, num_masks, vocab_size)`, pass its threshold."""
    if len(sampling.by_metric) == 1:
        metric = sampling.params[0].decoding.metric
        return count_leading(accepts(confidence(masks, metric), thresholds, metric))
    passes = torch.zeros(masks.shape[:2], dtype=torch.bool, device=masks.device)
    for rows in sampling.by_metric:
        metric, indices = rows.params[0].decoding.metric, rows.indices
        passes[indices] = accepts(confidence(masks[indices], metric), thresholds[indices], metric)
    return count_leading(passes)


def to_probabilities(scores: torch.Tensor, sampling: SamplingTensors) -> torch.Tensor:
    """Distributions to sample from; of a greedy row all mass is on the most likely token."""
    probabilities = scores.softmax(-1)
    if sampling.all_sampled or probabilities.shape[1] == 0:
        return probabilities
    best = torch.zeros_like(probabilities).scatter_(-1, scores.argmax(-1, keepdim=True), 1)
    return probabilities.where(sampling.is_sampled[:, None, None], best)
