"""Answers as a data set on disk, written batch by batch."""

import json
from pathlib import Path
from typing import Any

from huggingface_hub import DatasetCard
from huggingface_hub.constants import REPOCARD_NAME

from .answering import Answer
from .prompts import Prompt


__all__ = ["AnswerSet"]

DATA_FILE = "train.jsonl"
CARD = """---
{data}
---

# Own answers of {model}

Prompts with the answers of the model itself, for `MARSTrainer`, whose masks then learn what the model would say.

| | |
| --- | --- |
{rows}

Columns: `prompt` and `completion`, as TRL takes them; `is_finished`, `False` where an answer was cut off at the limit.

```python
load_dataset("path/to/this/directory", split="train")
```
"""


class AnswerSet:
    """
    A directory that `load_dataset` reads: a file of JSON lines, which grows with every batch, and a card that tells
    how the answers were generated. One that was interrupted goes on where it ended.

    Args:
        directory (`str` or `Path`): Where it is; created if missing.
        settings (`dict`): What the answers depend on.

    Attributes:
        num_answers (`int`): How many are there.

    Raises:
        `ValueError`: If the directory holds answers that were made with other settings, or something else.
    """

    def __init__(self, directory: str | Path, settings: dict[str, Any]):
        self.directory = Path(directory)
        self.path, self.card_path = self.directory / DATA_FILE, self.directory / REPOCARD_NAME
        self.settings = json.loads(json.dumps(settings))
        if self.directory.is_dir() and any(self.directory.iterdir()):
            self._check_settings()
        self.directory.mkdir(parents=True, exist_ok=True)
        lines = self.path.read_text(encoding="utf-8").splitlines(keepends=True) if self.path.is_file() else []
        if lines and not lines[-1].endswith("\n"):  # cut off by whatever interrupted the run
            lines.pop()
            self.path.write_text("".join(lines), encoding="utf-8")
        self.num_answers = len(lines)
        self._write_card()

    def add(self, prompts: list[Prompt], answers: list[Answer]) -> None:
        """Keep the answers to a batch of prompts."""
        lines = []
        for prompt, answer in zip(prompts, answers, strict=True):
            is_chat = not isinstance(prompt, str)
            completion = [{"role": "assistant", "content": answer.text}] if is_chat else answer.text
            row = {"prompt": prompt, "completion": completion, "is_finished": answer.is_finished}
            lines.append(json.dumps(row, ensure_ascii=False) + "\n")
        with self.path.open("a", encoding="utf-8") as file:
            file.write("".join(lines))
        self.num_answers += len(lines)

    def _check_settings(self) -> None:
        recorded = None
        if self.card_path.is_file():
            recorded = DatasetCard.load(self.card_path, ignore_metadata_errors=True).data.to_dict().get("generation")
        if recorded is None:
            raise ValueError(f"`--output` {str(self.directory)!r} holds something else: choose another directory.")
        changed = sorted(name for name in {*self.settings, *recorded} if self.settings.get(name) != recorded.get(name))
        if changed:
            raise ValueError(
                f"`--output` {str(self.directory)!r} holds answers that were made with another "
                f"{', '.join(changed)}: choose another directory."
            )

    def _write_card(self) -> None:
        rows = "\n".join(f"| {name.replace('_', ' ')} | {value} |" for name, value in self.settings.items())
        # No `configs`: a local directory that has them is cached by its name alone, whatever is in it.
        data = {"tags": ["own-answers", "mars"], "generation": self.settings}
        text = CARD.format(data=json.dumps(data, indent=2), model=self.settings["model"], rows=rows)
        self.card_path.write_text(text, encoding="utf-8")
