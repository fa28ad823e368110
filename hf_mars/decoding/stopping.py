"""Where a run of tokens ends: the row's budget, an end-of-sequence token, or any other criterion of `generate`."""

import torch
from transformers import StoppingCriteriaList
from transformers.generation import EosTokenCriteria, MaxLengthCriteria

from .acceptance import leading_run
from .output import TokenRecord


__all__ = ["StoppingRule", "cut"]


class StoppingRule:
    """
    Applies the stopping criteria of `generate` after each token of a run, although a run comes at once.

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

    def cut_row(
        self, sequences: torch.Tensor, row: int, run_length: int, scores: TokenRecord | None
    ) -> tuple[int, bool]:
        """
        Judge one row's run token by token with the criteria that [`cut`] leaves out.

        Args:
            sequences (`torch.LongTensor` of shape `(batch_size, max_length)`): All rows, with their runs.
            row (`int`): The row.
            run_length (`int`): Length of its run.
            scores ([`TokenRecord`], *optional*): Scores of the tokens so far.

        Returns:
            `tuple(int, bool)`: length of the run after the cut, and whether the row is done.
        """
        start = self.judged_lengths[row]
        for length in range(start + 1, start + run_length + 1):
            self.judged_lengths[row] = length
            batch_scores = None if scores is None else scores.to_tuple(length - self.prompt_length)
            if self.others(self._align(sequences, length), batch_scores).expand(len(sequences))[row]:
                return length - start, True
        return run_length, False

    def _align(self, sequences: torch.Tensor, length: int) -> torch.Tensor:
        """All rows at one length: prompts to the left, the last judged tokens of the answers to the right."""
        aligned = sequences.new_full((len(sequences), length), self.mask_token_id)
        aligned[:, : self.prompt_length] = sequences[:, : self.prompt_length]
        for row, judged in enumerate(self.judged_lengths):
            num_tokens = min(judged, length) - self.prompt_length
            aligned[row, length - num_tokens :] = sequences[row, judged - num_tokens : judged]
        return aligned


def cut(
    runs: torch.Tensor, run_lengths: torch.Tensor, remaining: torch.Tensor, eos_token_ids: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """
    Shorten every run to the row's budget and to its first end-of-sequence token.

    Args:
        runs (`torch.LongTensor` of shape `(rows, width)`): Accepted tokens, left-aligned.
        run_lengths (`torch.LongTensor` of shape `(rows,)`): How many each row has.
        remaining (`torch.LongTensor` of shape `(rows,)`): How many each row may still add.
        eos_token_ids (`torch.LongTensor` of shape `(rows, num_eos)`): End-of-sequence tokens of each row.

    Returns:
        `tuple(torch.LongTensor, torch.BoolTensor)`: the run lengths after the cut, and which rows are done, both of
        shape `(rows,)`.
    """
    run_lengths = torch.minimum(run_lengths, remaining)
    position = torch.arange(runs.shape[1], device=runs.device)
    is_eos_token = (runs[:, :, None] == eos_token_ids[:, None]).any(-1) & (position < run_lengths[:, None])
    run_lengths = torch.minimum(run_lengths, leading_run(~is_eos_token) + 1)
    return run_lengths, is_eos_token.any(-1) | (run_lengths == remaining)


def is_eos(criterion) -> bool:
    return isinstance(criterion, EosTokenCriteria)
