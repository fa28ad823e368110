"""Arguments of the forward with an entry for each row, which must follow the rows."""

import functools
from typing import Any

import torch
from transformers import PreTrainedModel


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
    """
    hooks = (hook for module in model.modules() for hook in module._forward_pre_hooks.values())
    for hook in hooks:
        if isinstance(hook, functools.partial):
            given = {name: hook.keywords[name] for name in PEFT_ARGUMENTS if hook.keywords.get(name) is not None}
            if given:
                return given
    return {}
