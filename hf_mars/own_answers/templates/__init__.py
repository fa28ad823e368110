"""Prompts made by templates, for machines without access to the Hub."""

import random
from collections.abc import Callable

from datasets import Dataset

from ...evaluation.tasks.word_problems import HELD_OUT_SEED, NUM_RESERVED, make_word_problems
from .chat import draw_chat, draw_conditions
from .code import draw_code
from .problems import draw_problem
from .rewriting import draw_rewriting


__all__ = ["NUM_PROMPTS", "make_prompts"]

NUM_PROMPTS = 2000
MAX_TRIES = 10  # for each prompt
# Kinds of prompts, and the share of each.
KINDS: dict[str, tuple[Callable[[random.Random], str], float]] = {
    "chat": (draw_chat, 0.25),
    "conditions": (draw_conditions, 0.15),
    "problems": (draw_problem, 0.2),
    "code": (draw_code, 0.2),
    "rewriting": (draw_rewriting, 0.1),
}


def make_prompts(num_prompts: int = NUM_PROMPTS, seed: int = 0) -> Dataset:
    """
    Distinct prompts: chat, requests with conditions, word problems, code, and texts to rewrite. A tenth is of the
    templates of the task `word_problems`, without the problems that it holds out; no item of another evaluation task
    is among them.

    Args:
        num_prompts (`int`, *optional*, defaults to 2000): How many.
        seed (`int`, *optional*, defaults to 0): The same seed makes the same prompts.

    Returns:
        [`~datasets.Dataset`] with the columns `prompt`, a list of one chat message, and `kind`.

    Raises:
        `ValueError`: If `num_prompts` is below 1, or more than the templates make.
    """
    if num_prompts < 1:
        raise ValueError(f"`num_prompts` must be at least 1, got {num_prompts}.")
    generator, rows, taken = random.Random(seed), [], set()
    for kind, (draw, share) in KINDS.items():
        wanted, tries = round(share * num_prompts), 0
        while wanted > 0:
            tries += 1
            if tries > MAX_TRIES * share * num_prompts + 100:
                raise ValueError(f"`num_prompts` is {num_prompts}, and the templates make no more of {kind!r}.")
            text = draw(generator)
            if text not in taken:
                taken.add(text)
                rows.append({"prompt": [{"role": "user", "content": text}], "kind": kind})
                wanted -= 1
    held_out = make_word_problems(NUM_RESERVED, seed=HELD_OUT_SEED)
    rest = make_word_problems(max(num_prompts - len(rows), 0), seed=seed, exclude=held_out)
    rows += [{"prompt": prompt, "kind": "word_problems"} for prompt in rest["prompt"]] if len(rest) else []
    generator.shuffle(rows)
    return Dataset.from_list(rows[:num_prompts])
