"""Tasks that run without access to the Hub."""

from collections.abc import Callable

from ...one_line import quote
from .gsm8k import load_gsm8k
from .gsm_symbolic import load_gsm_symbolic
from .humaneval import load_humaneval
from .ifeval import load_ifeval
from .task import Task
from .word_problems import load_word_problems


__all__ = ["TASKS", "Task", "load_task"]

TASKS: dict[str, Callable[..., Task]] = {
    "word_problems": load_word_problems,
    "gsm8k": load_gsm8k,
    "gsm_symbolic": load_gsm_symbolic,
    "humaneval": load_humaneval,
    "ifeval": load_ifeval,
}


def load_task(name: str, limit: int | None = None) -> Task:
    """
    Load a task.

    Args:
        name (`str`): One of [`TASKS`].
        limit (`int`, *optional*): How many of its examples.

    Raises:
        `ValueError`: If there is no such task, or `limit` is not positive.
    """
    if name not in TASKS:
        raise ValueError(f"There is no task {name!r}; there are {quote(TASKS)}.")
    if limit is not None and limit < 1:
        raise ValueError(f"`limit` must be at least 1, got {limit}.")
    return TASKS[name](limit=limit)
