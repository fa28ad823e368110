"""Symbolic variants of grade-school word problems, drawn without end by `reasoning-gym`."""

from ...extras import check_installed
from .task import Task, user_prompt


__all__ = ["load_gsm_symbolic"]


def load_gsm_symbolic(limit: int | None = None, seed: int = 0) -> Task:
    """
    Problems drawn with a seed, 100 by default.

    Raises:
        `ImportError`: If `reasoning-gym` is not installed.
    """
    check_installed("eval", "reasoning_gym")
    import reasoning_gym

    problems = list(reasoning_gym.create_dataset("gsm_symbolic", size=limit or 100, seed=seed))
    return Task(
        name="GSM symbolic",
        prompts=[user_prompt(problem["question"]) for problem in problems],
        metric="final_number",
        references=[problem["answer"] for problem in problems],
        note="Most templates resemble GSM8K test items.",
    )
