"""The `hf-mars` command."""

import argparse

from . import quickstart


__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Entry point of `hf-mars`."""
    parser = argparse.ArgumentParser(prog="hf-mars", description="Fine-tune and decode several tokens a forward pass.")
    subparsers = parser.add_subparsers(required=True, metavar="command")
    quickstart.add_parser(subparsers)
    options = parser.parse_args(arguments)
    options.run(options)
