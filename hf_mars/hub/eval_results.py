"""What `.eval_results/` of a checkpoint holds: the sweep, a picture, and an entry for each benchmark of the Hub."""

import dataclasses
import importlib.util
import re
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import EvalResult, EvalResultEntry, ModelCardData, eval_result_entries_to_yaml

from ..decoding import Mode
from ..evaluation import EVALUATION_FILE, Evaluation, load_evaluation, plot_frontier
from .paths import without_paths


__all__ = ["PICTURE_FILE", "is_of_sweep", "model_index", "replace_results", "write_eval_results"]

PICTURE_FILE = ".eval_results/frontier.png"
# Data sets that the Hub knows as benchmarks, and the id of their task in the `eval.yaml` of the data set. An entry for
# any other data set is refused: https://huggingface.co/docs/hub/eval-results
BENCHMARK_TASKS = {"openai/gsm8k": "gsm8k"}
METRIC_TITLES = {
    "accuracy": "Accuracy",
    "tokens_per_forward": "Tokens per forward",
    "identical": "Share identical to plain decoding",
}


def write_eval_results(directory: str | Path, evaluation: Evaluation | dict[str, Any] | str | Path) -> Evaluation:
    """
    Write the sweep as JSON, its picture where matplotlib is installed, and one YAML file in the Hub's format
    (https://huggingface.co/docs/hub/eval-results) for each task whose data set is a benchmark there, with the accuracy
    of plain decoding in percent, which verified decoding shares.

    Args:
        directory (`str` or `Path`): Where the checkpoint is saved.
        evaluation ([`Evaluation`], `dict`, `str` or `Path`): The sweep, or the file it is in.

    Returns:
        [`Evaluation`]: The sweep as it is written, without local paths in its command.
    """
    directory = Path(directory)
    if isinstance(evaluation, (str, Path)):
        evaluation = load_evaluation(evaluation)
    elif isinstance(evaluation, dict):
        evaluation = Evaluation.from_dict(evaluation)
    evaluation = dataclasses.replace(evaluation, command=evaluation.command and without_paths(evaluation.command))
    evaluation.save(directory / EVALUATION_FILE)
    if importlib.util.find_spec("matplotlib") and len(evaluation.results) > 1:
        plot_frontier(evaluation.main_results(), directory / PICTURE_FILE)
    for task, dataset_id in evaluation.datasets.items():
        plain = [r for r in evaluation.results if r.task == task and r.mode == Mode.PLAIN and r.accuracy is not None]
        if not plain or dataset_id not in BENCHMARK_TASKS:
            continue
        plain.sort(key=lambda result: -result.num_examples)  # batch size 1 may have had a few of them only
        entry = EvalResultEntry(
            dataset_id=dataset_id,
            task_id=BENCHMARK_TASKS[dataset_id],
            value=round(100 * (plain[0].accuracy or 0.0), 2),
            notes=". ".join(
                [
                    f"Greedy, {plain[0].num_examples} examples, plain decoding",
                    *filter(None, [evaluation.notes.get(task)]),
                ]
            ),
        )
        path = directory / EVALUATION_FILE
        path.with_name(f"{slug(task)}.yaml").write_text(yaml.safe_dump(eval_result_entries_to_yaml([entry])))
    return evaluation


def model_index(evaluation: Evaluation) -> list[EvalResult]:
    """The results as the `model-index` of a card holds them."""
    entries = []
    for result in evaluation.results:
        for metric, title in METRIC_TITLES.items():
            value = getattr(result, metric)
            if value is None:
                continue
            entries.append(
                EvalResult(
                    task_type="text-generation",
                    dataset_type=evaluation.datasets.get(result.task) or slug(result.task),
                    dataset_name=result.task,
                    metric_type=metric,
                    metric_name=title,
                    metric_value=round(value, 4),
                    metric_args={"mode": result.label, "batch_size": result.batch_size},
                )
            )
    return entries


def replace_results(data: ModelCardData, results: list[EvalResult]) -> None:
    """Put the results of a sweep in the place of those of an earlier one; results of others stay."""
    others = [result for result in data.eval_results or [] if not is_of_sweep(result)]
    data.eval_results = [*others, *results] or None


def is_of_sweep(result: EvalResult) -> bool:
    """Whether a result of a `model-index` is one that [`model_index`] made."""
    return result.metric_name in METRIC_TITLES.values() and "mode" in (result.metric_args or {})


def slug(name: str) -> str:
    return re.sub(r"\W+", "_", name.lower()).strip("_")
