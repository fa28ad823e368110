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

    def pad_draft_probabilities(self, vocab_size: int) -> None:
        """
        Give every draft a distribution, also those that were drafted before any row sampled: of a greedy row it does
        not matter, as its drafts hold or fail whatever they were drawn from.
        """
        if self.draft_probabilities is None:
            self.draft_probabilities = torch.zeros(len(self.ids), 0, vocab_size, device=self.tokens.device)
        self.draft_probabilities = fill_up(self.draft_probabilities, self.drafts.shape[1], value=False)

    def join(self, other: "Rows") -> "Rows":
        """These rows, then those. What is ragged is filled up to the right; a context ends before what is filled."""
        joined = {}
        for field in fields(self):
            mine, theirs = getattr(self, field.name), getattr(other, field.name)
            if mine is None and theirs is None:  # nothing is sampled, or nothing drafted yet
                joined[field.name] = None
                continue
            mine = theirs.new_zeros(len(self.ids), 0, theirs.shape[2]) if mine is None else mine
            theirs = mine.new_zeros(len(other.ids), 0, mine.shape[2]) if theirs is None else theirs
            width = max(mine.shape[1], theirs.shape[1]) if mine.ndim > 1 else 0
            parts = [fill_up(part, width, value=field.name == "is_real") for part in (mine, theirs)]
            joined[field.name] = torch.cat(parts)
        return Rows(**joined)


def fill_up(values: torch.Tensor, width: int, value: bool) -> torch.Tensor:
    """Columns added to the right until there are `width`."""
    if values.ndim == 1:
        return values
    padding = [0, 0] * (values.ndim - 2) + [0, width - values.shape[1]]
    return torch.nn.functional.pad(values, padding, value=value)


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
