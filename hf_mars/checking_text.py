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
        `ValueError`: If it holds half of a surrogate pair, which tokenizers refuse.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"`{name}` holds half of a surrogate pair at character {error.start}, which is no character: remove it."
        ) from error
    return text
