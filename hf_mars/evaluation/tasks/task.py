"""What is asked, and which answers are right."""

from dataclasses import dataclass
from typing import Any

from ..metrics import are_correct


__all__ = ["Task"]


@dataclass
class Task:
    """
    Prompts and a scorer.

    Args:
        name (`str`): As tables show it.
        prompts (`list[list[dict]]`): Chat messages, one list an example.
        metric (`str`): Name of the folder of `hf_mars/evaluation/metrics` whose scorer tells right from wrong.
        references (`list`): What it compares the answer to each prompt with.
        dataset_id (`str`, *optional*): Hub id of the data set.
        note (`str`, *optional*): What a reader of the score has to know.
    """

    name: str
    prompts: list[list[dict[str, str]]]
    metric: str
    references: list[Any]
    dataset_id: str | None = None
    note: str | None = None

    def score(self, answers: list[str]) -> list[bool]:
        """
        Which answers are right.

        Args:
            answers (`list[str]`): To all prompts, or to the first of them.
        """
        return are_correct(self.metric, answers, self.references[: len(answers)])


def user_prompt(text: str) -> list[dict[str, str]]:
    """A conversation in which the user asks this."""
    return [{"role": "user", "content": text}]
