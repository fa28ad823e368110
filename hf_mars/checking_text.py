"""Text that has an encoding, whichever door it comes through."""

__all__ = ["check_text"]


def check_text(text: str, name: str) -> str:
    """
    Text from outside, if it can be encoded.

    Args:
        text (`str`): The text.
        name (`str`): The argument that holds it.

    Returns:
        `str`: The text.

    Raises:
        `ValueError`: If it holds half of a surrogate pair, which tokenizers refuse. Python reads bytes of a command
            line that are not UTF-8 as such.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"`{name}` has half of a surrogate pair or a byte that is not UTF-8 at character {error.start}: remove it."
        ) from error
    return text
