"""`hf-mars bench`: what several tokens a forward cost and buy, on one checkpoint."""

import argparse
import shlex
import sys
from pathlib import Path

from transformers import AutoModelForCausalLM, PreTrainedModel

from ..evaluation import PEERS, format_table
from ..evaluation.bench import available_peers, list_methods, run_bench
from ..evaluation.tasks import TASKS, load_task
from ..extras import check_installed
from ..loading import check_chat_template
from ..missing_paths import check_model_path
from ..modeling import AutoMARSModelForCausalLM, get_base_model
from ..one_line import one_line, quote
from .argument_types import folder, integer, number
from .checkpoints import add_checkpoint_arguments, load_checkpoint
from .errors import one_line_errors


__all__ = ["add_parser", "run"]

METRICS = ("probability", "entropy", "margin")


def add_parser(subparsers, help: str) -> None:
    parser = subparsers.add_parser(
        "bench",
        help=help,
        description="All ways to decode take turns on the same batches. What was measured is written at once; the "
        "same command after an interruption goes on from there.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add_checkpoint_arguments(parser)
    parser.add_argument("--tasks", nargs="+", default=["word_problems"], metavar="TASK", help=", ".join(TASKS))
    parser.add_argument("--limit", type=integer(at_least=1), help="examples of a task; default: all")
    parser.add_argument(
        "--limit-single", type=integer(at_least=1), default=8, help="examples of a task at batch size 1"
    )
    threshold = number(at_least=0, at_most=1)
    parser.add_argument(
        "--thresholds", type=threshold, nargs="*", default=[0.95, 0.9, 0.7, 0.5], help="of lossy decoding"
    )
    parser.add_argument(
        "--verify-thresholds", type=threshold, nargs="*", default=[0.9, 0.5], help="of verified decoding"
    )
    parser.add_argument("--metrics", nargs="+", default=["probability"], choices=METRICS, help="confidence")
    parser.add_argument("--block-sizes", type=integer(at_least=1), nargs="+", help="default: the checkpoint's")
    parser.add_argument(
        "--batch-sizes", type=integer(at_least=1), nargs="+", default=[8, 1], help="prompts decoded together"
    )
    parser.add_argument("--peers", nargs="*", metavar="PEER", help=f"default: all of {quote(PEERS)}")
    parser.add_argument(
        "--draft",
        help="small model for assisted decoding; a MARS checkpoint drafts several tokens a forward",
    )
    parser.add_argument("--max-new-tokens", type=integer(at_least=1), default=256, help="limit of an answer")
    parser.add_argument(
        "--rounds", type=integer(at_least=1), default=1, help="how often each batch is decoded; the best time counts"
    )
    parser.add_argument("--output-dir", type=folder, default=Path("runs/bench"), help="where everything is written")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Measure, print the table, and say what was written."""
    with one_line_errors("hf-mars bench"):
        check(options)
        peers = available_peers(options.peers, has_draft=options.draft is not None)
        tasks = [load_task(name, options.limit) for name in options.tasks]
        model, tokenizer = load_checkpoint(options.checkpoint, options.dtype, options.device)
        check_chat_template(tokenizer, options.checkpoint)
        draft = None if options.draft is None else load_draft(options.draft, model)
        if draft is not None:
            is_mars_draft = bool(getattr(draft.config, "mars", None))
            peers = available_peers(options.peers, has_draft=True, is_mars_draft=is_mars_draft)
        block_size = model.config.mars["block_size"]
        methods = list_methods(
            options.thresholds,
            options.verify_thresholds,
            options.metrics,
            options.block_sizes or [block_size],
            peers,
            block_size,
        )
        evaluation = run_bench(
            model,
            tokenizer,
            tasks,
            methods,
            options.batch_sizes,
            options.output_dir,
            max_new_tokens=options.max_new_tokens,
            rounds=options.rounds,
            limit_single=options.limit_single,
            draft=draft,
            command=shlex.join(["hf-mars", *sys.argv[1:]]),
            settings={"checkpoint": identify(options.checkpoint), "draft": options.draft},
        )
    print("\n" + format_table(evaluation.results, evaluation.environment.get("dtype")) + "\n")
    for task, note in evaluation.notes.items():
        print(f"{task}: {note}")
    print(f"Written to {options.output_dir}: results.json, results.md, texts.json and plots.")


def load_draft(name: str, model: PreTrainedModel) -> PreTrainedModel:
    """
    The small model of assisted decoding, like the large one. A MARS checkpoint can draft several tokens a forward.

    Raises:
        `ValueError`: If it cannot be loaded.
    """
    check_model_path(name, "--draft")
    try:
        try:
            draft = get_base_model(AutoMARSModelForCausalLM.from_pretrained(name, dtype=model.dtype))
        except ValueError:  # no MARS checkpoint
            draft = AutoModelForCausalLM.from_pretrained(name, dtype=model.dtype)
        return draft.to(model.device).eval()
    except (OSError, ValueError) as error:
        raise ValueError(f"`--draft` {name!r} could not be loaded: {one_line(error)}") from error


def identify(checkpoint: str) -> str:
    """The checkpoint, and for a directory which weights are in it, so that a new training starts a new sweep."""
    weights = sorted(Path(checkpoint).glob("*.safetensors"))
    stamps = [f"{path.name} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in weights]
    return ", ".join([checkpoint, *stamps])


def check(options: argparse.Namespace) -> None:
    check_installed("eval", "evaluate", "matplotlib", "scipy")
    if not options.thresholds and (options.peers is None or {"no cache", "block-synchronous"} & set(options.peers)):
        raise ValueError("`--thresholds` is empty, but 'no cache' and 'block-synchronous' need the first of them.")
