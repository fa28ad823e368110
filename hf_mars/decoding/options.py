"""The `mars_*` arguments of `generate`, checked once."""

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any

from transformers import PreTrainedModel


__all__ = ["DecodingOptions"]


@dataclass(frozen=True)
class DecodingOptions:
    """
    How to decode several tokens a forward.

    Args:
        threshold (`float`):
            Accept a mask's token while its probability is at least this, between 0 and 1 (tau of section 3.4).
        block_size (`int`):
            Most tokens a forward may add to a row; `block_size - 1` masks are appended.
        verify (`bool`):
            Whether to check every token against the model's own autoregressive choice before returning it.
        mask_token_id (`int`):
            Id of the mask token.
    """

    threshold: float
    block_size: int
    verify: bool
    mask_token_id: int

    @classmethod
    def from_arguments(cls, model: PreTrainedModel, arguments: dict[str, Any]) -> "DecodingOptions | None":
        """
        Check the `mars_*` arguments of a call, and fill the gaps from the model's `config.mars`.

        Returns:
            [`DecodingOptions`], or `None` if no `mars_*` argument is given.

        Raises:
            `TypeError`: If an argument has the wrong type.
            `ValueError`: If an argument is unknown or out of range, or the model has no `mars` entry.
        """
        arguments = {name: value for name, value in arguments.items() if value is not None}
        known = {"mars_threshold", "mars_block_size", "mars_verify"}
        for name in arguments:
            if name not in known:
                raise ValueError(f"`{name}` is not an argument of `generate`. Known are {sorted(known)}.")
        if not arguments:
            return None

        mars = getattr(model.config, "mars", None)
        if not mars:
            raise ValueError(
                f"{sorted(arguments)} need a model trained with MARS: its `config.mars` is missing. If it was trained "
                "so, call `hf_mars.enable_mars(model, mask_token_id=..., block_size=...)` first."
            )

        verify = arguments.get("mars_verify", False)
        if not isinstance(verify, bool):
            raise TypeError(f"`mars_verify` must be a bool, got {verify!r}.")
        threshold = arguments.get("mars_threshold")
        if threshold is None:
            if not verify:
                raise ValueError("`mars_block_size` has no effect without `mars_threshold`: pass both.")
            # Drafts are checked, so the threshold trades only speed.
            threshold = 0.5
        return cls(
            threshold=check_threshold(threshold),
            block_size=check_block_size(arguments.get("mars_block_size", mars["block_size"])),
            verify=verify,
            mask_token_id=mars["mask_token_id"],
        )

    @property
    def is_autoregressive(self) -> bool:
        """Whether these options mean one token a forward, which the plain path does without masks."""
        return self.block_size == 1 or self.threshold >= 1


def check_threshold(threshold: Any) -> float:
    """A number between 0 and 1, or an error that names `mars_threshold`."""
    if isinstance(threshold, bool) or not isinstance(threshold, Real):
        raise TypeError(f"`mars_threshold` must be a number between 0 and 1, got {threshold!r}.")
    if math.isnan(threshold) or not 0 <= threshold <= 1:
        raise ValueError(f"`mars_threshold` must be between 0 and 1, got {threshold}.")
    return float(threshold)


def check_block_size(block_size: Any) -> int:
    """A positive integer, or an error that names `mars_block_size`."""
    if isinstance(block_size, bool) or not isinstance(block_size, int):
        raise TypeError(f"`mars_block_size` must be an integer, got {block_size!r}.")
    if block_size < 1:
        raise ValueError(f"`mars_block_size` must be at least 1, got {block_size}.")
    return block_size
