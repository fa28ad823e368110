"""How each row of a batch decodes: plain data for a row, one record of tensors for a batch, and what reads them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import LogitsProcessorList

from .options import DecodingOptions, Mode, Threshold


__all__ = [
    "RowGroup",
    "SamplingParams",
    "SamplingTensors",
    "draw_uniforms",
    "ends",
    "make_sampling_tensors",
    "read_row_threshold",
    "read_thresholds",
]


@dataclass(frozen=True, eq=False)
class SamplingParams:
    """
    How one row decodes: the rows of `generate` alike, the requests of a server each in its own way.

    Args:
        decoding ([`DecodingOptions`]): Mode, threshold, block size and metric.
        index, num_rows (`int`): Its place in the batch that `generate` was given, for one threshold a row.
        max_length (`int`): Length of its sequence at most, prompt included.
        eos_token_ids (`frozenset[int]`): Tokens that end it.
        do_sample (`bool`): Whether to sample.
        processors ([`LogitsProcessorList`]): Logits processors of the row.
        position_wise ([`LogitsProcessorList`]): Those of them that look at one position's scores alone.
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
    position_wise: LogitsProcessorList
    generator: torch.Generator | None = None


@dataclass(frozen=True, eq=False)
class RowGroup:
    """
    Rows that share something.

    Args:
        params (`list[SamplingParams]`): Of those rows.
        indices (`torch.LongTensor` of shape `(group_size,)`): Their places among the rows of the batch.
    """

    params: list[SamplingParams]
    indices: torch.Tensor


@dataclass(frozen=True, eq=False)
class SamplingTensors:
    """
    The parameters of all rows as tensors, so that a step asks no row by row. Made anew when rows come or go.

    Args:
        params (`list[SamplingParams]`): Of each row.
        device (`torch.device`): Where the step runs.
        mask_token_id (`int`): Id of the mask token.
        block_sizes, max_lengths (`torch.LongTensor` of shape `(rows,)`): Of each row.
        host_max_lengths (`torch.LongTensor` of shape `(rows,)`): The same, on the host.
        eos_token_ids (`torch.LongTensor` of shape `(rows, num_eos)`): Of each row, filled up with -1.
        is_verified, is_sampled, is_entropy (`torch.BoolTensor` of shape `(rows,)`): Of each row.
        is_planned, host_is_sampled (`torch.BoolTensor` of shape `(rows,)`): Of each row, on the host.
        any_verified, any_lossy, any_sampled, all_sampled, any_planned (`bool`):
            What the host knows without asking the device.
        largest_block (`int`): Largest block size of a row.
        with_prefix (`list[int]`): Rows with processors that look at the tokens so far.
        by_metric, by_processors (`list[RowGroup]`): Rows with the same metric, and the same position-wise processors.
        thresholds (`torch.FloatTensor` of shape `(rows, 1)`): Thresholds that are numbers.
        by_function (`list[RowGroup]`): Rows whose threshold is one function, which is called at every step.
        useful_block (`int`):
            Most tokens that a forward can add to a row that is not planned and whose threshold is a number.
    """

    params: list[SamplingParams]
    device: torch.device
    mask_token_id: int
    block_sizes: torch.Tensor
    max_lengths: torch.Tensor
    host_max_lengths: torch.Tensor
    eos_token_ids: torch.Tensor
    is_verified: torch.Tensor
    is_sampled: torch.Tensor
    is_entropy: torch.Tensor
    is_planned: torch.Tensor
    host_is_sampled: torch.Tensor
    any_verified: bool
    any_lossy: bool
    any_sampled: bool
    all_sampled: bool
    any_planned: bool
    largest_block: int
    with_prefix: list[int]
    by_metric: list[RowGroup]
    by_processors: list[RowGroup]
    thresholds: torch.Tensor
    by_function: list[RowGroup]
    useful_block: int

    @property
    def max_length(self) -> int:
        """Length of the longest sequence that a row may reach."""
        return int(self.host_max_lengths.max())


def make_sampling_tensors(params: Sequence[SamplingParams], device: torch.device) -> SamplingTensors:
    """One record for rows with these parameters."""
    params = list(params)
    decoding = [row.decoding for row in params]

    def group(key: Callable[[SamplingParams], Any]) -> list[RowGroup]:
        members: dict[Any, list[int]] = {}
        for index, row in enumerate(params):
            members.setdefault(key(row), []).append(index)
        return [
            RowGroup([params[index] for index in indices], torch.tensor(indices, device=device))
            for indices in members.values()
        ]

    # Thresholds that are numbers are read once, those that are functions at every step, each function once.
    thresholds, by_function, useful_block = torch.ones(len(params), 1, device=device), [], 1
    for rows in group(lambda row: (identify(row.decoding.threshold), row.decoding.metric)):
        if callable(rows.params[0].decoding.threshold):
            by_function.append(rows)
            continue
        numbers = [read_row_threshold(row) for row in rows.params]
        thresholds[rows.indices] = torch.tensor(numbers, device=device)[:, None]
        useful_block = max(useful_block, *map(useful_block_size, rows.params, numbers))

    host_max_lengths = torch.tensor([row.max_length for row in params])
    return SamplingTensors(
        params=params,
        device=device,
        mask_token_id=decoding[0].mask_token_id,
        block_sizes=torch.tensor([options.block_size for options in decoding], device=device),
        max_lengths=host_max_lengths.to(device),
        host_max_lengths=host_max_lengths,
        eos_token_ids=pad_ids([sorted(row.eos_token_ids) for row in params]).to(device),
        is_verified=torch.tensor([options.mode is Mode.VERIFY for options in decoding], device=device),
        is_sampled=torch.tensor([row.do_sample for row in params], device=device),
        is_entropy=torch.tensor([options.metric == "entropy" for options in decoding], device=device),
        is_planned=torch.tensor([options.is_planned for options in decoding]),
        host_is_sampled=torch.tensor([row.do_sample for row in params]),
        any_verified=any(options.mode is Mode.VERIFY for options in decoding),
        any_lossy=any(options.mode is Mode.LOSSY for options in decoding),
        any_sampled=any(row.do_sample for row in params),
        all_sampled=all(row.do_sample for row in params),
        any_planned=any(options.is_planned for options in decoding),
        largest_block=max(options.block_size for options in decoding),
        with_prefix=[i for i, row in enumerate(params) if len(row.processors) > len(row.position_wise)],
        by_metric=group(lambda row: row.decoding.metric),
        by_processors=group(lambda row: id(row.position_wise)),
        thresholds=thresholds,
        by_function=by_function,
        useful_block=useful_block,
    )


def read_row_threshold(params: SamplingParams) -> float:
    """A row's threshold of this step."""
    threshold = params.decoding.read_threshold(params.num_rows)
    return threshold[params.index].item() if isinstance(threshold, torch.Tensor) else threshold


def read_thresholds(sampling: SamplingTensors) -> tuple[torch.Tensor, int]:
    """The threshold of each row at this step, of shape `(rows, 1)`, and the largest block that one allows."""
    thresholds, block_size = sampling.thresholds, sampling.useful_block
    for rows in sampling.by_function:
        first = rows.params[0]
        threshold = first.decoding.read_threshold(first.num_rows)
        if isinstance(threshold, torch.Tensor):
            places = torch.tensor([row.index for row in rows.params], device=threshold.device)
            thresholds = thresholds.index_copy(0, rows.indices, threshold[places, None].to(thresholds))
            block_size = max(block_size, *(row.decoding.block_size for row in rows.params))
        else:
            thresholds = thresholds.index_fill(0, rows.indices, threshold)
            block_size = max(block_size, *(useful_block_size(row, threshold) for row in rows.params))
    return thresholds, block_size


def draw_uniforms(sampling: SamplingTensors, length: int, capacity: int) -> torch.Tensor:
    """
    The random numbers in [0, 1) of all tokens to come, one for each position of each row.

    A token is the inverse of the cumulative distribution at the number of its position, whether it is drafted,
    verified or neither. So a draft holds exactly if it is the sample that autoregressive decoding would draw, and no
    plan, threshold or neighbour changes what a row generates. Of two close distributions the intervals of a token
    overlap almost as much as the distributions do, which is what rejection sampling would accept.

    Args:
        sampling ([`SamplingTensors`]): The rows.
        length (`int`): Length of the prompts; the number of the token at a position stands at that position.
        capacity (`int`): Positions of each row.

    Returns:
        `torch.FloatTensor` of shape `(rows, capacity)`; zeros if no row samples.
    """
    uniforms = torch.zeros(len(sampling.params), capacity, device=sampling.device)
    if sampling.any_sampled:  # position by position, so that more of them change none
        numbers = torch.rand(sampling.max_length - length, len(uniforms), device=sampling.device)
        uniforms[:, length : sampling.max_length] = numbers.T
    for row, params in enumerate(sampling.params):
        if params.do_sample and params.generator is not None:
            numbers = torch.rand(params.max_length - length, generator=params.generator)
            uniforms[row, length : params.max_length] = numbers.to(sampling.device)
    return uniforms


def ends(params: SamplingParams, sequence: torch.Tensor) -> bool:
    """Whether the sequence of a row, of shape `(length,)`, ends with its last token."""
    return len(sequence) >= params.max_length or int(sequence[-1]) in params.eos_token_ids


def identify(threshold: Threshold) -> Any:
    """The same for the same number or function, also where a bound method is made anew each time it is looked up."""
    if isinstance(threshold, float):
        return threshold
    return id(getattr(threshold, "__self__", threshold)), getattr(threshold, "__func__", None)


def pad_ids(ids: list[list[int]]) -> torch.Tensor:
    """Lists of ids as one tensor, filled up with -1, which is no token."""
    width = max(map(len, ids))
    return torch.tensor([row + [-1] * (width - len(row)) for row in ids], dtype=torch.long)


def useful_block_size(params: SamplingParams, threshold: float) -> int:
    """Tokens that a forward must be able to add: one where a threshold accepts no mask, or a plan decides."""
    is_plain = threshold >= 1 and params.decoding.metric != "entropy"
    return 1 if is_plain or params.decoding.is_planned else params.decoding.block_size
