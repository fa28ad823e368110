"""From the logits of one forward to tokens: greedy or sampled, lossy or verified, with or without processors."""

from dataclasses import dataclass

import torch

from .acceptance import accepts, confidence, first_columns, sample, verify_greedily, verify_samples
from .processing import process_position
from .row_options import BatchOptions
from .rows import Rows


__all__ = ["Decision", "decide"]


@dataclass
class Decision:
    """
    What one forward says.

    Args:
        num_agreed (`torch.LongTensor` of shape `(rows,)`): Leading drafts that hold.
        next_token (`torch.LongTensor` of shape `(rows, 1)`): The token after them.
        proposals (`torch.LongTensor` of shape `(rows, num_masks)`): Tokens of the masks.
        num_proposed (`torch.LongTensor` of shape `(rows,)`): Leading proposals whose confidence passes the threshold.
        scores (`torch.FloatTensor` of shape `(rows, columns, vocab_size)`): Processed scores.
        proposal_probabilities (`torch.FloatTensor` of shape `(rows, num_masks, vocab_size)`, *optional*):
            Distributions that the proposals were sampled from.
    """

    num_agreed: torch.Tensor
    next_token: torch.Tensor
    proposals: torch.Tensor
    num_proposed: torch.Tensor
    scores: torch.Tensor
    proposal_probabilities: torch.Tensor | None = None


def decide(
    logits: torch.Tensor,
    rows: Rows,
    options: BatchOptions,
    thresholds: torch.Tensor,
    sequences: torch.Tensor,
) -> Decision:
    """
    Choose tokens.

    Args:
        logits (`torch.FloatTensor` of shape `(rows, num_drafts + 1 + num_masks, vocab_size)`):
            Float32, right-aligned: the last known token and the drafts, then the masks. The mask token's is -inf.
        rows ([`Rows`]): The rows.
        options ([`BatchOptions`]): How each of them decodes.
        thresholds (`torch.FloatTensor` of shape `(rows, 1)`): Threshold of each row.
        sequences (`torch.LongTensor` of shape `(batch_size, capacity)`): All tokens so far, for the processors.
    """
    drafts, num_drafts = rows.drafts, rows.drafts.shape[1]
    start = num_drafts - rows.draft_counts
    uniforms = None
    if options.any_sampled:
        rows.pad_draft_probabilities(vocab_size=logits.shape[-1])
        uniforms = options.draw()
    # Proposals that are still to be verified have no true prefix yet: they meet the prefix-free processors only.
    scores = options.process_columns(logits)
    if options.with_prefix:
        scores = process_drafts(logits, scores, rows, options, uniforms, sequences)

    # 1. The drafts that hold, and the token after them
    if options.any_sampled:
        probabilities = to_probabilities(first_columns(scores, start, num_drafts + 1), options)
        num_agreed, next_token = verify_samples(
            probabilities,
            drafts,
            rows.draft_counts,
            rows.draft_probabilities,
            uniforms[:, 1, :num_drafts],
            uniforms[:, 0, 0],
        )
    else:
        candidates = first_columns(scores[:, : num_drafts + 1].argmax(-1), start, num_drafts + 1)
        num_agreed, next_token = verify_greedily(candidates, drafts, rows.draft_counts)

    # 2. Proposals from the masks, which followed the last draft: void if one did not hold
    masks = scores[:, num_drafts + 1 :]
    if options.any_sampled:
        probabilities = to_probabilities(masks, options)
        proposals = sample(probabilities, uniforms[:, 0, 1 : 1 + masks.shape[1]])
    else:
        probabilities, proposals = None, masks.argmax(-1)
    num_proposed = options.count_proposals(masks, thresholds) * (num_agreed == rows.draft_counts)
    decision = Decision(num_agreed, next_token, proposals, num_proposed, scores, probabilities)
    if options.with_prefix and options.any_lossy:
        propose_by_position(decision, logits, rows, options, thresholds, uniforms, sequences)
    return decision


def to_probabilities(scores: torch.Tensor, options: BatchOptions) -> torch.Tensor:
    """Distributions to sample from; of a greedy row all mass is on the most likely token."""
    probabilities = scores.softmax(-1)
    if options.all_sampled or probabilities.shape[1] == 0:
        return probabilities
    best = torch.zeros_like(probabilities).scatter_(-1, scores.argmax(-1, keepdim=True), 1)
    return probabilities.where(options.is_sampled[:, None, None], best)


def process_drafts(
    logits: torch.Tensor,
    scores: torch.Tensor,
    rows: Rows,
    options: BatchOptions,
    uniforms: torch.Tensor | None,
    sequences: torch.Tensor,
) -> torch.Tensor:
    """Process the position of each draft and the one after, in order, for as long as the drafts hold."""
    scores = scores.clone()
    state = host(rows.ids, rows.lengths, rows.draft_counts)
    for index in options.with_prefix:
        row, length, draft_count = state[index]
        own = options.rows[index]
        prefix = sequences[row, :length]
        for position in range(draft_count + 1):
            column = rows.drafts.shape[1] - draft_count + position
            processed = process_position(own.processors, prefix, logits[index, column], options.mask_token_id)
            scores[index, column] = processed
            if position == draft_count:
                break
            draft = rows.drafts[index, position]
            if own.do_sample:
                proposed = rows.draft_probabilities[index, position, draft]
                holds = uniforms[index, 1, position] * proposed < processed.softmax(-1)[draft]
            else:
                holds = processed.argmax(-1) == draft
            prefix = torch.cat([prefix, draft[None]])
            if not holds or own.ends(prefix):
                break
    return scores


def propose_by_position(
    decision: Decision,
    logits: torch.Tensor,
    rows: Rows,
    options: BatchOptions,
    thresholds: torch.Tensor,
    uniforms: torch.Tensor | None,
    sequences: torch.Tensor,
) -> None:
    """Lossy proposals one after the other, each processed with the tokens accepted before it."""
    num_drafts, num_masks = rows.drafts.shape[1], decision.proposals.shape[1]
    state = host(rows.ids, rows.lengths)
    for index in options.with_prefix:
        own, (row, length) = options.rows[index], state[index]
        if own.decoding.verify:
            continue
        decision.num_proposed[index] = 0
        prefix = torch.cat([sequences[row, :length], decision.next_token[index]])
        for position in range(min(num_masks, own.decoding.block_size - 1)):
            if own.ends(prefix):
                break
            column = num_drafts + 1 + position
            processed = process_position(own.processors, prefix, logits[index, column], options.mask_token_id)
            decision.scores[index, column] = processed
            confident = confidence(processed[None], own.decoding.metric)[None]
            if not accepts(confident, thresholds[index : index + 1], own.decoding.metric):
                break
            token = (
                sample(processed[None].softmax(-1), uniforms[index, 0, 1 + position : 2 + position])
                if own.do_sample
                else processed[None].argmax(-1)
            )
            decision.proposals[index, position] = token
            decision.num_proposed[index] += 1
            prefix = torch.cat([prefix, token])


def host(*columns: torch.Tensor) -> list[list[int]]:
    """Integer tensors of shape `(rows,)` as a list with one entry a row."""
    return torch.stack(columns, dim=1).tolist()
