"""From a mask predicate to what the model's attention backend takes."""

from collections.abc import Callable

import torch
from transformers import PreTrainedConfig
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, and_masks

from .attention import EXACT_ATTENTION, WINDOW_ATTENTION
from .compat import get_attention_backend
from .window import Window


__all__ = ["MaskPredicate", "check_attention_backend", "create_attention_mask", "create_window_mask"]

# (batch_idx, head_idx, q_idx, kv_idx) -> may this query see this key? As in `transformers.masking_utils`.
MaskPredicate = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def sliding_window(window: int, query_positions: torch.Tensor, key_positions: torch.Tensor) -> MaskPredicate:
    """Predicate: the key is fewer than `window` positions before the query."""

    def predicate(batch_idx, head_idx, q_idx, kv_idx):
        return query_positions[batch_idx, q_idx] - key_positions[batch_idx, kv_idx] < window

    return predicate


def check_attention_backend(config: PreTrainedConfig) -> None:
    """
    Raises:
        `ValueError`: If the attention backend takes no custom mask.
    """
    backend = get_attention_backend(config)
    if backend not in ("sdpa", WINDOW_ATTENTION, EXACT_ATTENTION, "eager", "flex_attention"):
        raise ValueError(
            f"The attention backend {backend!r} ignores custom masks, which MARS needs here. Load "
            "the model with `attn_implementation='sdpa'`."
        )


def create_attention_mask(
    config: PreTrainedConfig,
    predicate: MaskPredicate,
    query_positions: torch.Tensor,
    key_positions: torch.Tensor,
    dtype: torch.dtype,
):
    """
    Build the mask of one forward in the form that the model takes: a boolean tensor for sdpa, an additive one for
    eager, a `BlockMask` for flex; one mask, or a dictionary with one mask a layer type, with the window cut out for
    sliding layers.

    Args:
        config ([`PreTrainedConfig`]): Configuration of the language model.
        predicate (`Callable`):
            Who sees whom, on index tensors; every query must see something. The sliding window is added here.
        query_positions (`torch.LongTensor` of shape `(rows, query_length)`): Positions, for the sliding window.
        key_positions (`torch.LongTensor` of shape `(rows, key_length)`): Positions, for the sliding window.
        dtype (`torch.dtype`): Type of an additive mask.

    Raises:
        `ValueError`: If the attention backend takes no mask of this kind (flash attention).
    """
    check_attention_backend(config)
    backend = get_attention_backend(config)

    def build(mask_function: MaskPredicate):
        return ALL_MASK_ATTENTION_FUNCTIONS[backend](
            batch_size=query_positions.shape[0],
            q_length=query_positions.shape[1],
            kv_length=key_positions.shape[1],
            mask_function=mask_function,
            allow_is_causal_skip=False,
            dtype=dtype,
            config=config,
            device=query_positions.device,
        )

    def for_layer_type(layer_type: str):
        if layer_type != "sliding_attention":
            return build(predicate)
        return build(and_masks(predicate, sliding_window(config.sliding_window, query_positions, key_positions)))

    layer_types = getattr(config, "layer_types", None)
    if layer_types is not None:
        return {layer_type: for_layer_type(layer_type) for layer_type in set(layer_types)}
    has_window = getattr(config, "sliding_window", None) is not None
    return for_layer_type("sliding_attention" if has_window else "full_attention")


def create_window_mask(
    config: PreTrainedConfig, window: Window, is_real: torch.Tensor, length: int, dtype: torch.dtype
):
    """
    The mask of one decoding step: a query sees slots of its own row alone, see [`Window`].

    Args:
        config ([`PreTrainedConfig`]): Configuration of the language model.
        window ([`Window`]): Slots of each query, and what it sees.
        is_real (`torch.BoolTensor` of shape `(rows, context_length)`): `False` where the context is padding.
        length (`int`): Number of slots that the cache returns.
        dtype (`torch.dtype`): Type of an additive mask.
    """
    is_visible = torch.nn.functional.pad(is_real, (0, length - is_real.shape[1]), value=True)

    def as_window_says(batch_idx, head_idx, q_idx, kv_idx):
        slot = window.slots[batch_idx, q_idx]
        is_known = (kv_idx < window.num_seen[batch_idx, q_idx]) & is_visible[batch_idx, kv_idx]
        # Padding sees itself too, as a query that sees nothing would give NaN.
        return is_known | ((kv_idx >= window.first_slots[batch_idx, q_idx]) & (kv_idx <= slot))

    key_positions = torch.arange(length, device=window.slots.device).expand(len(window.slots), -1)
    return create_attention_mask(config, as_window_says, window.positions, key_positions, dtype)
