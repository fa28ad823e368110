"""Errors, and what they name, in one line."""

from collections.abc import Iterable


__all__ = ["one_line", "quote"]


def one_line(error: Exception) -> str:
    """
    What an error says, in one line. A missing key alone would say too little, the number of a system's error nothing.

    Args:
        error (`Exception`): The error.
    """
    kind, text = type(error).__name__, " ".join(str(error).split())
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    return f"{kind} {text}".strip() if not text or isinstance(error, KeyError) else text


def quote(names: Iterable[str]) -> str:
    """Names in a row, each in quotes: some hold commas or spaces."""
    return ", ".join(map(repr, names))
