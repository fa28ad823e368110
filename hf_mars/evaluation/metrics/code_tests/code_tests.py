"""Whether functions that a model completed pass their tests: a metric for `evaluate.load`."""

import re

import datasets
import evaluate
from evaluate.utils.file_utils import add_start_docstrings

from .sandbox import run_program


DESCRIPTION = """
Share of answers whose first code block (else all of it) completes a function so that it passes its tests: pass@1 of
HumanEval, for answers of a chat. An answer may repeat the function's head or give the body alone.

The code is RUN: in a process of its own, with limits on time and memory, in an empty directory, without a network.
That keeps accidents away, not a determined attacker.
"""

CITATION = """
@article{chen2021evaluating,
  title={Evaluating Large Language Models Trained on Code},
  author={Chen, Mark and Tworek, Jerry and Jun, Heewoo and Yuan, Qiming and others},
  journal={arXiv preprint arXiv:2107.03374},
  year={2021}
}
"""

INPUTS_DESCRIPTION = """
Args:
    predictions (`list[str]`): Answers.
    references (`list[dict[str, str]]`): Rows of HumanEval: `prompt`, `entry_point` and `test`.
    use_aggregator (`bool`, *optional*, defaults to `True`): `False` returns a `bool` for each answer.

Returns:
    `dict` with `accuracy`: between 0 and 1, or `list[bool]`.

Examples:

    >>> code_tests = evaluate.load("code_tests")
    >>> problem = {
    ...     "prompt": "def double(x):\\n",
    ...     "entry_point": "double",
    ...     "test": "def check(candidate):\\n    assert candidate(2) == 4\\n",
    ... }
    >>> code_tests.compute(predictions=["    return 2 * x", "    return x"], references=[problem, problem])
    {'accuracy': 0.5}
"""


@add_start_docstrings(DESCRIPTION, INPUTS_DESCRIPTION)
class CodeTests(evaluate.Metric):
    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description=DESCRIPTION,
            citation=CITATION,
            inputs_description=INPUTS_DESCRIPTION,
            features=datasets.Features({"predictions": datasets.Value("string"), "references": datasets.Json()}),
            reference_urls=["https://huggingface.co/datasets/openai/openai_humaneval"],
        )

    def _compute(self, predictions, references, use_aggregator=True):  # pyrefly: ignore[bad-override]  # called by keyword
        pairs = zip(references, predictions, strict=True)
        correct = [run_program(build_program(problem, answer)) for problem, answer in pairs]
        return {"accuracy": sum(correct) / len(correct) if use_aggregator else correct}


def build_program(problem: dict[str, str], answer: str) -> str:
    """The answer's first code block (else all of it), after what the prompt defines, and the problem's tests."""
    block = re.search(r"```[\w+-]*[ \t]*\n(.*?)(?:```|\Z)", answer, re.DOTALL)
    code = block.group(1) if block else answer
    if f"def {problem['entry_point']}" in code:
        # What stands before the function in the prompt: imports, and helpers that its tests call.
        code = problem["prompt"].split(f"def {problem['entry_point']}")[0] + "\n" + code
    else:  # the body alone
        code = problem["prompt"] + code
    return f"{code}\n\n{problem['test']}\n\ncheck({problem['entry_point']})\n"
