"""What is asked, and which answers are right."""

from collections.abc import Callable
from dataclasses import dataclass


__all__ = ["Task"]


@dataclass
class Task:
    """
    Prompts and a scorer.

    Args:
        name (`str`): As tables show it.
        prompts (`list[list[dict]]`): Chat messages, one list an example.
        is_correct (`Callable[[int, str], bool]`): From an example's index and an answer to whether it is right.
        dataset_id (`str`, *optional*): Hub id of the data set.
        note (`str`, *optional*): What a reader of the score has to know.
    """

    name: str
    prompts: list[list[dict[str, str]]]
    is_correct: Callable[[int, str], bool]
    dataset_id: str | None = None
    note: str | None = None


def user_prompt(text: str) -> list[dict[str, str]]:
    """A conversation in which the user asks this."""
    return [{"role": "user", "content": text}]
