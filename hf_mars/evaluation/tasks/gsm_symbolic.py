"""Symbolic variants of grade-school word problems, drawn without end by `reasoning-gym`."""

from ...extras import install_command
from .numbers import is_same_number
from .task import Task, user_prompt


__all__ = ["load_gsm_symbolic"]


def load_gsm_symbolic(limit: int | None = None, seed: int = 0) -> Task:
    """
    Problems drawn with a seed, 100 by default.

    Raises:
        `ImportError`: If `reasoning-gym` is not installed.
    """
    try:
        import reasoning_gym
    except ImportError as error:
        raise ImportError(f"The task gsm_symbolic needs `{install_command('eval')}`.") from error
    problems = list(reasoning_gym.create_dataset("gsm_symbolic", size=limit or 100, seed=seed))
    return Task(
        name="GSM symbolic",
        prompts=[user_prompt(problem["question"]) for problem in problems],
        is_correct=lambda index, text: is_same_number(text, problems[index]["answer"]),
        note="Most templates resemble GSM8K test items.",
    )
