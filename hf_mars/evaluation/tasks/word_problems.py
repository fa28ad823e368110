"""Step-by-step word problems of a few templates: narrow enough that minutes of training show."""

import random
from typing import Any

from datasets import Dataset

from .task import Task


__all__ = ["HELD_OUT_SEED", "NUM_RESERVED", "load_word_problems", "make_word_problems"]

NAMES = [
    "Ana",
    "Ben",
    "Chloe",
    "David",
    "Emma",
    "Farid",
    "Grace",
    "Hugo",
    "Iris",
    "Jonas",
    "Kim",
    "Lena",
    "Milo",
    "Nora",
]
ITEMS = ["apples", "books", "cards", "coins", "eggs", "marbles", "pencils", "shells", "stamps", "stickers"]
BOXES = ["bags", "boxes", "baskets", "packs"]

TEMPLATES = [
    (
        "{name} has {a} {boxes} with {b} {items} in each. {name} gives {c} {items} to {friend}. "
        "How many {items} does {name} have left?",
        "First, {name} has {a} * {b} = {total} {items}.\n"
        "Then, {name} gives {c} {items} to {friend}: {total} - {c} = {result}.\n"
        "The answer is {result}.",
        -1,
    ),
    (
        "{name} has {a} {boxes} with {b} {items} in each. {name} gets {c} {items} from {friend}. "
        "How many {items} does {name} have now?",
        "First, {name} has {a} * {b} = {total} {items}.\n"
        "Then, {name} gets {c} {items} from {friend}: {total} + {c} = {result}.\n"
        "The answer is {result}.",
        1,
    ),
]


HELD_OUT_SEED = 1
NUM_RESERVED = 1000  # problems that are never trained on


def load_word_problems(limit: int | None = None, seed: int = HELD_OUT_SEED) -> Task:
    """Problems that the quickstart holds out of its training, 100 by default."""
    if limit is not None and limit > NUM_RESERVED:
        raise ValueError(
            f"`limit` of the word problems must be at most {NUM_RESERVED}, got {limit}: no more of them are held out "
            "of the training."
        )
    problems = make_word_problems(limit or 100, seed=seed)
    return Task(
        name="word problems",
        prompts=list(problems["prompt"]),
        metric="stated_answer",
        references=[messages[-1]["content"] for messages in problems["completion"]],
    )


def make_word_problems(num_problems: int, seed: int = 0, exclude: Dataset | None = None) -> Dataset:
    """
    Draw distinct problems.

    Args:
        num_problems (`int`): How many.
        seed (`int`, *optional*, defaults to 0): The same seed draws the same problems.
        exclude ([`~datasets.Dataset`], *optional*): Problems that must not be drawn, such as the held-out ones.

    Returns:
        [`~datasets.Dataset`] with the columns `prompt` and `completion`, both lists of chat messages.
    """
    generator = random.Random(seed)
    taken = set() if exclude is None else {messages[0]["content"] for messages in exclude["prompt"]}
    problems = []
    while len(problems) < num_problems:
        question, solution = draw_problem(generator)
        if question not in taken:
            taken.add(question)
            problems.append(
                {
                    "prompt": [{"role": "user", "content": question}],
                    "completion": [{"role": "assistant", "content": solution}],
                }
            )
    return Dataset.from_list(problems)


def draw_problem(generator: random.Random) -> tuple[str, str]:
    """One question and its solution."""
    question, solution, sign = generator.choice(TEMPLATES)
    name, friend = generator.sample(NAMES, 2)
    a, b = generator.randint(2, 9), generator.randint(2, 9)
    total = a * b
    c = generator.randint(1, total - 1 if sign < 0 else 20)
    values: dict[str, Any] = {
        "name": name,
        "friend": friend,
        "items": generator.choice(ITEMS),
        "boxes": generator.choice(BOXES),
    }
    values.update(a=a, b=b, c=c, total=total, result=total + sign * c)
    return question.format(**values), solution.format(**values)
