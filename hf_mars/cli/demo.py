"""`hf-mars demo`: the Space, on this machine."""

import argparse

from ..extras import install_command
from .addresses import check_address
from .argument_types import integer
from .errors import one_line_errors


__all__ = ["add_parser", "run"]


def add_parser(subparsers, help: str) -> None:
    parser = subparsers.add_parser(
        "demo",
        help=help,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("checkpoint", nargs="?", help="default: MARS_MODEL, the authors' 0.5B, or the quickstart's")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument(
        "--port", type=integer(at_least=1, at_most=65535), help="default: the first free one from 7860"
    )
    parser.add_argument("--share", action="store_true", help="make a public link through Gradio")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Load the checkpoint and serve the page."""
    with one_line_errors("hf-mars demo"):
        try:
            from ..demo import build_app, load_model
        except ImportError as error:
            raise ImportError(f"{error}. Install it with `{install_command('demo')}`.") from error
        check_address(options.host, options.port)
        app = build_app(*load_model(options.checkpoint))
        app.launch(server_name=options.host, server_port=options.port, share=options.share, show_error=True)
