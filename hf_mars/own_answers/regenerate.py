"""The model's own answers to the prompts of a data set."""

from pathlib import Path
from typing import Any

from datasets import Dataset, load_dataset

from ..progress import Progress
from .answer_set import AnswerSet
from .answering import Answerer
from .prompts import Prompt


__all__ = ["regenerate"]


def regenerate(
    prompts: list[Prompt],
    answerer: Answerer,
    output_dir: str | Path,
    settings: dict[str, Any],
    num_answers: int = 1,
    batch_size: int = 16,
) -> Dataset:
    """
    Let a model answer, and keep the answers as a data set. What is there from an interrupted run stays.

    Args:
        prompts (`list`): Chat messages or texts, see [`select_prompts`].
        answerer ([`Answerer`]): Who answers.
        output_dir (`str` or `Path`): Where the data set is written, see [`AnswerSet`].
        settings (`dict`): What the answers depend on, for the card.
        num_answers (`int`, *optional*, defaults to 1): Answers to each prompt.
        batch_size (`int`, *optional*, defaults to 16): Prompts answered together.

    Returns:
        [`~datasets.Dataset`] with the columns `prompt`, `completion` and `is_finished`.

    Raises:
        `ValueError`: If the directory holds answers that were made with other settings.
    """
    settings = {**settings, "answers_to_a_prompt": num_answers, "batch_size": batch_size, "prompts": len(prompts)}
    answer_set = AnswerSet(output_dir, settings)
    wanted = [prompt for prompt in prompts for _ in range(num_answers)]
    num_tokens = 0
    with Progress("answers", len(wanted), unit="answer", done=answer_set.num_answers) as progress:
        for batch, start in enumerate(range(0, len(wanted), batch_size)):
            chosen = wanted[start : start + batch_size]
            num_there = min(max(answer_set.num_answers - start, 0), len(chosen))
            if num_there == len(chosen):
                continue
            # The whole batch, also where a part of it was written before: the same seed draws the same answers.
            answers = answerer.answer(chosen, batch)
            answer_set.add(chosen[num_there:], answers[num_there:])
            num_tokens += sum(answer.num_tokens for answer in answers)
            progress.update(len(chosen) - num_there, f"{num_tokens / progress.seconds:.1f} tokens/s")
    return load_dataset("json", data_files=str(answer_set.path), split="train")
