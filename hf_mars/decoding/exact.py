"""Verified decoding whose forwards compute every token as plain decoding does, bit for bit, in half precision too."""

from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial

import torch
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .attention import EXACT_ATTENTION, window_attention_forward
from .batch import Batch


__all__ = ["ExactForward", "exact_attention_forward", "find_uneven"]


@dataclass(frozen=True)
class VerifiedColumns:
    """
    Columns of a window that decide tokens: pending tokens and drafts, not trash and not masks.

    Args:
        num_masks (`int`): Masks at the end of the window.
        spans (`list[tuple[int, int, int]]`): For each row its first such column, the one after its last, and the slot
            of the first.
        has_padding (`bool`): Whether plain decoding passes a mask to the attention.
    """

    num_masks: int
    spans: list[tuple[int, int, int]]
    has_padding: bool


_columns: ContextVar[VerifiedColumns | None] = ContextVar("verified_columns", default=None)


def exact_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    sliding_window: int | None = None,
    **kwargs,
) -> tuple[torch.Tensor, None]:
    """
    Attention in which each verified column meets the keys of its own prefix and nothing else, in a call of one query.

    The kernel's order of additions depends on the number of keys, on the number of queries and on whether there is a
    mask, so these are what they are in plain decoding. The masks' columns may round as they like.

    Args:
        module, query, key, value, attention_mask, kwargs: See [`window_attention_forward`].
        sliding_window (`int`, *optional*): Keys that a query of this layer sees at most.
    """
    columns, attend = _columns.get(), ALL_ATTENTION_FUNCTIONS["sdpa"]
    kwargs["sliding_window"] = sliding_window
    if columns is None:
        return attend(module, query, key, value, attention_mask, **kwargs)
    rows, num_heads, width, _ = query.shape
    output = query.new_zeros(rows, width, num_heads, value.shape[-1])
    if columns.num_masks:
        masks = slice(width - columns.num_masks, width)
        mask = None if attention_mask is None else attention_mask[:, :, masks]
        output[:, masks], _ = window_attention_forward(module, query[:, :, masks], key, value, mask, **kwargs)
    for row, (first, last, slot) in enumerate(columns.spans):
        for column in range(first, last):
            length = slot + column - first + 1
            start = 0 if sliding_window is None else max(0, length - sliding_window)
            keys, values = (states[row : row + 1, :, start:length] for states in (key, value))
            queries, mask = query[row : row + 1, :, column : column + 1], None
            if columns.has_padding and attention_mask is not None:
                mask = attention_mask[row : row + 1, :, column : column + 1, start:length]
            output[row, column], _ = attend(module, queries, keys, values, mask, **kwargs)
    return output, None


class ExactForward:
    """
    A model's forward over a window in which the columns that decide tokens are what plain decoding computes for them.

    What differs with the number of columns is done again, or from the start, one column at a time: attention, and
    those linear layers whose sums are added up in another order. [`use_attention`] with `EXACT_ATTENTION` must be in
    force.

    Args:
        model ([`PreTrainedModel`]): The model.
        batch ([`Batch`]): The rows, of which none leaves before all are done.

    Raises:
        `ValueError`: See [`find_uneven`].
    """

    def __init__(self, model: PreTrainedModel, batch: Batch):
        self.model, self.batch = model, batch
        self.uneven = find_uneven(model, len(batch.host.ids), 2 * batch.sampling.largest_block - 1)

    def __call__(self, input_ids: torch.Tensor, **kwargs):
        columns = list_verified_columns(self.batch, width=input_ids.shape[1])
        token = _columns.set(columns)
        recompute = partial(recompute_columns, columns)
        handles = [module.register_forward_hook(recompute) for module in self.uneven]
        try:
            return self.model(input_ids=input_ids, **kwargs)
        finally:
            for handle in handles:
                handle.remove()
            _columns.reset(token)


def list_verified_columns(batch: Batch, width: int) -> VerifiedColumns:
    """The columns of the batch's next window that decide tokens; none of rows that are done."""
    host = batch.host
    counts = (host.num_pending + host.num_drafts).tolist()
    last = max(counts)
    spans = [
        (last - count * is_active, last, cursor)
        for count, cursor, is_active in zip(counts, host.cursor.tolist(), host.is_active.tolist(), strict=True)
    ]
    return VerifiedColumns(width - last, spans, batch.has_padding)


def recompute_columns(columns: VerifiedColumns, module: nn.Linear, inputs: tuple, output: torch.Tensor) -> None:
    """Forward hook of a linear layer: write each verified column anew, as a forward of one column computes it."""
    (states,) = inputs
    rows = torch.arange(len(states), device=states.device)
    last = states.shape[1] - columns.num_masks  # the head may get fewer columns than the window has
    for back in range(1, 1 + max(stop - start for start, stop, _ in columns.spans)):
        output[rows, last - back] = module.forward(states[:, last - back])


def find_uneven(model: PreTrainedModel, num_rows: int, max_width: int) -> list[nn.Linear]:
    """
    Linear layers that add up in another order when a forward has several columns a row instead of one.

    Args:
        model ([`PreTrainedModel`]): The model.
        num_rows (`int`): Rows of the batch.
        max_width (`int`): Columns of a forward at most.

    Raises:
        `ValueError`: If it has matrices of other kinds, or such layers hold most of its weights.
    """
    linears = []
    for name, module in model.named_modules():
        if type(module) is nn.Linear:
            linears.append(module)
        elif not isinstance(module, nn.Embedding) and any(p.ndim > 1 for p in module.parameters(recurse=False)):
            raise ValueError(
                f"`mars_verify='exact'` knows what nn.Linear does, and `{name}` is a {type(module).__name__}: "
                "use `mars_verify=True`."
            )
    forward = (num_rows, max_width, torch.get_num_threads())
    uneven = [
        module
        for module in linears
        if is_uneven(tuple(module.weight.shape), module.weight.dtype, module.weight.device, *forward)
    ]
    if 2 * sum(module.weight.numel() for module in uneven) > sum(module.weight.numel() for module in linears):
        raise ValueError(
            f"`mars_verify='exact'` would not be faster than plain decoding: on {model.device.type} in "
            f"{str(model.dtype).removeprefix('torch.')} most of the linear layers of {type(model).__name__} round "
            f"differently with {num_rows} columns and with more. Use `mars_verify=True`"
            + (", which is exact but for the last bits." if model.dtype in (torch.float32, torch.float64) else ".")
        )
    return uneven


@cache
def is_uneven(
    shape: tuple[int, int], dtype: torch.dtype, device: torch.device, num_rows: int, max_width: int, num_threads: int
) -> bool:
    """
    Whether the first rows of a matrix product depend on how many follow. The terms of each sum cancel but for their
    rounding, so that another order of additions shows in almost every element.
    """
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(shape[1], generator=generator)
    half = shape[1] // 2
    terms = torch.randn(num_rows * max_width, half, generator=generator)
    factors = torch.randn(min(shape[0], 256), half, generator=generator)
    padding = (0, shape[1] - 2 * half)
    states = nn.functional.pad(torch.cat([terms, -terms], 1), padding)[:, order].to(device, dtype)
    weight = nn.functional.pad(torch.cat([factors, factors], 1), padding)[:, order].to(device, dtype)
    weight = weight.repeat(-(-shape[0] // len(weight)), 1)[: shape[0]].contiguous()
    alone = nn.functional.linear(states[:num_rows], weight)
    return any(
        not torch.equal(nn.functional.linear(states[: num_rows * width], weight)[:num_rows], alone)
        for width in sorted({2, (max_width + 1) // 2, max_width})
    )


AttentionInterface.register(EXACT_ATTENTION, exact_attention_forward)
AttentionMaskInterface.register(EXACT_ATTENTION, ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])
