"""Attention of a few queries over many keys, for the windows of decoding."""

from collections.abc import Generator
from contextlib import contextmanager

import torch
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .compat import can_switch_attention, get_attention_backend


__all__ = ["EXACT_ATTENTION", "WINDOW_ATTENTION", "use_attention", "window_attention_forward"]

# The names of our attention functions in transformers, where a checkpoint's copy of this file has names of its own.
WINDOW_ATTENTION = f"{__name__}.sdpa"
EXACT_ATTENTION = f"{__name__}.exact"
# Beyond, the copies of the mask cost more than those of the keys.
MAX_QUERIES = 64


def window_attention_forward(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs,
) -> tuple[torch.Tensor, None]:
    """
    What transformers' `sdpa` computes, without its copies of the keys and values.

    Where several query heads share a key head, `sdpa` repeats keys and values for each of them, all the cache at
    every step and layer. Here the queries of those heads stand one after another instead, as if they were more
    positions: what transformers does itself for a single query.

    Args:
        module (`torch.nn.Module`): The attention layer.
        query (`torch.Tensor` of shape `(rows, num_heads, num_queries, head_dim)`): Queries.
        key, value (`torch.Tensor` of shape `(rows, num_key_value_heads, num_keys, head_dim)`): Keys and values.
        attention_mask (`torch.BoolTensor` of shape `(rows, 1, num_queries, num_keys)`, *optional*): Who sees whom.
        kwargs: See `sdpa`.

    Returns:
        `tuple`: The output, of shape `(rows, num_queries, num_heads, head_dim)`, and `None`.
    """
    rows, num_heads, num_queries, _ = query.shape
    num_groups = num_heads // key.shape[1]
    is_window = 1 < num_queries <= MAX_QUERIES
    is_other = any(kwargs.get(name) is not None for name in ("position_bias", "softcap"))
    if num_groups == 1 or not is_window or is_other or attention_mask is None or attention_mask.shape[1] != 1:
        return ALL_ATTENTION_FUNCTIONS["sdpa"](module, query, key, value, attention_mask, **kwargs)
    output = torch.nn.functional.scaled_dot_product_attention(
        query.reshape(rows, key.shape[1], num_groups * num_queries, -1),
        key,
        value,
        attn_mask=attention_mask.repeat(1, 1, num_groups, 1),
        dropout_p=kwargs.get("dropout", 0.0),
        scale=kwargs.get("scaling"),
    )
    return output.reshape(rows, num_heads, num_queries, -1).transpose(1, 2).contiguous(), None


@contextmanager
def use_attention(model: PreTrainedModel, name: str = WINDOW_ATTENTION) -> Generator[None]:
    """
    Let a model that attends with `sdpa` attend with another function inside. A model of another backend keeps it, and
    so does one that another thread has switched already.

    Args:
        model ([`PreTrainedModel`]): The model.
        name (`str`, *optional*, defaults to `WINDOW_ATTENTION`): A registered attention function.
    """
    backend = get_attention_backend(model.config)
    if backend != "sdpa" or not can_switch_attention(model):
        yield
        return
    model.set_attn_implementation(name)
    try:
        yield
    finally:
        model.set_attn_implementation(backend)


AttentionInterface.register(WINDOW_ATTENTION, window_attention_forward)
AttentionMaskInterface.register(WINDOW_ATTENTION, ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])
