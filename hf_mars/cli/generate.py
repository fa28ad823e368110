"""`hf-mars generate`: one answer in the terminal, in which each forward pass can be seen."""

import argparse
import sys
import time
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase
from transformers.generation.streamers import BaseStreamer

from ..checking_text import check_text
from ..loading import check_chat_template
from ..text_stream import TextStream
from .argument_types import integer, number
from .checkpoints import add_checkpoint_arguments, load_checkpoint
from .errors import one_line_errors


__all__ = ["add_parser", "run"]

COLORS = ("\033[38;5;32m", "\033[38;5;172m")  # readable on dark and on light
RESET = "\033[0m"


def add_parser(subparsers, help: str) -> None:
    parser = subparsers.add_parser(
        "generate",
        help=help,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add_checkpoint_arguments(parser)
    parser.add_argument("--prompt", required=True, help="what the user says; - reads it from standard input")
    parser.add_argument(
        "--mars-threshold", type=number(at_least=0, at_most=1), help="confidence at which a mask is accepted"
    )
    parser.add_argument("--mars-verify", action="store_true", help="lossless: the tokens of plain generation")
    parser.add_argument(
        "--mars-block-size", type=integer(at_least=1), help="most tokens a forward may add; default: the training's"
    )
    parser.add_argument("--max-new-tokens", type=integer(at_least=1), default=256, help="limit of the answer")
    parser.add_argument("--temperature", type=number(at_least=0), default=0.0, help="0 is greedy")
    parser.set_defaults(run=run)


class RunPrinter(BaseStreamer):
    """
    Prints runs as they come, in two colours by turns on a terminal.

    Args:
        tokenizer ([`PreTrainedTokenizerBase`]): The tokenizer.
        with_colors (`bool`): Whether to use colours.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, with_colors: bool):
        self.text_stream, self.with_colors = TextStream(tokenizer), with_colors
        self.num_forwards = -1  # the prompt comes first

    @property
    def num_tokens(self) -> int:
        return len(self.text_stream.token_ids)

    def put(self, value: torch.Tensor) -> None:
        self.num_forwards += 1
        if self.num_forwards > 0:
            self._print(self.text_stream.push(value.flatten().tolist()))

    def end(self) -> None:
        self._print(self.text_stream.finish())
        print()

    def _print(self, text: str) -> None:
        if text and self.with_colors:
            text = f"{COLORS[self.num_forwards % len(COLORS)]}{text}{RESET}"
        print(text, end="", flush=True)


def run(options: argparse.Namespace) -> None:
    """Print an answer, and what it took."""
    with one_line_errors("hf-mars generate"):
        prompt = read_standard_input() if options.prompt == "-" else options.prompt
        if not prompt.strip():
            raise ValueError("`--prompt` is empty: give it what the user says.")
        model, tokenizer = load_checkpoint(options.checkpoint, options.dtype, options.device)
        check_chat_template(tokenizer, options.checkpoint)
        inputs: Any = tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}], add_generation_prompt=True, return_dict=True, return_tensors="pt"
        )
        arguments: dict[str, Any] = {"max_new_tokens": options.max_new_tokens, "do_sample": options.temperature > 0}
        if options.temperature > 0:
            arguments["temperature"] = options.temperature
        for name in ("mars_threshold", "mars_block_size"):
            if getattr(options, name) is not None:
                arguments[name] = getattr(options, name)
        if options.mars_verify:
            arguments["mars_verify"] = True
        printer = RunPrinter(tokenizer, with_colors=sys.stdout.isatty())
        start = time.perf_counter()
        model.generate(**inputs.to(model.device), streamer=printer, **arguments)
    seconds, num_tokens = time.perf_counter() - start, printer.num_tokens
    print(
        f"{num_tokens} tokens, {printer.num_forwards} forward passes, {num_tokens / printer.num_forwards:.2f} "
        f"tokens/forward, {num_tokens / seconds:.1f} tokens/s",
        file=sys.stderr,
    )


def read_standard_input() -> str:
    """
    What is piped into the command.

    Raises:
        `ValueError`: If it is no text.
    """
    try:
        return check_text(sys.stdin.read(), "standard input")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"`standard input` is not {error.encoding.upper()} at byte {error.start}: convert it."
        ) from error
