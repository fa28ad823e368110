"""The `hf-mars` command."""

import argparse
import sys

from . import bench, demo, generate, push, quickstart, serve, tune


__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Entry point of `hf-mars`."""
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(prog="hf-mars", description="Fine-tune and decode several tokens a forward pass.")
    subparsers = parser.add_subparsers(required=True, metavar="command")
    quickstart.add_parser(subparsers)
    generate.add_parser(subparsers)
    bench.add_parser(subparsers)
    tune.add_parser(subparsers)
    push.add_parser(subparsers)
    demo.add_parser(subparsers)
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
    options = parser.parse_args(arguments)
    options.run(options)
