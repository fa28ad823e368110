"""Tasks x ways to decode x batch sizes on one checkpoint: measured, tabulated, drawn."""

import json
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..decoding import Mode
from ..exactness import explain_inexactness
from .environment import describe_environment
from .evaluation import Evaluation
from .journal import Journal
from .methods import ASSISTED, MULTI_TOKEN, PEERS, Method
from .plots import plot_acceptance_by_position, plot_acceptance_lengths, plot_batch_sizes, plot_frontier
from .sweep import measure_methods
from .table import format_table
from .tasks import Task


__all__ = ["available_peers", "list_methods", "run_bench", "write_report"]


def list_methods(
    thresholds: list[float],
    verify_thresholds: list[float],
    metrics: list[str],
    block_sizes: list[int],
    peers: list[str],
    default_block_size: int,
) -> list[Method]:
    """
    Plain decoding, lossy and verified MARS at every threshold, metric and block size, verified MARS with planned steps
    at every block size, and the peers.

    Entropy falls as confidence grows: a threshold `tau` of the other metrics stands there for `2 * (1 - tau)` nats.
    """
    methods = [Method(Mode.PLAIN)]
    for block_size in block_sizes:
        given = None if block_size == default_block_size else block_size
        for metric in metrics:
            for name, values in ((Mode.LOSSY, thresholds), (Mode.VERIFY, verify_thresholds)):
                for tau in values:
                    threshold = round(2 * (1 - tau), 6) if metric == "entropy" else tau
                    methods.append(Method(name, threshold, metric, given))
        methods.append(Method(Mode.VERIFY, block_size=given))
    for name in peers:
        takes_threshold = name in ("no cache", "block-synchronous")
        methods.append(Method(name, thresholds[0] if takes_threshold else None))
    return methods


def run_bench(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    tasks: list[Task],
    methods: list[Method],
    batch_sizes: list[int],
    output_dir: str | Path,
    max_new_tokens: int = 256,
    rounds: int = 1,
    limit_single: int | None = None,
    draft: PreTrainedModel | None = None,
    command: str | None = None,
    settings: dict | None = None,
) -> Evaluation:
    """
    Measure every method on every task at every batch size, and write what was found.

    Each batch is written to `measurements.jsonl` as soon as it is decoded: the same call after an interruption goes on
    from there.

    Args:
        model ([`PreTrainedModel`]): A MARS model.
        tokenizer ([`PreTrainedTokenizerBase`]): Its tokenizer.
        tasks (`list[Task]`): What to ask.
        methods (`list[Method]`): How to decode; the first one is the reference.
        batch_sizes (`list[int]`): Prompts decoded together.
        output_dir (`str` or `Path`): Where everything is written.
        max_new_tokens (`int`, *optional*, defaults to 256): Limit of an answer.
        rounds (`int`, *optional*, defaults to 1): How often each batch is decoded; the best time counts.
        limit_single (`int`, *optional*): How many examples of a task are decoded at batch size 1.
        draft ([`PreTrainedModel`], *optional*): The small model of assisted decoding.
        command (`str`, *optional*): The command line, for the record.
        settings (`dict`, *optional*): What else the measurements depend on, such as the checkpoint.

    Returns:
        [`Evaluation`]

    Raises:
        `ValueError`: If `output_dir` holds measurements of another sweep.
    """
    output_dir = Path(output_dir)
    journal = Journal(
        output_dir / "measurements.jsonl",
        {
            "tasks": {task.name: len(task.prompts) for task in tasks},
            "max_new_tokens": max_new_tokens,
            "dtype": str(model.dtype),
            "environment": describe_environment(model.device),
            **(settings or {}),
        },
    )
    results = []
    for task in tasks:
        for batch_size in batch_sizes:
            prompts = task.prompts[:limit_single] if batch_size == 1 else task.prompts
            results += measure_methods(
                model,
                tokenizer,
                prompts,
                methods,
                batch_size,
                max_new_tokens=max_new_tokens,
                is_correct=task.is_correct,
                task=task.name,
                rounds=rounds,
                journal=journal,
                draft=draft,
            )
    inexactness = explain_inexactness(model)
    evaluation = Evaluation(
        results,
        environment={**describe_environment(model.device), "dtype": str(model.dtype).removeprefix("torch.")},
        command=command,
        datasets={task.name: task.dataset_id for task in tasks if task.dataset_id},
        notes={task.name: task.note for task in tasks if task.note}
        | ({"not lossless": inexactness} if inexactness else {}),
    )
    write_report(evaluation, output_dir)
    return evaluation


def write_report(evaluation: Evaluation, output_dir: str | Path) -> list[Path]:
    """Write `results.json`, `results.md`, `texts.json` and the plots; return their paths."""
    output_dir = Path(output_dir)
    output_dir.mkdir(parents=True, exist_ok=True)
    evaluation.save(output_dir / "results.json")
    table = format_table(evaluation.results, evaluation.environment.get("dtype"))
    notes = "".join(f"\n{task}: {note}\n" for task, note in evaluation.notes.items())
    (output_dir / "results.md").write_text(f"{table}\n{notes}", encoding="utf-8")
    texts = [
        {"task": r.task, "mode": r.label, "batch_size": r.batch_size, "texts": r.texts} for r in evaluation.results
    ]
    (output_dir / "texts.json").write_text(json.dumps(texts, indent=1) + "\n", encoding="utf-8")
    written = [output_dir / name for name in ("results.json", "results.md", "texts.json")]

    for task in dict.fromkeys(result.task for result in evaluation.results):
        of_task = [result for result in evaluation.results if result.task == task]
        slug = task.replace(" ", "_")
        sizes = sorted({result.batch_size for result in of_task})
        for size in sizes:
            group = [result for result in of_task if result.batch_size == size]
            title = f"{task}, {group[0].num_examples} examples, batch {size}"
            path = output_dir / f"frontier_{slug}_batch{size}.png"
            plot_frontier(group, path, title=f"{title}, by threshold")
            written.append(path)
            if any(result.mode in MULTI_TOKEN for result in group):
                path = output_dir / f"acceptance_lengths_{slug}_batch{size}.png"
                plot_acceptance_lengths(group, path, title=title)
                written.append(path)
            if any(result.acceptance_by_position for result in group):
                path = output_dir / f"acceptance_by_position_{slug}_batch{size}.png"
                plot_acceptance_by_position(group, path, title=title)
                written.append(path)
        if len(sizes) > 1:
            path = output_dir / f"batch_sizes_{slug}.png"
            plot_batch_sizes(of_task, path, title=task)
            written.append(path)
    return written


def available_peers(names: list[str] | None, draft: PreTrainedModel | None) -> list[str]:
    """
    The peers to measure: those named, or all of them; assisted decoding only with a draft model that can do it.

    Raises:
        `ValueError`: If a name is unknown, or a kind of assisted decoding has no draft.
    """
    unknown = set(names or ()) - set(PEERS)
    if unknown:
        raise ValueError(f"There is no peer {', '.join(sorted(unknown))}; there are {', '.join(PEERS)}.")
    missing = set(ASSISTED) if draft is None else set()
    if not getattr(getattr(draft, "config", None), "mars", None):
        missing.add("assisted, MARS")
    for name in missing.intersection(names or ()):
        kind = "MARS checkpoint" if name == "assisted, MARS" else "small model"
        raise ValueError(f"The peer {name!r} needs a {kind}: pass `--draft`.")
    return [name for name in (PEERS if names is None else names) if name not in missing]
