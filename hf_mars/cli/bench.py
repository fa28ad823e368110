"""`hf-mars bench`: what several tokens a forward cost and buy, on one checkpoint."""

import argparse
import importlib.util
import shlex
import sys
from pathlib import Path

from transformers import AutoModelForCausalLM

from ..evaluation import PEERS, format_table
from ..evaluation.bench import available_peers, list_methods, run_bench
from ..evaluation.tasks import TASKS, load_task
from .checkpoints import add_checkpoint_arguments, load_checkpoint


__all__ = ["add_parser", "run"]

METRICS = ("probability", "entropy", "margin")


def add_parser(subparsers) -> None:
    parser = subparsers.add_parser(
        "bench",
        help="measure accuracy and speed over thresholds, modes, batch sizes, and against other ways to decode",
        description="All ways to decode take turns on the same batches. What was measured is written at once; the "
        "same command after an interruption goes on from there.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add_checkpoint_arguments(parser)
    parser.add_argument("--tasks", nargs="+", default=["word_problems"], metavar="TASK", help=", ".join(TASKS))
    parser.add_argument("--limit", type=int, help="examples of a task; default: all")
    parser.add_argument("--limit-single", type=int, default=8, help="examples of a task at batch size 1")
    parser.add_argument("--thresholds", type=float, nargs="*", default=[0.95, 0.9, 0.7, 0.5], help="of lossy decoding")
    parser.add_argument("--verify-thresholds", type=float, nargs="*", default=[0.9, 0.5], help="of verified decoding")
    parser.add_argument("--metrics", nargs="+", default=["probability"], choices=METRICS, help="confidence")
    parser.add_argument("--block-sizes", type=int, nargs="+", help="default: the checkpoint's")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[8, 1], help="prompts decoded together")
    parser.add_argument("--peers", nargs="*", metavar="PEER", help=f"default: all of {', '.join(PEERS)}")
    parser.add_argument("--draft", help="small model for assisted decoding; without one it is left out")
    parser.add_argument("--max-new-tokens", type=int, default=256, help="limit of an answer")
    parser.add_argument("--rounds", type=int, default=1, help="how often each batch is decoded; the best time counts")
    parser.add_argument("--output-dir", type=Path, default=Path("runs/bench"), help="where everything is written")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Measure, print the table, and say what was written."""
    try:
        check(options)
        tasks = [load_task(name, options.limit) for name in options.tasks]
        model, tokenizer = load_checkpoint(options.checkpoint, options.dtype, options.device)
        draft = None
        if options.draft is not None:
            draft = AutoModelForCausalLM.from_pretrained(options.draft, dtype=model.dtype).to(options.device).eval()
        block_size = model.config.mars["block_size"]
        methods = list_methods(
            options.thresholds,
            options.verify_thresholds,
            options.metrics,
            options.block_sizes or [block_size],
            available_peers(options.peers, draft),
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
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        raise SystemExit(f"hf-mars bench: error: {error}") from error
    print("\n" + format_table(evaluation.results) + "\n")
    for task, note in evaluation.notes.items():
        print(f"{task}: {note}")
    print(f"Written to {options.output_dir}: results.json, results.md, texts.json and plots.")


def identify(checkpoint: str) -> str:
    """The checkpoint, and for a directory which weights are in it, so that a new training starts a new sweep."""
    weights = sorted(Path(checkpoint).glob("*.safetensors"))
    stamps = [f"{path.name} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in weights]
    return ", ".join([checkpoint, *stamps])


def check(options: argparse.Namespace) -> None:
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError("the plots need matplotlib: `pip install hf-mars[eval]`.")
    for name in ("limit", "limit_single", "max_new_tokens", "rounds"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise ValueError(f"`--{name.replace('_', '-')}` must be at least 1, got {value}.")
    if min(options.batch_sizes) < 1:
        raise ValueError(f"`--batch-sizes` must be at least 1, got {options.batch_sizes}.")
    if not options.thresholds and (options.peers is None or {"no cache", "block-synchronous"} & set(options.peers)):
        raise ValueError("`--thresholds` is empty, but 'no cache' and 'block-synchronous' need the first of them.")
