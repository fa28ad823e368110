"""Where a run of tokens ends: the row's budget, an end-of-sequence token, or any other criterion of `generate`."""

import torch
from transformers import StoppingCriteriaList
from transformers.generation import EosTokenCriteria, MaxLengthCriteria

from .acceptance import leading_run
from .output import TokenRecord


__all__ = ["StoppingRule"]


class StoppingRule:
    """
    Applies the stopping criteria of `generate` after each token of a run, although a run comes at once.

    The length and the end-of-sequence tokens are judged for all rows together. Other criteria (`max_time`,
    `stop_strings`, custom ones) are called with one row at a time, once for each of its tokens in order: `input_ids`
    of shape `(1, length)`, and the row's `scores` so far if `output_scores`.

    Args:
        criteria ([`StoppingCriteriaList`]): As prepared by `generate`.
    """

    def __init__(self, criteria: StoppingCriteriaList):
        self.max_length = min(c.max_length for c in criteria if isinstance(c, MaxLengthCriteria))
        eos_token_ids = [criterion.eos_token_id.flatten() for criterion in criteria if is_eos(criterion)]
        self.eos_token_ids = torch.cat(eos_token_ids) if eos_token_ids else None
        self.others = StoppingCriteriaList(
            c for c in criteria if not is_eos(c) and not isinstance(c, MaxLengthCriteria)
        )

    def cut(
        self, runs: torch.Tensor, run_lengths: torch.Tensor, remaining: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """
        Shorten every run to the row's budget and to its first end-of-sequence token.

        Args:
            runs (`torch.LongTensor` of shape `(rows, width)`): Accepted tokens, left-aligned.
            run_lengths (`torch.LongTensor` of shape `(rows,)`): How many each row has.
            remaining (`torch.LongTensor` of shape `(rows,)`): How many each row may still add.

        Returns:
            `tuple(torch.LongTensor, torch.BoolTensor)`: the run lengths after the cut, and which rows are done, both
            of shape `(rows,)`.
        """
        run_lengths = torch.minimum(run_lengths, remaining)
        if self.eos_token_ids is not None:
            position = torch.arange(runs.shape[1], device=runs.device)
            is_eos_token = torch.isin(runs, self.eos_token_ids.to(runs.device)) & (position < run_lengths[:, None])
            run_lengths = torch.minimum(run_lengths, leading_run(~is_eos_token) + 1)
            return run_lengths, is_eos_token.any(-1) | (run_lengths == remaining)
        return run_lengths, run_lengths == remaining

    def ends(self, sequence: torch.Tensor) -> bool:
        """Whether a row, of shape `(length,)`, ends with its last token, as far as length and end of sequence go."""
        if len(sequence) >= self.max_length:
            return True
        return self.eos_token_ids is not None and bool(
            torch.isin(sequence[-1], self.eos_token_ids.to(sequence.device))
        )

    def cut_row(self, sequence: torch.Tensor, start: int, row: int, scores: TokenRecord | None) -> tuple[int, bool]:
        """
        Judge one row's run token by token with the criteria that `cut` leaves out.

        Args:
            sequence (`torch.LongTensor` of shape `(length,)`): The row with its run.
            start (`int`): Where the run begins.
            row (`int`): Index of the row in the batch.
            scores ([`TokenRecord`], *optional*): Scores of the tokens so far.

        Returns:
            `tuple(int, bool)`: length of the run after the cut, and whether the row is done.
        """
        for length in range(start + 1, len(sequence) + 1):
            row_scores = None if scores is None else scores.row(row, length)
            if self.others(sequence[None, :length], row_scores).any():
                return length - start, True
        return len(sequence) - start, False


def is_eos(criterion) -> bool:
    return isinstance(criterion, EosTokenCriteria)
