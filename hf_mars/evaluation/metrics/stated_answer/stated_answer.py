"""Whether answers state the right number, in the words they were taught: a metric for `evaluate.load`."""

import re

import datasets
import evaluate
from evaluate.utils.file_utils import add_start_docstrings


DESCRIPTION = """
Share of answers whose first "The answer is ..." names the same whole number as that of their reference. It is strict
about the words, and scores word problems whose solutions all end in this sentence.
"""

INPUTS_DESCRIPTION = """
Args:
    predictions (`list[str]`): Answers.
    references (`list[str]`): Solutions. One that does not state its number makes every answer wrong.
    use_aggregator (`bool`, *optional*, defaults to `True`): `False` returns a `bool` for each answer.

Returns:
    `dict` with `accuracy`: between 0 and 1, or `list[bool]`.

Examples:

    >>> stated_answer = evaluate.load("stated_answer")
    >>> stated_answer.compute(predictions=["3 * 7 = 21. The answer is 21."], references=["The answer is 21."])
    {'accuracy': 1.0}
"""


@add_start_docstrings(DESCRIPTION, INPUTS_DESCRIPTION)
class StatedAnswer(evaluate.Metric):
    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description=DESCRIPTION,
            citation="",
            inputs_description=INPUTS_DESCRIPTION,
            features=datasets.Features(
                {"predictions": datasets.Value("string"), "references": datasets.Value("string")}
            ),
        )

    def _compute(self, predictions, references, use_aggregator=True):  # pyrefly: ignore[bad-override]  # called by keyword
        correct = [is_same_answer(*pair) for pair in zip(predictions, references, strict=True)]
        return {"accuracy": sum(correct) / len(correct) if use_aggregator else correct}


def extract_answer(text: str) -> str | None:
    """The number after "The answer is", or `None`."""
    match = re.search(r"The answer is (-?\d+)", text)
    return match.group(1) if match else None


def is_same_answer(text: str, solution: str) -> bool:
    """Whether both state an answer, and the same."""
    expected = extract_answer(solution)
    return expected is not None and extract_answer(text) == expected
