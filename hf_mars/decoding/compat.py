"""
Names of transformers and torch that are not public, for decoding.

Those of `GenerationMixin` are unknown to a type checker, as `PreTrainedModel` itself does not have them.

They stand here and not in `hf_mars/compat.py` because this folder is shipped alone with checkpoints. That file has the
list of all such names, with what each waits for, and a test that says which one is gone.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn
from transformers import (
    Cache,
    GenerationConfig,
    PrefixConstrainedLogitsProcessor,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.generation.utils import GenerateOutput


__all__ = [
    "can_compile",
    "can_switch_attention",
    "get_attention_backend",
    "get_forward_pre_hooks",
    "get_mask_length",
    "get_prefix_constraint",
    "is_passed_by_user",
    "optimized_for_decoding",
    "run_plain_loop",
]


def get_attention_backend(config: PreTrainedConfig) -> str | None:
    """The attention function that a model is set to."""
    return config._attn_implementation


def can_switch_attention(model: PreTrainedModel) -> bool:
    """Whether `set_attn_implementation` has an effect; where it has none, it warns at every call."""
    return model._can_set_attn_implementation()


def can_compile(model: PreTrainedModel, cache: Cache, generation_config: GenerationConfig) -> bool:
    """Whether `generate` would compile the forward: its rule about devices, quantisation and offloading."""
    return model._valid_auto_compile_criteria({"cache": cache}, generation_config)  # pyrefly: ignore[not-callable]


def optimized_for_decoding(model: PreTrainedModel) -> AbstractContextManager[None]:
    """What `generate` changes in a model while it decodes: the kernels of experts."""
    return model._optimize_model_for_decode()  # pyrefly: ignore[not-callable]


def run_plain_loop(model: PreTrainedModel, input_ids: torch.Tensor, **kwargs) -> GenerateOutput | torch.Tensor:
    """The loop of `generate` over inputs that it has prepared: a strategy of one's own cannot hand back to it."""
    return model._sample(input_ids, **kwargs)  # pyrefly: ignore[not-callable]


def get_mask_length(generation_config: GenerationConfig, default: int) -> int:
    """Length of the attention mask that `generate` dropped, as it hid nothing; it tells what a passed cache covers."""
    return vars(generation_config).get("_mask_length", default)


def is_passed_by_user(cache: Cache | None) -> bool:
    """Whether a cache is one that the user passed and wants back, not one that `generate` has made."""
    return getattr(cache, "_is_user_defined", False)


def get_prefix_constraint(
    processor: PrefixConstrainedLogitsProcessor,
) -> tuple[Callable[[int, torch.Tensor], list[int]], int]:
    """The user's `prefix_allowed_tokens_fn` and the number of sequences of each prompt."""
    return processor._prefix_allowed_tokens_fn, processor._num_beams


def get_forward_pre_hooks(module: nn.Module) -> list[Callable[..., Any]]:
    """The hooks of a module: PEFT hands its layers the adapter of each row in them, and in no other way."""
    return list(module._forward_pre_hooks.values())
