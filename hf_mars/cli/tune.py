"""`hf-mars tune`: the `generate` arguments that are fastest on this machine."""

import argparse
import json
from pathlib import Path

from ..evaluation import Method, MethodResult, format_table, tune
from ..evaluation.tasks import TASKS, load_task
from .checkpoints import add_checkpoint_arguments, load_checkpoint


__all__ = ["add_parser", "run"]


def add_parser(subparsers) -> None:
    parser = subparsers.add_parser(
        "tune",
        help="find the generate arguments that are fastest here, lossless or within what may be lost",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add_checkpoint_arguments(parser)
    parser.add_argument("--prompts", type=Path, help="file with a prompt a line: text, or a JSON list of messages")
    parser.add_argument("--task", default="word_problems", help=f"where the prompts come from: {', '.join(TASKS)}")
    parser.add_argument("--limit", type=int, default=16, help="number of prompts")
    parser.add_argument("--batch-size", type=int, default=1, help="prompts decoded together")
    parser.add_argument("--max-loss", type=float, help="points of accuracy that may be lost; default: lossless only")
    parser.add_argument("--block-sizes", type=int, nargs="+", help="default: the checkpoint's and half of it")
    parser.add_argument("--max-new-tokens", type=int, default=256, help="limit of an answer")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Measure, and print the arguments."""
    try:
        is_correct = None
        if options.prompts is not None:
            prompts = read_prompts(options.prompts)[: options.limit]
        else:
            task = load_task(options.task, options.limit)
            prompts, is_correct = task.prompts, task.is_correct
        model, tokenizer = load_checkpoint(options.checkpoint, options.dtype, options.device)
        best, results = tune(
            model,
            tokenizer,
            prompts,
            options.batch_size,
            max_loss=None if options.max_loss is None else options.max_loss / 100,
            is_correct=is_correct,
            block_sizes=options.block_sizes,
            max_new_tokens=options.max_new_tokens,
        )
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        raise SystemExit(f"hf-mars tune: error: {error}") from error
    print("\n" + format_table(results) + "\n")
    print(describe(best))


def read_prompts(path: Path) -> list[list[dict[str, str]]]:
    """Chat messages from a file with one prompt a line."""
    prompts = []
    for line in filter(None, path.read_text(encoding="utf-8").splitlines()):
        messages = json.loads(line) if line.startswith("[{") else [{"role": "user", "content": line}]
        prompts.append(messages)
    return prompts


def describe(best: MethodResult) -> str:
    """The call to make."""
    if best.threshold is None:
        return f"Nothing is faster than plain decoding at batch size {best.batch_size} here: leave the arguments out."
    method = Method(best.mode, best.threshold, block_size=best.block_size)
    arguments = ", ".join(f"{name}={value}" for name, value in method.arguments.items())
    return (
        f"Fastest at batch size {best.batch_size}, {best.speedup:.2f} times plain decoding"
        f"{', lossless' if best.lossless else ''}:\n\n    model.generate(**inputs, {arguments})"
    )
