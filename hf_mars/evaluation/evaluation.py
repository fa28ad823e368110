"""A sweep as it is kept: results, and what it takes to judge and repeat them."""

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from huggingface_hub import hf_hub_download

from ..decoding import Mode
from .sweep import MethodResult


__all__ = ["EVALUATION_FILE", "Evaluation", "load_evaluation"]

EVALUATION_FILE = ".eval_results/sweep.json"


@dataclass
class Evaluation:
    """
    The results of a threshold sweep on one checkpoint.

    Args:
        results (`list[MethodResult]`): One entry a task, mode and batch size; plain decoding comes first.
        environment (`dict[str, str | int]`): Hardware and versions, as [`describe_environment`] gives them.
        command (`str`, *optional*): The command that measured it.
        seed (`int`, *optional*): Seed of the data.
        datasets (`dict[str, str]`, *optional*): For tasks whose data set is on the Hub, its id.
        notes (`dict[str, str]`, *optional*): What a reader has to know of a task, or of the model.
    """

    results: list[MethodResult]
    environment: dict[str, Any]
    command: str | None = None
    seed: int | None = None
    datasets: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def __post_init__(self):
        if not self.results:
            raise ValueError("`results` of the evaluation is empty: there is nothing to report.")
        for result in self.results:
            if not isinstance(result, MethodResult):
                raise TypeError(
                    f"`results` of the evaluation must hold `MethodResult`, got `{type(result).__name__}`."
                )
        if self.results[0].mode != Mode.PLAIN:
            raise ValueError(
                "`results` of the evaluation must begin with plain decoding, to which others are compared."
            )

    def main_results(self) -> list[MethodResult]:
        """The results of the first task at the first batch size, plain decoding first."""
        first = self.results[0]
        return [r for r in self.results if (r.task, r.batch_size) == (first.task, first.batch_size)]

    def to_dict(self) -> dict[str, Any]:
        """The evaluation as it is written to JSON, without the decoded texts."""
        values = asdict(self)
        for result in values["results"]:
            del result["texts"]
        return values

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Evaluation":
        """
        The inverse of [`~Evaluation.to_dict`]. Entries it does not know are left out.

        Raises:
            `ValueError`: If an entry is missing; the message names it.
        """
        if not isinstance(values, dict):
            raise ValueError(f"The evaluation must be a JSON object, got `{type(values).__name__}`.")
        missing = {"results", "environment"} - values.keys()
        if missing:
            raise ValueError(f"The evaluation lacks {sorted(missing)}.")
        results = values["results"]
        if not isinstance(results, list) or not all(isinstance(result, dict) for result in results):
            raise ValueError("`results` of the evaluation must be a list of JSON objects.")
        names = {item.name for item in fields(cls)}
        arguments: dict[str, Any] = {name: value for name, value in values.items() if name in names}
        arguments["results"] = [mode_result(result) for result in results]
        return cls(**arguments)

    def save(self, path: str | Path) -> None:
        """Write the evaluation as JSON."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.to_dict(), indent=2) + "\n", encoding="utf-8")


def load_evaluation(path_or_repo_id: str | Path, **kwargs) -> Evaluation:
    """
    Load the sweep of a checkpoint.

    Args:
        path_or_repo_id (`str` or `Path`):
            A JSON file that `hf-mars bench` or `hf-mars quickstart` wrote, a checkpoint's directory, or its Hub id.
        kwargs: As for [`~huggingface_hub.hf_hub_download`], such as `revision` or `token`.

    Raises:
        `ValueError`: If the file does not hold an evaluation.
        `FileNotFoundError`: If a directory holds none.
    """
    path = Path(path_or_repo_id)
    if path.is_dir():
        path = path / EVALUATION_FILE
        if not path.is_file():
            raise FileNotFoundError(f"{path_or_repo_id} holds no {EVALUATION_FILE}: nothing was measured on it yet.")
    elif not path.is_file():
        path = Path(hf_hub_download(str(path_or_repo_id), EVALUATION_FILE, **kwargs))
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path.name} is not JSON: {error}") from error
    return Evaluation.from_dict(values)


def mode_result(values: dict[str, Any]) -> MethodResult:
    names = {item.name for item in fields(MethodResult)}
    try:
        return MethodResult(
            **dict[str, Any](texts=[]) | {name: value for name, value in values.items() if name in names}
        )
    except TypeError as error:
        raise ValueError(f"A result of the evaluation is incomplete: {error}") from error
