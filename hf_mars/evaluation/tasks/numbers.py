"""The number that an answer to a word problem ends on."""

import re


__all__ = ["extract_number", "is_same_number"]

NUMBER = r"-?\$?\d[\d,]*(?:\.\d+)?"


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
