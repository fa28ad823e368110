"""What a request sets for itself: `SamplingParams(extra_args=...)`, or `vllm_xargs` over HTTP."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .checking import check_number, check_switch


__all__ = ["RequestOptions"]

PREFIX = "mars"


@dataclass(frozen=True)
class RequestOptions:
    """
    How one request wants to be decoded. Neither changes a token of its answer.

    Args:
        is_wanted (`bool`, *optional*, defaults to `True`): Whether it may get several tokens a forward.
        threshold (`float`, *optional*): Probability from which on a draft is proposed; the engine's by default.
    """

    is_wanted: bool = True
    threshold: float | None = None

    @classmethod
    def from_extra_args(cls, extra_args: Mapping[str, Any] | None) -> "RequestOptions":
        """
        Read `mars` and `mars_threshold`.

        Raises:
            `TypeError`: If one has the wrong type.
            `ValueError`: If one is out of range, or another name begins with `mars`.
        """
        given = {name: value for name, value in (extra_args or {}).items() if name.startswith(PREFIX)}
        is_wanted = check_switch(given.pop("mars", True), "mars")
        threshold = given.pop("mars_threshold", None)
        if threshold is not None:
            check_number(threshold, "mars_threshold", at_least=0, at_most=1)
        if given:
            raise ValueError(f"A request takes `mars` and `mars_threshold`, not {sorted(given)}.")
        return cls(is_wanted, threshold)
