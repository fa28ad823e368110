"""Rotary embeddings that change for a whole forward with the largest position in it."""

import torch
from transformers import PreTrainedConfig


__all__ = ["depends_on_forward", "get_switch_length"]


def get_switch_length(config: PreTrainedConfig) -> int | None:
    """
    The length up to which the rotary embedding of a model is the same in every forward.

    With `"longrope"` (Phi-3) all frequencies change once a position of the forward lies beyond the original context,
    with `"dynamic"` (NTK) they change with every such position. Other scalings do not look at the forward.

    Args:
        config ([`PreTrainedConfig`]): Configuration of the language model.

    Returns:
        `int`, *optional*: `None` where the embedding never changes.
    """
    lengths = []
    for parameters in list_rope_parameters(config):
        rope_type = parameters.get("rope_type", "default")
        if rope_type == "longrope":
            lengths.append(parameters.get("original_max_position_embeddings", config.max_position_embeddings))
        elif "dynamic" in rope_type:
            lengths.append(config.max_position_embeddings)
    return min(lengths, default=None)


def depends_on_forward(
    config: PreTrainedConfig, context_length: int, max_length: int, attention_mask: torch.Tensor | None
) -> bool:
    """
    Whether what a forward of several columns computes for a token may differ from what a forward of one computes,
    since the largest position in it, a mask's or another row's, changes the rotary embedding of all.

    Args:
        config ([`PreTrainedConfig`]): Configuration of the language model.
        context_length (`int`): Slots before the first generated token.
        max_length (`int`): Slots at most.
        attention_mask (`torch.LongTensor` of shape `(batch_size, context_length)`, *optional*): 0 where padded.
    """
    switch = get_switch_length(config)
    if switch is None or max_length <= switch:
        return False
    shortest = context_length if attention_mask is None else int(attention_mask.sum(-1).min())
    # Beyond its switch, longrope does not change any more.
    is_dynamic = any("dynamic" in each.get("rope_type", "default") for each in list_rope_parameters(config))
    return is_dynamic or shortest <= switch


def list_rope_parameters(config: PreTrainedConfig) -> list[dict]:
    """The parameters of every rotary embedding: one, or one a layer type."""
    parameters = getattr(config, "rope_parameters", None) or {}
    nested = [values for values in parameters.values() if isinstance(values, dict)]
    return nested or [parameters]
