"""The rows of a batch as plain records: one on the device, and one of what the host knows without asking."""

from dataclasses import dataclass, fields
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

    def select(self, indices: torch.Tensor) -> "Rows":
        """The given rows, in the given order."""
        return select(self, indices)

    def concat(self, other: "Rows") -> "Rows":
        """These rows, then those. What is ragged is filled up to the right; a context ends before what is filled."""
        return concat(self, other)


@dataclass(frozen=True)
class HostRows:
    """
    What the host knows of the same rows. Every field is a tensor of shape `(rows,)` on the CPU, or of more columns.

    Args:
        ids, num_pending, num_drafts, length, is_active: As in [`Rows`].
        cursor (`torch.LongTensor`): Slots of the row whose keys and values are committed.
        confidences (`torch.FloatTensor` of shape `(rows, max_drafts)`): Of the drafts, if steps are planned.
    """

    ids: torch.Tensor
    num_pending: torch.Tensor
    num_drafts: torch.Tensor
    cursor: torch.Tensor
    length: torch.Tensor
    is_active: torch.Tensor
    confidences: torch.Tensor

    @classmethod
    def without_drafts(cls, num_rows: int, num_pending: int, length: int) -> "HostRows":
        """Rows that are all alike, before the first step."""
        ones = torch.ones(num_rows, dtype=torch.long)
        return cls(
            ids=torch.arange(num_rows),
            num_pending=ones * num_pending,
            num_drafts=ones * 0,
            cursor=ones * 0,
            length=ones * length,
            is_active=ones.bool(),
            confidences=torch.zeros(num_rows, 0),
        )

    def select(self, indices: torch.Tensor) -> "HostRows":
        """The given rows, in the given order."""
        return select(self, indices)

    def concat(self, other: "HostRows") -> "HostRows":
        """These rows, then those."""
        return concat(self, other)


def select(record: Record, indices: torch.Tensor) -> Record:
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    return type(record)(**{name: value[indices] for name, value in values.items()})


def concat(record: Record, other: Record) -> Record:
    joined = {}
    for field in fields(record):
        mine, theirs = getattr(record, field.name), getattr(other, field.name)
        width = max(mine.shape[1], theirs.shape[1]) if mine.ndim > 1 else 0
        parts = [fill_up(part, width, value=field.name == "is_real") for part in (mine, theirs)]
        joined[field.name] = torch.cat(parts)
    return type(record)(**joined)


def fill_up(values: torch.Tensor, width: int, value: bool) -> torch.Tensor:
    """Columns added to the right until there are `width`."""
    if values.ndim == 1:
        return values
    padding = [0, 0] * (values.ndim - 2) + [0, width - values.shape[1]]
    return torch.nn.functional.pad(values, padding, value=value)
