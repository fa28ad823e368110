"""What multi-token decoding does not do, refused by name."""

from collections.abc import Callable
from typing import Any

from transformers import PreTrainedModel

from .attention import WINDOW_ATTENTION
from .gated_adapter import has_gated_adapter


__all__ = ["check_adapter", "check_exact", "check_supported"]

OTHER_STRATEGIES = (
    "assistant_early_exit",
    "assistant_model",
    "constraints",
    "custom_generate",
    "dola_layers",
    "force_words_ids",
    "penalty_alpha",
    "prompt_lookup_num_tokens",
    "use_mtp",
)
NOT_AVAILABLE = ("output_attentions", "output_hidden_states", "token_healing")
CACHES = (None, "dynamic", "static")


def check_supported(lookup: Callable[[str], Any]) -> None:
    """
    Check a call of `generate` with `mars_*` arguments.

    Args:
        lookup (`Callable[[str], Any]`): From the name of an argument to its value, `None` where it is not set.

    Raises:
        `ValueError`: If something would change the result that multi-token decoding leaves out; the message names it.
    """
    for name in OTHER_STRATEGIES:
        if lookup(name):
            raise ValueError(
                f"`{name}` selects another decoding strategy: leave it out, or leave out `mars_threshold`."
            )
    for name in ("num_beams", "num_beam_groups"):
        if (lookup(name) or 1) > 1:
            raise ValueError(f"`{name}` must be 1 with `mars_threshold`: there is no beam search over several tokens.")
    for name in NOT_AVAILABLE:
        if lookup(name):
            raise ValueError(f"`{name}` is not available with `mars_threshold`: leave it out.")
    if lookup("cache_implementation") not in CACHES:
        raise ValueError(
            f"`cache_implementation` must be one of {CACHES} with `mars_threshold`, got "
            f"{lookup('cache_implementation')!r}: rows that advance independently need a cache of their own."
        )


def check_exact(model: PreTrainedModel, lookup: Callable[[str], Any]) -> None:
    """
    Check a call with `mars_verify="exact"`.

    Args:
        model ([`PreTrainedModel`]): The language model inside.
        lookup (`Callable[[str], Any]`): From the name of an argument to its value, `None` where it is not set.

    Raises:
        `ValueError`: If a forward could not be that of plain decoding.
    """
    hint = "leave it out, or use `mars_verify=True`."
    if lookup("cache_implementation") == "static":
        raise ValueError(f"`cache_implementation='static'` is not available with `mars_verify='exact'`: {hint}")
    if lookup("prefill_chunk_size") is not None:
        raise ValueError(f"`prefill_chunk_size` is not available with `mars_verify='exact'`: {hint}")
    if lookup("use_cache") is False:
        raise ValueError(f"`use_cache=False` is not available with `mars_verify='exact'`: {hint}")
    if has_gated_adapter(model):
        raise ValueError(f"An adapter on masks alone is not available with `mars_verify='exact'`: {hint}")
    if model.config._attn_implementation == WINDOW_ATTENTION:
        raise ValueError(
            "`mars_verify='exact'` needs the model for itself, and another call or a server decodes with it: wait for "
            "its end, or use `mars_verify=True`."
        )
    if model.config._attn_implementation != "sdpa":
        raise ValueError(
            f"`mars_verify='exact'` needs the attention backend 'sdpa', not {model.config._attn_implementation!r}: "
            "load the model with `attn_implementation='sdpa'`, or use `mars_verify=True`."
        )


def check_adapter(model: PreTrainedModel) -> None:
    """
    Check the PEFT adapter that is active in a call.

    Args:
        model ([`PreTrainedModel`]): The language model inside.

    Raises:
        `ValueError`: If it learns a prompt, which is put before the tokens of a forward.
    """
    # `PeftModel.generate` has the model prepare its inputs with a method of the PEFT model.
    adapted = getattr(model.prepare_inputs_for_generation, "__self__", None)
    config = getattr(adapted, "active_peft_config", None)
    if getattr(config, "is_prompt_learning", False):
        raise ValueError(
            f"The adapter is a {type(config).__name__}, and prompt learning is not available with several tokens a "
            "forward: its virtual tokens stand before the tokens of every one. Leave `mars_*` out (a drafter takes "
            "`mars_block_size=1`), or use a LoRA adapter."
        )
