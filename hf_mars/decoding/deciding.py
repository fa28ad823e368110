"""From the logits of one forward to tokens: greedy or sampled, lossy or verified, with or without processors."""

from dataclasses import dataclass

import torch
from transformers import LogitsProcessorList

from .acceptance import accepts, confidence, first_columns, leading_run, verify_greedily, verify_samples
from .options import DecodingOptions
from .processing import ScoreProcessor
from .rows import Rows
from .stopping import StoppingRule


__all__ = ["Decider", "Decision"]


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


class Decider:
    """
    Chooses tokens.

    Args:
        options ([`DecodingOptions`]): How to decode.
        processors ([`LogitsProcessorList`]): As prepared by `generate`.
        stopping ([`StoppingRule`]): After which tokens nothing is decided any more.
        do_sample (`bool`): Whether to sample.
        num_rows (`int`): Batch size.
    """

    def __init__(
        self,
        options: DecodingOptions,
        processors: LogitsProcessorList,
        stopping: StoppingRule,
        do_sample: bool,
        num_rows: int,
    ):
        self.options, self.stopping, self.do_sample = options, stopping, do_sample
        self.processor = ScoreProcessor(processors, num_rows, options.mask_token_id)

    def decide(self, logits: torch.Tensor, rows: Rows, threshold: torch.Tensor, sequences: torch.Tensor) -> Decision:
        """
        Args:
            logits (`torch.FloatTensor` of shape `(rows, num_drafts + 1 + num_masks, vocab_size)`):
                Float32, right-aligned: the last known token and the drafts, then the masks. The mask token's is -inf.
            rows ([`Rows`]): The rows.
            threshold (`torch.FloatTensor` of shape `(rows, 1)`): Threshold of each row.
            sequences (`torch.LongTensor` of shape `(batch_size, capacity)`): All tokens so far, for the processors.
        """
        drafts, num_drafts = rows.drafts, rows.drafts.shape[1]
        start = num_drafts - rows.draft_counts
        uniforms = torch.rand(drafts.shape, device=logits.device) if self.do_sample else None
        # Proposals that are still to be verified have no true prefix yet: they meet the prefix-free processors only.
        scores = self.processor.process_columns(logits)
        if self.processor.needs_prefix:
            scores = self._process_drafts(logits, scores, rows, uniforms, sequences)

        # 1. The drafts that hold, and the token after them
        if self.do_sample:
            probabilities = first_columns(scores, start, num_drafts + 1).softmax(-1)
            num_agreed, next_token = verify_samples(
                probabilities, drafts, rows.draft_counts, rows.draft_probabilities, uniforms
            )
        else:
            candidates = first_columns(scores[:, : num_drafts + 1].argmax(-1), start, num_drafts + 1)
            num_agreed, next_token = verify_greedily(candidates, drafts, rows.draft_counts)

        # 2. Proposals from the masks, which followed the last draft: void if one did not hold
        if self.processor.needs_prefix and not self.options.verify:
            return self._propose_by_position(logits, scores, rows, threshold, num_agreed, next_token, sequences)
        masks = scores[:, num_drafts + 1 :]
        probabilities = masks.softmax(-1) if self.do_sample else None
        proposals = sample(probabilities) if self.do_sample else masks.argmax(-1)
        metric = self.options.metric
        num_proposed = leading_run(accepts(confidence(masks, metric), threshold, metric))
        num_proposed = num_proposed * (num_agreed == rows.draft_counts)
        return Decision(num_agreed, next_token, proposals, num_proposed, scores, probabilities)

    def _process_drafts(self, logits, scores, rows: Rows, uniforms, sequences) -> torch.Tensor:
        """Process the position of each draft and the one after, in order, for as long as the drafts hold."""
        scores = scores.clone()
        for index, (row, length, draft_count) in enumerate(host(rows.ids, rows.lengths, rows.draft_counts)):
            prefix = sequences[row, :length]
            for position in range(draft_count + 1):
                column = rows.drafts.shape[1] - draft_count + position
                processed = self.processor.process_position(row, prefix, logits[index, column])
                scores[index, column] = processed
                if position == draft_count:
                    break
                draft = rows.drafts[index, position]
                if self.do_sample:
                    proposed = rows.draft_probabilities[index, position, draft]
                    holds = uniforms[index, position] * proposed < processed.softmax(-1)[draft]
                else:
                    holds = processed.argmax(-1) == draft
                prefix = torch.cat([prefix, draft[None]])
                if not holds or self.stopping.ends(prefix):
                    break
        return scores

    def _propose_by_position(
        self, logits, scores, rows: Rows, threshold, num_agreed, next_token, sequences
    ) -> Decision:
        """Lossy proposals one after the other, each processed with the tokens accepted before it."""
        num_masks = scores.shape[1] - 1
        proposals = next_token.new_zeros(len(next_token), num_masks)
        num_proposed = torch.zeros_like(num_agreed)
        for index, (row, length) in enumerate(host(rows.ids, rows.lengths)):
            prefix = torch.cat([sequences[row, :length], next_token[index]])
            for position in range(num_masks):
                if self.stopping.ends(prefix):
                    break
                processed = self.processor.process_position(row, prefix, logits[index, 1 + position])
                scores[index, 1 + position] = processed
                confident = confidence(processed[None], self.options.metric)[None]
                if not accepts(confident, threshold[index : index + 1], self.options.metric):
                    break
                token = sample(processed[None].softmax(-1)) if self.do_sample else processed[None].argmax(-1)
                proposals[index, position] = token
                num_proposed[index] += 1
                prefix = torch.cat([prefix, token])
        return Decision(num_agreed, next_token, proposals, num_proposed, scores)


def sample(probabilities: torch.Tensor) -> torch.Tensor:
    """One token from each distribution: from `(..., vocab_size)` to `(...)`."""
    flat = probabilities.reshape(-1, probabilities.shape[-1])
    if len(flat) == 0:
        return flat.new_zeros(probabilities.shape[:-1], dtype=torch.long)
    return torch.multinomial(flat, num_samples=1).view(probabilities.shape[:-1])


def host(*columns: torch.Tensor) -> list[list[int]]:
    """Integer tensors of shape `(rows,)` as a list with one entry a row."""
    return torch.stack(columns, dim=1).tolist()
