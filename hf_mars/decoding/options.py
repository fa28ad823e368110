"""The `mars_*` arguments of `generate`, checked once."""

import difflib
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from numbers import Integral, Real
from typing import Any

import torch
from transformers import PreTrainedModel

from .acceptance import METRICS


__all__ = ["DecodingOptions", "Mode", "Threshold"]

Threshold = float | torch.Tensor | Callable[[], float | torch.Tensor]
FIXED_THRESHOLD = 0.5  # of verified decoding where no step can be planned
NAMES = ("mars_threshold", "mars_block_size", "mars_verify", "mars_metric")


class Mode(StrEnum):
    """
    How a forward adds tokens to a sequence. The values are the names that results go by.

    - `PLAIN`: the model's own next token, one a forward.
    - `LOSSY`: that, and the masks whose confidence passes a threshold.
    - `VERIFY`: several tokens too, each of them checked: the tokens of plain decoding.
    """

    PLAIN = "AR"
    LOSSY = "lossy"
    VERIFY = "verify"


@dataclass(frozen=True)
class DecodingOptions:
    """
    How to decode several tokens a forward.

    Args:
        threshold (`float`, `torch.Tensor` or `Callable`):
            Accept a mask's token while its confidence is at least this (tau of section 3.4). One number, a tensor with
            one number a row, or a function without arguments that returns either and is called at every step.
        block_size (`int`):
            Most tokens a forward may add to a row; `block_size - 1` masks are appended.
        mode ([`Mode`]):
            `PLAIN` where no mask can ever be accepted.
        metric (`str`):
            What the confidence is, see [`confidence`].
        mask_token_id (`int`):
            Id of the mask token.
        is_exact (`bool`, *optional*, defaults to `False`):
            Whether forwards compute each token to the bit as plain decoding does, see [`ExactForward`].
        is_planned (`bool`, *optional*, defaults to `False`):
            Whether a [`Planner`] says how far each step drafts; then the threshold is 0, and every mask is a draft.
    """

    threshold: Threshold
    block_size: int
    mode: Mode
    metric: str
    mask_token_id: int
    is_exact: bool = False
    is_planned: bool = False

    @classmethod
    def from_arguments(cls, model: PreTrainedModel, arguments: dict[str, Any]) -> "DecodingOptions":
        """
        Check the `mars_*` arguments of a call, and fill the gaps from the model's `config.mars`.

        Returns:
            [`DecodingOptions`]

        Raises:
            `TypeError`: If an argument has the wrong type.
            `ValueError`: If an argument is unknown or out of range, or the model has no `mars` entry.
        """
        for name in arguments:
            if name not in NAMES:
                similar = difflib.get_close_matches(name, NAMES, n=1)
                hint = f"did you mean `{similar[0]}`?" if similar else f"known are {', '.join(NAMES)}."
                raise ValueError(f"`{name}` is not an argument of `generate`: {hint}")
        arguments = {name: value for name, value in arguments.items() if value is not None}
        mars = getattr(model.config, "mars", None)
        if not mars:
            raise ValueError(
                f"{sorted(arguments)} need a model trained with MARS: its `config.mars` is missing. If it was trained "
                "so, call `hf_mars.enable_mars(model, mask_token_id=..., block_size=...)` first."
            )
        verify = arguments.get("mars_verify", False)
        if not isinstance(verify, bool) and verify != "exact":
            raise TypeError(f"`mars_verify` must be a bool or 'exact', got {verify!r}.")
        metric = arguments.get("mars_metric", "probability")
        if metric not in METRICS:
            raise ValueError(f"`mars_metric` must be one of {METRICS}, got {metric!r}.")
        threshold = arguments.get("mars_threshold")
        is_planned = threshold is None and verify is True
        if threshold is None:
            if not verify or metric != "probability":
                names = " and ".join(f"`{name}`" for name in sorted(arguments))
                raise ValueError(f"Without `mars_threshold`, {names} would change nothing: pass it too.")
            # Drafts are checked, so the threshold trades only speed.
            threshold = FIXED_THRESHOLD if verify == "exact" else 0.0
        if not callable(threshold):
            threshold = check_threshold(threshold, metric)
            threshold = threshold.cpu() if isinstance(threshold, torch.Tensor) else threshold
        block_size = check_block_size(arguments.get("mars_block_size", mars["block_size"]))
        mode = Mode.VERIFY if verify else Mode.LOSSY
        return cls(
            threshold=threshold,
            block_size=block_size,
            mode=mode if accepts_masks(threshold, block_size, metric) else Mode.PLAIN,
            metric=metric,
            mask_token_id=mars["mask_token_id"],
            is_exact=verify == "exact",
            is_planned=is_planned and block_size > 1,
        )

    def without_plan(self) -> "DecodingOptions":
        """The same with steps of a fixed shape."""
        return replace(self, threshold=FIXED_THRESHOLD, is_planned=False) if self.is_planned else self

    def read_threshold(self, batch_size: int) -> float | torch.Tensor:
        """
        The threshold of this step: a float, or a tensor with a number for each of `batch_size` rows.

        Raises:
            `ValueError`: If the tensor has another number of entries.
        """
        threshold = check_threshold(self.threshold(), self.metric) if callable(self.threshold) else self.threshold
        if not isinstance(threshold, torch.Tensor):
            return threshold
        if batch_size % len(threshold) != 0:
            raise ValueError(
                f"`mars_threshold` has {len(threshold)} numbers for a batch of {batch_size}: pass one for each row."
            )
        return threshold.repeat_interleave(batch_size // len(threshold))  # `num_return_sequences` repeats rows


def accepts_masks(threshold: Threshold, block_size: int, metric: str) -> bool:
    """Whether a mask may ever be accepted; if not, the plain path does the same without masks."""
    if block_size == 1:
        return False
    if metric == "entropy" or callable(threshold):
        return True
    return bool((torch.as_tensor(threshold) < 1).any())


def check_threshold(threshold: Any, metric: str) -> float | torch.Tensor:
    """A float or a 1-D tensor of floats in range, or an error that names `mars_threshold`."""
    upper = None if metric == "entropy" else 1
    allowed = "at least 0" if upper is None else "between 0 and 1"
    if isinstance(threshold, torch.Tensor) and threshold.ndim == 0:
        threshold = threshold.item()
    if isinstance(threshold, torch.Tensor):
        if threshold.ndim != 1 or not len(threshold) or threshold.dtype == torch.bool or threshold.is_complex():
            raise ValueError(
                "`mars_threshold` as a tensor must have one number for each row, got the shape "
                f"{tuple(threshold.shape)} and the type {threshold.dtype}."
            )
        threshold = threshold.float()
        in_range = (threshold >= 0) if upper is None else (threshold >= 0) & (threshold <= upper)
        if not in_range.all():
            raise ValueError(f"`mars_threshold` must be {allowed} in every row, got {threshold.tolist()}.")
        return threshold
    if isinstance(threshold, bool) or not isinstance(threshold, Real):
        raise TypeError(
            f"`mars_threshold` must be a number {allowed}, a tensor with one for each row, or a function that returns "
            f"either, got {threshold!r}."
        )
    # Written so that NaN fails too.
    value = float(threshold)
    if not value >= 0 or (upper is not None and not value <= upper):
        raise ValueError(f"`mars_threshold` must be {allowed}, got {value}.")
    return value


def check_block_size(block_size: Any) -> int:
    """A positive integer, or an error that names `mars_block_size`."""
    if isinstance(block_size, bool) or not isinstance(block_size, Integral):
        raise TypeError(f"`mars_block_size` must be an integer, got {block_size!r}.")
    if block_size < 1:
        raise ValueError(f"`mars_block_size` must be at least 1, got {block_size}.")
    return int(block_size)
