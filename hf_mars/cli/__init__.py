"""The `hf-mars` command."""

import importlib
import sys
from typing import Any

from ..checking_text import check_text
from .errors import CommandParser, one_line_errors


__all__ = ["COMMANDS", "main"]

COMMANDS = {
    "quickstart": "fine-tune a small model for minutes and watch it decode several tokens a forward pass",
    "sft": "fine-tune with MARSTrainer and the arguments of TRL's sft.py",
    "regenerate": "answer the prompts of a data set with the model itself, to train a gated adapter on",
    "generate": "answer one prompt, and show what each forward pass added",
    "bench": "measure accuracy and speed over thresholds, modes, batch sizes, and against other ways to decode",
    "tune": "find the generate arguments that are fastest here, lossless or within what may be lost",
    "push": "push a saved checkpoint to the Hub, with its model card",
    "demo": "a page that shows the runs and lets you move the threshold",
    "serve": "serve a checkpoint with OpenAI's API; the threshold follows the load",
    "engines": "print the command with which another engine serves a checkpoint",
}
DATACLASS_COMMANDS = ("sft", "serve")  # their options are fields of a dataclass, which TRL's own parser reads


def main(arguments: list[str] | None = None) -> None:
    """Entry point of `hf-mars`."""
    arguments = sys.argv[1:] if arguments is None else arguments
    command = "".join(arguments[:1])
    with one_line_errors(f"hf-mars {command}".rstrip()):
        check_arguments(arguments)
    # What one command imports takes the others seconds.
    module: Any = importlib.import_module(f".{command}", __name__) if command in COMMANDS else None
    if command in DATACLASS_COMMANDS:
        module.main(arguments[1:])
        return
    parser = CommandParser(prog="hf-mars", description="Fine-tune and decode several tokens a forward pass.")
    subparsers = parser.add_subparsers(required=True, metavar="command")
    for name, help in COMMANDS.items():
        if name == command:
            module.add_parser(subparsers, help)
        else:
            subparsers.add_parser(name, help=help, add_help=False)
    options, others = parser.parse_known_args(arguments)
    if others:
        CommandParser(prog=f"hf-mars {command}").error(f"unrecognized arguments: {' '.join(others)}")
    options.run(options)


def check_arguments(arguments: list[str]) -> None:
    """
    Raises:
        `ValueError`: If one is no text: it can be neither tokenized, nor written into a card or a table.
    """
    for index, (previous, argument) in enumerate(zip(["", *arguments], arguments, strict=False)):
        name = argument.partition("=")[0] if argument.startswith("-") else previous
        check_text(argument, name if name.startswith("-") and name.isascii() else f"argument {index}")
