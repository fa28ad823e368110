"""`hf-mars tune`: the `generate` arguments that are fastest on this machine."""

import argparse
import json
from pathlib import Path

from ..checking_text import check_text
from ..decoding import Mode
from ..evaluation import Method, MethodResult, format_table, tune
from ..evaluation.tasks import TASKS, load_task
from ..extras import check_installed
from ..loading import check_chat_template
from ..one_line import one_line
from .argument_types import integer, number
from .checkpoints import add_checkpoint_arguments, load_checkpoint
from .errors import one_line_errors


__all__ = ["add_parser", "run"]


def add_parser(subparsers, help: str) -> None:
    parser = subparsers.add_parser(
        "tune",
        help=help,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add_checkpoint_arguments(parser)
    parser.add_argument("--prompts", type=Path, help="file with a prompt a line: text, or a JSON list of messages")
    parser.add_argument("--task", default="word_problems", help=f"where the prompts come from: {', '.join(TASKS)}")
    parser.add_argument("--limit", type=integer(at_least=1), default=16, help="number of prompts")
    parser.add_argument("--batch-size", type=integer(at_least=1), default=1, help="prompts decoded together")
    parser.add_argument(
        "--max-loss",
        type=number(at_least=0, at_most=100),
        help="points of accuracy that may be lost; default: lossless only",
    )
    parser.add_argument(
        "--block-sizes", type=integer(at_least=2), nargs="+", help="default: the checkpoint's and half of it"
    )
    parser.add_argument("--max-new-tokens", type=integer(at_least=1), default=256, help="limit of an answer")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Measure, and print the arguments."""
    with one_line_errors("hf-mars tune"):
        check_installed("eval", "evaluate", "scipy")
        score = None
        if options.prompts is not None:
            prompts = read_prompts(options.prompts)[: options.limit]
        else:
            task = load_task(options.task, options.limit)
            prompts, score = task.prompts, task.score
        model, tokenizer = load_checkpoint(options.checkpoint, options.dtype, options.device)
        check_chat_template(tokenizer, options.checkpoint)
        best, results = tune(
            model,
            tokenizer,
            prompts,
            options.batch_size,
            max_loss=None if options.max_loss is None else options.max_loss / 100,
            score=score,
            block_sizes=options.block_sizes,
            max_new_tokens=options.max_new_tokens,
        )
    print("\n" + format_table(results, str(model.dtype).removeprefix("torch.")) + "\n")
    print(describe(best))


def read_prompts(path: Path) -> list[list[dict[str, str]]]:
    """
    Chat messages from a file with one prompt a line.

    Raises:
        `ValueError`: If the file cannot be read, is not UTF-8, or holds no prompt; or if a line begins like messages
            and is none.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"`--prompts` {str(path)!r} is not UTF-8 at byte {error.start}: convert it.") from error
    except OSError as error:
        raise ValueError(f"`--prompts` could not be read: {one_line(error)}") from error
    prompts = [read_prompt(line, f"{path}, line {number}") for number, line in enumerate(lines, 1) if line]
    if not prompts:
        raise ValueError(f"`--prompts` {str(path)!r} is empty: write one prompt a line.")
    return prompts


def read_prompt(line: str, place: str) -> list[dict[str, str]]:
    """One line of it; `place` is where it stands."""
    if not line.startswith("[{"):
        return [{"role": "user", "content": line}]
    try:
        messages = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"`--prompts` ({place}) is not JSON: {error}") from error
    for message in messages:
        texts = [message.get(name) for name in ("role", "content")] if isinstance(message, dict) else [None]
        if not all(isinstance(text, str) for text in texts):
            raise ValueError(f"`--prompts` ({place}) needs messages with `role` and `content`, both of them text.")
        check_text("".join(map(str, texts)), place)
    return messages


def describe(best: MethodResult) -> str:
    """The call to make."""
    if best.mode == Mode.PLAIN:
        return f"Nothing is faster than plain decoding at batch size {best.batch_size} here: leave the arguments out."
    method = Method(best.mode, best.threshold, block_size=best.block_size)
    arguments = ", ".join(f"{name}={value}" for name, value in method.arguments.items())
    kept = ", lossless" if best.lossless else ", verified" if best.mode == Mode.VERIFY else ""
    return (
        f"Fastest at batch size {best.batch_size}, {best.speedup:.2f} times plain decoding"
        f"{kept}:\n\n    model.generate(**inputs, {arguments})"
    )
