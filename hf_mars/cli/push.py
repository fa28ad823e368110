"""`hf-mars push`: push a saved checkpoint to the Hub."""

import argparse
from pathlib import Path

from ..hub import push_folder
from .argument_types import url
from .errors import one_line_errors


__all__ = ["add_parser", "run"]


def add_parser(subparsers, help: str) -> None:
    parser = subparsers.add_parser(
        "push",
        help=help,
        description="Pushes weights and decoding code first, then the model card. A push that was interrupted is "
        "resumed by running it again.",
    )
    parser.add_argument("folder", type=Path, help="checkpoint that MARSTrainer or hf_mars.save_pretrained saved")
    parser.add_argument("repo_id", help="where to push, as namespace/name; created if missing")
    parser.add_argument("--evaluation", type=Path, help="results.json of `hf-mars bench` or `hf-mars quickstart`")
    parser.add_argument("--license", help="license of the model; default: that of the base model")
    parser.add_argument("--base-model", help="Hub id of the base model; default: the one recorded in the checkpoint")
    parser.add_argument("--private", action="store_true", default=None, help="make a new repository private")
    parser.add_argument("--revision", help="branch to push to; default: main")
    parser.add_argument("--create-pr", action="store_true", help="open a pull request instead of pushing to a branch")
    parser.add_argument("--commit-message", help="message of the commits")
    parser.add_argument("--token", help="token with write access; default: that of `hf auth login`")
    parser.add_argument("--endpoint", type=url, metavar="URL", help="address of the Hub; default: HF_ENDPOINT")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Push, and say what was uploaded."""
    arguments = {name: value for name, value in vars(options).items() if name != "run"}
    with one_line_errors("hf-mars push"):
        result = push_folder(**arguments)
    if options.create_pr and result.pull_request is None:
        print(f"No pull request was opened: nothing differs from {result.url}.")
    else:
        print(f"Uploaded to {result.url}:")
        for path in result.uploaded:
            print(f"  {path}")
    if result.error is not None:
        raise SystemExit(f"hf-mars push: the weights are uploaded, the model card is not. {result.error}")
