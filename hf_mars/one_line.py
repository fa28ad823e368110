"""An error in one line."""

__all__ = ["one_line"]


def one_line(error: Exception) -> str:
    """
    What an error says, in one line; a missing key alone would say too little.

    Args:
        error (`Exception`): The error.
    """
    kind, text = type(error).__name__, " ".join(str(error).split())
    return f"{kind} {text}".strip() if not text or isinstance(error, KeyError) else text
