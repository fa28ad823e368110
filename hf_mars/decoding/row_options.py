"""How each row of a batch decodes: the rows of `generate` alike, the requests of a server each in its own way."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import LogitsProcessorList

from .acceptance import accepts, confidence, leading_run
from .options import DecodingOptions, Threshold


__all__ = ["BatchOptions", "RowOptions"]


@dataclass(eq=False)
class RowOptions:
    """
    How one row decodes.

    Args:
        decoding ([`DecodingOptions`]): Threshold, block size, metric, and whether to verify.
        index, num_rows (`int`): Its place in the batch that `generate` was given, for one threshold a row.
        max_length (`int`): Length of its sequence at most, prompt included.
        eos_token_ids (`frozenset[int]`): Tokens that end it.
        do_sample (`bool`): Whether to sample.
        processors ([`LogitsProcessorList`]): Logits processors of the row.
        prefix_free ([`LogitsProcessorList`]): Those of them that look at one position's scores alone.
        generator (`torch.Generator`, *optional*):
            Source of its random numbers, on the CPU. By default they come from the device's own.
    """

    decoding: DecodingOptions
    index: int
    num_rows: int
    max_length: int
    eos_token_ids: frozenset[int]
    do_sample: bool
    processors: LogitsProcessorList
    prefix_free: LogitsProcessorList
    generator: torch.Generator | None = None

    @property
    def needs_prefix(self) -> bool:
        """Whether a processor looks at the tokens so far."""
        return len(self.processors) > len(self.prefix_free)

    def ends(self, sequence: torch.Tensor) -> bool:
        """Whether the row, of shape `(length,)`, ends with its last token."""
        return len(sequence) >= self.max_length or int(sequence[-1]) in self.eos_token_ids

    def read_threshold(self) -> float:
        """The row's threshold of this step."""
        threshold = self.decoding.read_threshold(self.num_rows)
        return threshold[self.index].item() if isinstance(threshold, torch.Tensor) else threshold


class BatchOptions:
    """
    The options of all rows as tensors, so that a step asks no row by row. Built anew when rows join or leave.

    Args:
        rows (`Sequence[RowOptions]`): One entry a row.
        device (`torch.device`): Where the step runs.

    Attributes:
        block_sizes, max_lengths (`torch.LongTensor` of shape `(rows,)`): Of each row.
        host_max_lengths (`torch.LongTensor` of shape `(rows,)`): The same, on the host.
        eos_token_ids (`torch.LongTensor` of shape `(rows, num_eos)`): Of each row, filled up with -1.
        is_verified, is_sampled (`torch.BoolTensor` of shape `(rows,)`): Of each row.
        any_verified, any_lossy, any_sampled, all_sampled (`bool`): What the host knows without asking the device.
        largest_block (`int`): Largest block size of a row.
        with_prefix (`list[int]`): Rows with processors that look at the prefix.
    """

    def __init__(self, rows: Sequence[RowOptions], device: torch.device):
        self.rows, self.device = list(rows), device
        decoding = [row.decoding for row in rows]
        self.mask_token_id = decoding[0].mask_token_id
        self.block_sizes = torch.tensor([options.block_size for options in decoding], device=device)
        self.host_max_lengths = torch.tensor([row.max_length for row in rows])
        self.max_lengths = self.host_max_lengths.to(device)
        self.eos_token_ids = pad_ids([sorted(row.eos_token_ids) for row in rows]).to(device)
        self.is_verified = torch.tensor([options.verify for options in decoding], device=device)
        self.is_sampled = torch.tensor([row.do_sample for row in rows], device=device)
        self.any_verified = any(options.verify for options in decoding)
        self.any_lossy = not all(options.verify for options in decoding)
        self.any_sampled = any(row.do_sample for row in rows)
        self.all_sampled = all(row.do_sample for row in rows)
        self.largest_block = max(options.block_size for options in decoding)
        self.with_prefix = [index for index, row in enumerate(rows) if row.needs_prefix]
        self._seeded = [index for index, row in enumerate(rows) if row.do_sample and row.generator is not None]
        self._metrics = self._group(lambda row: row.decoding.metric)
        self._processors = self._group(lambda row: id(row.prefix_free))
        # Thresholds that are numbers are read once, those that are functions at every step, each function once.
        self._thresholds = torch.ones(len(rows), 1, device=device)
        self._functions = []
        self._block_size = 1
        for members, indices in self._group(lambda row: (identify(row.decoding.threshold), row.decoding.metric)):
            if callable(members[0].decoding.threshold):
                self._functions.append((members, indices))
                continue
            numbers = [row.read_threshold() for row in members]
            self._thresholds[indices] = torch.tensor(numbers, device=device)[:, None]
            self._block_size = max(self._block_size, *map(useful_block_size, members, numbers))

    def _group(self, key: Callable[[RowOptions], Any]) -> list[tuple[list[RowOptions], torch.Tensor]]:
        """Rows with the same key, and their indices."""
        groups: dict[Any, list[int]] = {}
        for index, row in enumerate(self.rows):
            groups.setdefault(key(row), []).append(index)
        return [
            ([self.rows[index] for index in indices], torch.tensor(indices, device=self.device))
            for indices in groups.values()
        ]

    def select(self, indices: Sequence[int]) -> "BatchOptions":
        """The given rows, in the given order."""
        return BatchOptions([self.rows[index] for index in indices], self.device)

    def read_thresholds(self) -> tuple[torch.Tensor, int]:
        """The threshold of each row at this step, of shape `(rows, 1)`, and the largest block that one allows."""
        thresholds, block_size = self._thresholds, self._block_size
        for members, indices in self._functions:
            threshold = members[0].decoding.read_threshold(members[0].num_rows)
            if isinstance(threshold, torch.Tensor):
                places = torch.tensor([row.index for row in members], device=threshold.device)
                thresholds = thresholds.index_copy(0, indices, threshold[places, None].to(thresholds))
                block_size = max(block_size, *(row.decoding.block_size for row in members))
            else:
                thresholds = thresholds.index_fill(0, indices, threshold)
                block_size = max(block_size, *(useful_block_size(row, threshold) for row in members))
        return thresholds, block_size

    def process_columns(self, scores: torch.Tensor) -> torch.Tensor:
        """Apply every row's prefix-free processors to its columns, of shape `(rows, columns, vocab_size)`."""
        processed = scores
        for members, indices in self._processors:
            if not members[0].prefix_free:
                continue
            selected = scores if len(members) == len(self.rows) else scores[indices]
            flat = selected.reshape(-1, scores.shape[-1])
            no_prefix = torch.zeros(len(flat), 0, dtype=torch.long, device=scores.device)
            values = members[0].prefix_free(no_prefix, flat).view_as(selected)
            values[..., self.mask_token_id] = -torch.inf
            processed = values if len(members) == len(self.rows) else processed.index_copy(0, indices, values)
        return processed

    def count_proposals(self, masks: torch.Tensor, thresholds: torch.Tensor) -> torch.Tensor:
        """How many leading masks of each row, of shape `(rows, num_masks, vocab_size)`, pass its threshold."""
        if len(self._metrics) == 1:
            metric = self.rows[0].decoding.metric
            passes = accepts(confidence(masks, metric), thresholds, metric)
        else:
            passes = torch.zeros(masks.shape[:2], dtype=torch.bool, device=masks.device)
            for members, indices in self._metrics:
                metric = members[0].decoding.metric
                passes[indices] = accepts(confidence(masks[indices], metric), thresholds[indices], metric)
        return torch.minimum(leading_run(passes), self.block_sizes - 1)

    def draw(self) -> torch.Tensor:
        """
        Random numbers in [0, 1) for one step, of shape `(rows, 2, largest_block)`: one for the next token and one for
        each proposal, then one for each draft. What a seeded row gets does not depend on the other rows.
        """
        uniforms = torch.rand(len(self.rows), 2, self.largest_block, device=self.device)
        for index in self._seeded:
            block_size = self.rows[index].decoding.block_size
            numbers = torch.rand(2, block_size, generator=self.rows[index].generator)
            uniforms[index, :, :block_size] = numbers.to(self.device)
        return uniforms


def identify(threshold: Threshold) -> Any:
    """The same for the same number or function, also where a bound method is made anew each time it is looked up."""
    if isinstance(threshold, float):
        return threshold
    return id(getattr(threshold, "__self__", threshold)), getattr(threshold, "__func__", None)


def pad_ids(ids: list[list[int]]) -> torch.Tensor:
    """Lists of ids as one tensor, filled up with -1, which is no token."""
    width = max(map(len, ids))
    return torch.tensor([row + [-1] * (width - len(row)) for row in ids], dtype=torch.long)


def useful_block_size(row: RowOptions, threshold: float) -> int:
    """Most tokens that a forward can add to the row: one where the threshold accepts no mask."""
    is_autoregressive = threshold >= 1 and row.decoding.metric != "entropy"
    return 1 if is_autoregressive else row.decoding.block_size
