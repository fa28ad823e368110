"""The `hf-mars` command."""

import sys

from ..checking_text import check_text
from . import bench, demo, engines, generate, push, quickstart, regenerate, serve, tune
from .errors import CommandParser, one_line_errors


__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Entry point of `hf-mars`."""
    arguments = sys.argv[1:] if arguments is None else arguments
    with one_line_errors(" ".join(["hf-mars", *arguments[:1]])):
        check_arguments(arguments)
    parser = CommandParser(prog="hf-mars", description="Fine-tune and decode several tokens a forward pass.")
    subparsers = parser.add_subparsers(required=True, metavar="command")
    quickstart.add_parser(subparsers)
    generate.add_parser(subparsers)
    bench.add_parser(subparsers)
    tune.add_parser(subparsers)
    regenerate.add_parser(subparsers)
    push.add_parser(subparsers)
    demo.add_parser(subparsers)
    engines.add_parser(subparsers)
    # Where options are fields of a dataclass, TRL's own parser takes the rest.
    subparsers.add_parser(
        "serve", help="serve a checkpoint with OpenAI's API; the threshold follows the load", add_help=False
    )
    subparsers.add_parser("sft", help="fine-tune with MARSTrainer and the arguments of TRL's sft.py", add_help=False)
    if arguments[:1] == ["serve"]:
        serve.main(arguments[1:])
        return
    if arguments[:1] == ["sft"]:
        from . import sft

        sft.main(arguments[1:])
        return
    options, others = parser.parse_known_args(arguments)
    if others:
        CommandParser(prog=f"hf-mars {arguments[0]}").error(f"unrecognized arguments: {' '.join(others)}")
    options.run(options)


def check_arguments(arguments: list[str]) -> None:
    """
    Raises:
        `ValueError`: If one is no text: it can be neither tokenized, nor written into a card or a table.
    """
    for index, (previous, argument) in enumerate(zip(["", *arguments], arguments, strict=False)):
        name = argument.partition("=")[0] if argument.startswith("-") else previous
        check_text(argument, name if name.startswith("-") and name.isascii() else f"argument {index}")
