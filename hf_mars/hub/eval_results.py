"""What `.eval_results/` of a checkpoint holds: the sweep, a picture, and an entry for each benchmark of the Hub."""

import importlib.util
import re
from pathlib import Path

import yaml
from huggingface_hub import EvalResult, EvalResultEntry, eval_result_entries_to_yaml

from ..evaluation import EVALUATION_FILE, Evaluation, plot_frontier


__all__ = ["METRIC_TITLES", "PICTURE_FILE", "model_index", "write_eval_results"]

PICTURE_FILE = ".eval_results/frontier.png"
METRIC_TITLES = {
    "accuracy": "Accuracy",
    "tokens_per_forward": "Tokens per forward",
    "identical": "Share identical to plain decoding",
}


def write_eval_results(directory: str | Path, evaluation: Evaluation) -> None:
    """
    Write the sweep as JSON, its picture where matplotlib is installed, and one YAML file in the Hub's format for each
    task whose data set is on the Hub, with the accuracy of plain decoding, which verified decoding shares.
    """
    directory = Path(directory)
    evaluation.save(directory / EVALUATION_FILE)
    if importlib.util.find_spec("matplotlib") and len(evaluation.results) > 1:
        plot_frontier(evaluation.main_results(), directory / PICTURE_FILE)
    for task, dataset_id in evaluation.datasets.items():
        plain = [r for r in evaluation.results if r.task == task and r.threshold is None and r.accuracy is not None]
        if not plain:
            continue
        entry = EvalResultEntry(
            dataset_id=dataset_id,
            task_id="default",
            value=round(100 * plain[0].accuracy, 2),
            notes=f"greedy, {plain[0].num_examples} examples; the same with mars_verify=True in float32",
        )
        path = directory / EVALUATION_FILE
        path.with_name(f"{slug(task)}.yaml").write_text(yaml.safe_dump(eval_result_entries_to_yaml([entry])))


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


def slug(name: str) -> str:
    return re.sub(r"\W+", "_", name.lower()).strip("_")
