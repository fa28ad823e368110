"""Whether answers follow instructions that rules can check: a metric for `evaluate.load`."""

from typing import Any

import datasets
import evaluate
from eval_framework.tasks.ifeval.instructions_registry import INSTRUCTION_DICT  # From: llm-eval-framework
from evaluate.utils.file_utils import add_start_docstrings


DESCRIPTION = """
Share of answers that follow every instruction of their prompt, as they stand: the strict accuracy by prompt of IFEval,
with the verifiers of `llm-eval-framework`. Two kinds of instruction, `length_constraints:number_sentences` and
`change_case:capital_word_frequency`, need sentence models that are downloaded from a network.
"""

CITATION = """
@article{zhou2023instruction,
  title={Instruction-Following Evaluation for Large Language Models},
  author={Zhou, Jeffrey and Lu, Tianjian and Mishra, Swaroop and Brahma, Siddhartha and Basu, Sujoy and Luan, Yi and
    Zhou, Denny and Hou, Le},
  journal={arXiv preprint arXiv:2311.07911},
  year={2023}
}
"""

INPUTS_DESCRIPTION = """
Args:
    predictions (`list[str]`): Answers.
    references (`list[dict]`):
        Rows of IFEval: `prompt`, `instruction_id_list`, and `kwargs`, a `dict` for each instruction. Other columns,
        and arguments that are `None`, are left out.
    use_aggregator (`bool`, *optional*, defaults to `True`): `False` returns a `bool` for each answer.

Returns:
    `dict` with `accuracy`: between 0 and 1, or `list[bool]`.

Examples:

    >>> instruction_following = evaluate.load("instruction_following")
    >>> row = {"prompt": "Use no comma.", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}
    >>> instruction_following.compute(predictions=["None here", "One, two"], references=[row, row])
    {'accuracy': 0.5}
"""


@add_start_docstrings(DESCRIPTION, INPUTS_DESCRIPTION)
class InstructionFollowing(evaluate.Metric):
    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description=DESCRIPTION,
            citation=CITATION,
            inputs_description=INPUTS_DESCRIPTION,
            features=datasets.Features({"predictions": datasets.Value("string"), "references": datasets.Json()}),
            reference_urls=["https://huggingface.co/datasets/google/IFEval"],
        )

    def _compute(self, predictions, references, use_aggregator=True):  # pyrefly: ignore[bad-override]  # called by keyword
        correct = [follows_all(row, answer) for row, answer in zip(references, predictions, strict=True)]
        return {"accuracy": sum(correct) / len(correct) if use_aggregator else correct}


def follows_all(row: dict, answer: str) -> bool:
    """Whether the answer follows every instruction of the row, as it stands (strict)."""
    if not answer.strip():
        return False
    for name, arguments in zip(row["instruction_id_list"], row["kwargs"], strict=True):
        instruction: Any = INSTRUCTION_DICT[name](name)  # each kind has arguments of its own
        instruction.build_description(**{key: value for key, value in arguments.items() if value is not None})
        if "prompt" in (instruction.get_instruction_args() or {}):
            instruction.build_description(prompt=row["prompt"])
        if not instruction.check_following(answer):
            return False
    return True
