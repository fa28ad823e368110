"""The rows of a batch as plain records: one on the device, and one of what the host knows without asking."""

from dataclasses import dataclass, fields, replace
from typing import TypeVar

import torch


__all__ = ["HostRows", "Rows"]

Record = TypeVar("Record", "Rows", "HostRows")


@dataclass(frozen=True)
class Rows:
    """
    The rows that take part in the next forward, each a sequence at its own length. Every field is a tensor whose first
    dimension is the row.

    Args:
        ids (`torch.LongTensor` of shape `(rows,)`): Place of the row in the batch's `sequences`.
        tokens (`torch.LongTensor` of shape `(rows, length)`): Pending tokens, then draft tokens, left-aligned.
        num_pending (`torch.LongTensor` of shape `(rows,)`): How many of `tokens` are pending: decided, but not read.
        drafts (`torch.LongTensor` of shape `(rows, max_drafts)`): The draft tokens alone, left-aligned.
        num_drafts (`torch.LongTensor` of shape `(rows,)`): How many draft tokens a row has; 0 in lossy mode.
        lengths (`torch.LongTensor` of shape `(rows,)`): Length of the sequence so far, padding and prompt included.
        position_offset (`torch.LongTensor` of shape `(rows,)`): Position id of a slot minus its number.
        is_real (`torch.BoolTensor` of shape `(rows, context_length)`): `False` where the context is padding.
        is_active (`torch.BoolTensor` of shape `(rows,)`): `False` for a row that is done but stays in the batch.
        draft_probabilities (`torch.FloatTensor` of shape `(rows, max_drafts, vocab_size)`, *optional*):
            Distributions that the draft tokens were sampled from.
    """

    ids: torch.Tensor
    tokens: torch.Tensor
    num_pending: torch.Tensor
    drafts: torch.Tensor
    num_drafts: torch.Tensor
    lengths: torch.Tensor
    position_offset: torch.Tensor
    is_real: torch.Tensor
    is_active: torch.Tensor
    draft_probabilities: torch.Tensor | None = None

    def select(self, indices: torch.Tensor) -> "Rows":
        """The given rows, in the given order."""
        return select(self, indices)

    def concat(self, other: "Rows") -> "Rows":
        """These rows, then those. What is ragged is filled up to the right; a context ends before what is filled."""
        joined = {}
        for field in fields(self):
            mine, theirs = getattr(self, field.name), getattr(other, field.name)
            if mine is None and theirs is None:  # nothing is sampled, or nothing drafted yet
                continue
            mine = theirs.new_zeros(len(self.ids), 0, theirs.shape[2]) if mine is None else mine
            theirs = mine.new_zeros(len(other.ids), 0, mine.shape[2]) if theirs is None else theirs
            width = max(mine.shape[1], theirs.shape[1]) if mine.ndim > 1 else 0
            parts = [fill_up(part, width, value=field.name == "is_real") for part in (mine, theirs)]
            joined[field.name] = torch.cat(parts)
        return Rows(**joined)

    def with_draft_probabilities(self, vocab_size: int) -> "Rows":
        """
        Give every draft a distribution, also those that were drafted before any row sampled: of a greedy row it does
        not matter, as its drafts hold or fail whatever they were drawn from.
        """
        probabilities = self.draft_probabilities
        if probabilities is None:
            probabilities = torch.zeros(len(self.ids), 0, vocab_size, device=self.tokens.device)
        return replace(self, draft_probabilities=fill_up(probabilities, self.drafts.shape[1], value=False))


@dataclass(frozen=True)
class HostRows:
    """
    What the host knows of the same rows. Every field is a tensor of shape `(rows,)` on the CPU.

    Args:
        ids, num_pending, num_drafts, length, is_active: As in [`Rows`].
        cursor (`torch.LongTensor`): Slots of the row whose keys and values are committed.
    """

    ids: torch.Tensor
    num_pending: torch.Tensor
    num_drafts: torch.Tensor
    cursor: torch.Tensor
    length: torch.Tensor
    is_active: torch.Tensor

    def select(self, indices: torch.Tensor) -> "HostRows":
        """The given rows, in the given order."""
        return select(self, indices)

    def concat(self, other: "HostRows") -> "HostRows":
        """These rows, then those."""
        names = [field.name for field in fields(self)]
        return HostRows(**{name: torch.cat([getattr(self, name), getattr(other, name)]) for name in names})


def select(record: Record, indices: torch.Tensor) -> Record:
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    return type(record)(**{name: None if value is None else value[indices] for name, value in values.items()})


def fill_up(values: torch.Tensor, width: int, value: bool) -> torch.Tensor:
    """Columns added to the right until there are `width`."""
    if values.ndim == 1:
        return values
    padding = [0, 0] * (values.ndim - 2) + [0, width - values.shape[1]]
    return torch.nn.functional.pad(values, padding, value=value)
