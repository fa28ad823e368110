"""What arguments of a command may be."""

import argparse
import math
from collections.abc import Callable
from pathlib import Path


__all__ = ["folder", "integer", "number", "url"]


def integer(at_least: int, at_most: int | None = None) -> Callable[[str], int]:
    """
    A type for `add_argument`.

    Args:
        at_least (`int`): The smallest that is accepted.
        at_most (`int`, *optional*): The largest that is accepted.
    """
    words = f"of at least {at_least}" if at_most is None else f"between {at_least} and {at_most}"

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = at_least - 1
        if value < at_least or (at_most is not None and value > at_most):
            raise argparse.ArgumentTypeError(f"must be an integer {words}, got {text}")
        return value

    return parse


def number(above: float = -math.inf, at_least: float = -math.inf, at_most: float = math.inf) -> Callable[[str], float]:
    """
    A type for `add_argument`. Infinity and NaN are no numbers here.

    Args:
        above (`float`, *optional*): What it must be greater than.
        at_least (`float`, *optional*): The smallest that is accepted.
        at_most (`float`, *optional*): The largest that is accepted.
    """
    bounds = {"above": above, "at least": at_least, "at most": at_most}
    words = " and ".join(f"{word} {bound:g}" for word, bound in bounds.items() if math.isfinite(bound))

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and above < value and at_least <= value <= at_most):
            raise argparse.ArgumentTypeError(f"must be a number, {words}, got {text}")
        return value

    return parse


def folder(text: str) -> Path:
    """A type for `add_argument`: a directory, which may be made later."""
    path = Path(text)
    file = next((each for each in (path, *path.parents) if each.is_file()), None)
    if file is not None:
        raise argparse.ArgumentTypeError(f"must be a directory, or a path where one can be made, but {file} is a file")
    return path


def url(text: str) -> str:
    """A type for `add_argument`: the address of a server."""
    if not text.startswith(("http://", "https://")):
        raise argparse.ArgumentTypeError(f"must begin with http:// or https://, got {text}")
    return text
