"""What multi-token decoding does not do, refused by name."""

from collections.abc import Callable
from typing import Any


__all__ = ["check_supported"]

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
