"""Checks of what a user sets, for the engine and for a request."""

from numbers import Real
from typing import Any


__all__ = ["check_number", "check_switch"]


def check_number(value: Any, name: str, at_least: float, at_most: float) -> float:
    """
    Raises:
        `TypeError`: If it is no number.
        `ValueError`: If it is out of range.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"`{name}` must be a number, got {value!r}.")
    number: Any = value  # not converted: a large integer is no float
    if not at_least <= number <= at_most:
        raise ValueError(f"`{name}` must be between {at_least:g} and {at_most:g}, got {value!r}.")
    return number


def check_switch(value: Any, name: str) -> bool:
    """
    Raises:
        `TypeError`: If it is neither true nor false. Over HTTP vLLM turns these into 1 and 0.
    """
    if not isinstance(value, Real) or value not in (0, 1):
        raise TypeError(f"`{name}` must be true or false, got {value!r}.")
    return bool(value)
