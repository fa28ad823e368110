"""Where accepted tokens are cut: the row's budget, an end-of-sequence token, or any other criterion of `generate`."""

from dataclasses import replace

import torch
from transformers import GenerationConfig, StoppingCriteriaList
from transformers.generation import EosTokenCriteria, MaxLengthCriteria

from .acceptance import count_leading
from .deciding import AcceptedTokens
from .output import TokenRecord


__all__ = ["StoppingRule", "cut", "get_pad_token_id"]


class StoppingRule:
    """
    Applies the stopping criteria of `generate` after each accepted token, although several come at once.

    The length and the end-of-sequence tokens are judged for all rows together, by [`cut`]. Other criteria (`max_time`,
    `stop_strings`, custom ones) are called once for each token of each row, with `input_ids` of shape
    `(batch_size, length)` that end, in the judged row, with that token. The other rows end with their own last judged
    token, so that criteria which keep count of every row, or look back a few tokens, see what they would in plain
    generation; between prompt and answer they are filled up with the mask token, which no text contains.

    Args:
        criteria ([`StoppingCriteriaList`]): As prepared by `generate`.
        prompt_length (`int`): Length of the sequences before the first token.
        batch_size (`int`): Number of rows.
        mask_token_id (`int`): Id of the mask token.
    """

    def __init__(self, criteria: StoppingCriteriaList, prompt_length: int, batch_size: int, mask_token_id: int):
        self.prompt_length, self.mask_token_id = prompt_length, mask_token_id
        self.judged_lengths = [prompt_length] * batch_size
        self.max_length = min(c.max_length for c in criteria if isinstance(c, MaxLengthCriteria))
        eos_token_ids = [criterion.eos_token_id.flatten().tolist() for criterion in criteria if is_eos(criterion)]
        self.eos_token_ids = frozenset().union(*eos_token_ids)
        self.others = StoppingCriteriaList(
            c for c in criteria if not is_eos(c) and not isinstance(c, MaxLengthCriteria)
        )

    def cut(
        self,
        accepted: AcceptedTokens,
        is_finished: torch.Tensor,
        ids: torch.Tensor,
        sequences: torch.Tensor,
        scores: TokenRecord | None,
    ) -> tuple[AcceptedTokens, torch.Tensor]:
        """
        Apply the criteria that [`cut`] leaves out, to one row after the other.

        Args:
            accepted ([`AcceptedTokens`]), is_finished (`torch.BoolTensor`): As [`cut`] returns them.
            ids (`torch.LongTensor` of shape `(rows,)`): Place of each row in `sequences`.
            sequences (`torch.LongTensor` of shape `(batch_size, max_length)`): All rows, with their new tokens.
            scores ([`TokenRecord`], *optional*): Scores of the tokens so far.

        Returns:
            As [`cut`].
        """
        lengths, finished = accepted.lengths.tolist(), is_finished.tolist()
        for index, row in enumerate(ids.tolist()):
            if lengths[index] > 0:
                lengths[index], is_stopped = self._cut_row(sequences, row, lengths[index], scores)
                finished[index] |= is_stopped
        return replace(accepted, lengths=ids.new_tensor(lengths)), is_finished.new_tensor(finished)

    def _cut_row(
        self, sequences: torch.Tensor, row: int, num_tokens: int, scores: TokenRecord | None
    ) -> tuple[int, bool]:
        """Judge one row's new tokens one by one. Returns how many of them stay, and whether the row is done."""
        start = self.judged_lengths[row]
        for length in range(start + 1, start + num_tokens + 1):
            self.judged_lengths[row] = length
            batch_scores = None if scores is None else scores.to_tuple(length - self.prompt_length)
            if self.others(self._align(sequences, length), batch_scores).expand(len(sequences))[row]:
                return length - start, True
        return num_tokens, False

    def _align(self, sequences: torch.Tensor, length: int) -> torch.Tensor:
        """All rows at one length: prompts to the left, the last judged tokens of the answers to the right."""
        aligned = sequences.new_full((len(sequences), length), self.mask_token_id)
        aligned[:, : self.prompt_length] = sequences[:, : self.prompt_length]
        for row, judged in enumerate(self.judged_lengths):
            num_tokens = min(judged, length) - self.prompt_length
            aligned[row, length - num_tokens :] = sequences[row, judged - num_tokens : judged]
        return aligned


def cut(
    accepted: AcceptedTokens, remaining: torch.Tensor, eos_token_ids: torch.Tensor
) -> tuple[AcceptedTokens, torch.Tensor]:
    """
    Cut every row's accepted tokens at its budget and at the first end-of-sequence token.

    Args:
        accepted ([`AcceptedTokens`]): What one forward adds.
        remaining (`torch.LongTensor` of shape `(rows,)`): How many tokens each row may still add.
        eos_token_ids (`torch.LongTensor` of shape `(rows, num_eos)`): End-of-sequence tokens of each row.

    Returns:
        `tuple(AcceptedTokens, torch.BoolTensor)`: what is left of them, and which rows are done, of shape `(rows,)`.
    """
    lengths = torch.minimum(accepted.lengths, remaining)
    position = torch.arange(accepted.tokens.shape[1], device=lengths.device)
    is_eos_token = (accepted.tokens[:, :, None] == eos_token_ids[:, None]).any(-1) & (position < lengths[:, None])
    lengths = torch.minimum(lengths, count_leading(~is_eos_token) + 1)
    return replace(accepted, lengths=lengths), is_eos_token.any(-1) | (lengths == remaining)


def is_eos(criterion) -> bool:
    return isinstance(criterion, EosTokenCriteria)


def get_pad_token_id(generation_config: GenerationConfig) -> int | None:
    """What `generate` fills up rows with: the pad token, else the first end-of-sequence token."""
    for token_ids in (generation_config.pad_token_id, generation_config.eos_token_id):
        if token_ids is not None:
            return int(torch.as_tensor(token_ids).flatten()[0])
    return None
