"""Arguments of the forward with an entry for each row, which must follow the rows."""

import functools
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from .gated_adapter import has_gated_adapter


__all__ = ["check_row_arguments", "get_peft_arguments"]

PEFT_ARGUMENTS = ("adapter_names", "alora_offsets")


def check_row_arguments(model_kwargs: dict[str, Any], batch_size: int) -> None:
    """
    Args:
        model_kwargs (`dict`): What is passed on to every forward.
        batch_size (`int`): Number of rows.

    Raises:
        `ValueError`: If one of them has an entry for each row or token, such as `token_type_ids`: rows leave, and
            every forward has other columns.
    """
    for name, value in model_kwargs.items():
        has_rows = isinstance(value, torch.Tensor) and value.ndim > 0 and len(value) == batch_size
        if has_rows or (isinstance(value, (list, tuple)) and len(value) == batch_size):
            raise ValueError(
                f"`{name}` has an entry for each row, which is not available with `mars_threshold`: rows advance at "
                "their own pace, and each forward reads other columns. Leave it out."
            )


def get_peft_arguments(model: PreTrainedModel) -> dict[str, Any]:
    """
    The arguments with an entry for each row that PEFT keeps from `generate`: it puts them into hooks of its layers
    while [`~peft.PeftModel.generate`] runs.

    Raises:
        `ValueError`: If one of them is for the last columns of a forward alone (activated LoRA).
    """
    if not hasattr(model, "peft_config"):  # PEFT sets it on the model that it gives layers to
        return {}
    arguments = next(filter(None, map(find_peft_arguments, model.modules())), {})
    if has_gated_adapter(model):
        if "adapter_names" in arguments:
            raise ValueError(
                "`adapter_names` is not available with `mars_threshold` while the active adapter acts on masks alone: "
                "choose one for all rows with `set_adapter`."
            )
        return {}  # its columns are told without PEFT
    if any(offset is not None for offset in arguments.get("alora_offsets", ())):
        raise ValueError(
            "The adapter is an activated LoRA (`alora_invocation_tokens`), which is not available with "
            "several tokens a forward: it counts the columns of plain generation. Leave `mars_*` out (a drafter takes "
            "`mars_block_size=1`), or use a LoRA adapter."
        )
    return arguments


def find_peft_arguments(module: nn.Module) -> dict[str, Any]:
    """Those that PEFT has put into the hooks of one layer."""
    keywords = (hook.keywords for hook in module._forward_pre_hooks.values() if isinstance(hook, functools.partial))
    return {name: each[name] for each in keywords for name in PEFT_ARGUMENTS if each.get(name) is not None}
