"""Whether answers to word problems end on the right number: a metric for `evaluate.load`."""

import re

import datasets
import evaluate
from evaluate.utils.file_utils import add_start_docstrings


DESCRIPTION = """
Share of answers that end on the same number as their reference. The number of a text is the one after its last `####`
or "answer is" (after the last `=` of that sentence), else the last one in it. Commas between thousands and dollar
signs are left out, and numbers are compared as numbers. It scores GSM8K and its kin.
"""

INPUTS_DESCRIPTION = """
Args:
    predictions (`list[str]`): Answers, with or without the steps that lead to them.
    references (`list[str]`): Solutions, or the numbers alone.
    use_aggregator (`bool`, *optional*, defaults to `True`): `False` returns a `bool` for each answer.

Returns:
    `dict` with `accuracy`: between 0 and 1, or `list[bool]`.

Examples:

    >>> final_number = evaluate.load("final_number")
    >>> final_number.compute(predictions=["9 * 2 = $18 a day", "It is 3."], references=["#### 18", "4"])
    {'accuracy': 0.5}
"""

NUMBER = r"-?\$?\d[\d,]*(?:\.\d+)?"


@add_start_docstrings(DESCRIPTION, INPUTS_DESCRIPTION)
class FinalNumber(evaluate.Metric):
    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description=DESCRIPTION,
            citation="",
            inputs_description=INPUTS_DESCRIPTION,
            features=datasets.Features(
                {"predictions": datasets.Value("string"), "references": datasets.Value("string")}
            ),
            reference_urls=["https://huggingface.co/datasets/openai/gsm8k"],
        )

    def _compute(self, predictions, references, use_aggregator=True):  # pyrefly: ignore[bad-override]  # called by keyword
        correct = [is_same_number(*pair) for pair in zip(predictions, references, strict=True)]
        return {"accuracy": sum(correct) / len(correct) if use_aggregator else correct}


def extract_number(text: str) -> float | None:
    """
    The number after the last `####` or "answer is" (and after the last `=` of that sentence), else the last number of
    the text; `None` if there is none. Commas between thousands and a dollar sign are left out.
    """
    stated = re.findall(r"(?:####|[Aa]nswer is)(.*?)(?:\n|\. |\Z)", text)
    found = re.findall(NUMBER, stated[-1].split("=")[-1])[:1] if stated else []
    found = found or re.findall(NUMBER, text)
    return float(re.sub(r"[$,]", "", found[-1])) if found else None


def is_same_number(text: str, answer: str) -> bool:
    """Whether the text ends on the number that the reference answer ends on."""
    number, expected = extract_number(text), extract_number(answer)
    return number is not None and expected is not None and abs(number - expected) < 1e-6
