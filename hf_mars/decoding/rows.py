"""The rows of a batch: what each has decided, and what one step added."""

from dataclasses import dataclass, fields

import torch


__all__ = ["Rows", "Step"]


@dataclass
class Rows:
    """
    The rows that take part in the next forward, each a sequence at its own length. Every field is a tensor whose first
    dimension is the row.

    Args:
        ids (`torch.LongTensor` of shape `(rows,)`): Index of the row in the batch that `generate` was given.
        tokens (`torch.LongTensor` of shape `(rows, length)`): Pending tokens, then drafts, left-aligned.
        counts (`torch.LongTensor` of shape `(rows,)`): How many of `tokens` are real.
        drafts (`torch.LongTensor` of shape `(rows, num_drafts)`): The drafts alone, left-aligned.
        draft_counts (`torch.LongTensor` of shape `(rows,)`): How many of `drafts` are real, 0 in lossy mode.
        lengths (`torch.LongTensor` of shape `(rows,)`): Length of the sequence so far, padding and prompt included.
        position_offset (`torch.LongTensor` of shape `(rows,)`): Position id of a slot minus its number.
        is_real (`torch.BoolTensor` of shape `(rows, context_length)`): `False` where the context is padding.
        is_active (`torch.BoolTensor` of shape `(rows,)`): `False` for a row that is done but stays in the batch.
        draft_probabilities (`torch.FloatTensor` of shape `(rows, num_drafts, vocab_size)`, *optional*):
            Distributions that the drafts were sampled from.
    """

    ids: torch.Tensor
    tokens: torch.Tensor
    counts: torch.Tensor
    drafts: torch.Tensor
    draft_counts: torch.Tensor
    lengths: torch.Tensor
    position_offset: torch.Tensor
    is_real: torch.Tensor
    is_active: torch.Tensor
    draft_probabilities: torch.Tensor | None = None

    def select(self, indices: torch.Tensor) -> "Rows":
        """The given rows, in the given order."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return Rows(**{name: None if value is None else value[indices] for name, value in values.items()})


@dataclass
class Step:
    """
    What one forward added, on the host.

    Args:
        ids (`torch.LongTensor` of shape `(rows,)`): Rows of the batch that took part.
        run_lengths (`torch.LongTensor` of shape `(rows,)`): Tokens added to each; 0 for a row that was done before.
        runs (`torch.LongTensor` of shape `(rows, width)`): Those tokens; row `i` has `run_lengths[i]`.
        confidences (`torch.FloatTensor` of shape `(rows, width)`, *optional*): Confidence of each of them.
    """

    ids: torch.Tensor
    run_lengths: torch.Tensor
    runs: torch.Tensor
    confidences: torch.Tensor | None = None
