"""The prompts of a data set for supervised fine-tuning."""

from typing import Any

from datasets import Dataset, IterableDataset


__all__ = ["Prompt", "select_prompts"]

# Chat messages, or plain text.
Prompt = list[dict[str, Any]] | str


def select_prompts(dataset: Dataset | IterableDataset, limit: int | None = None) -> list[Prompt]:
    """
    Keep the prompts of a data set in one of TRL's formats, and leave the answers.

    Args:
        dataset ([`~datasets.Dataset`]):
            With a column `prompt`, of texts or chat messages, or with `messages`, whose last answer is left out. An
            example that has no answer is a prompt as it stands.
        limit (`int`, *optional*): How many; all by default.

    Returns:
        `list`: Of texts or chat messages, those that ask nothing left out.

    Raises:
        `ValueError`: If it has neither column, or no prompt.
    """
    prompts = []
    for example in dataset:
        if limit is not None and len(prompts) == limit:
            break
        prompt = select_prompt(dict(example))
        if prompt:
            prompts.append(prompt)
    if not prompts:
        raise ValueError("The data set has no prompt.")
    return prompts


def select_prompt(example: dict[str, Any]) -> Prompt:
    if "prompt" in example:
        prompt = example["prompt"]
    elif "messages" in example:
        prompt = example["messages"]
        answers = [index for index, message in enumerate(prompt) if message["role"] == "assistant"]
        prompt = prompt[: answers[-1]] if answers else prompt
    else:
        columns = ", ".join(sorted(example))
        raise ValueError(f"The data set needs a column `prompt` or `messages`, and has {columns}.")
    if isinstance(prompt, str):
        return prompt.strip() and prompt
    # A table has every field of any message, empty where a message lacks it.
    prompt = [{name: value for name, value in message.items() if value is not None} for message in prompt]
    return prompt if prompt and prompt[-1]["role"] != "assistant" else []
