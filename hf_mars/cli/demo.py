"""`hf-mars demo`: the Space, on this machine."""

import argparse


__all__ = ["add_parser", "run"]


def add_parser(subparsers) -> None:
    parser = subparsers.add_parser(
        "demo",
        help="a page that shows the runs and lets you move the threshold",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("checkpoint", nargs="?", help="default: MARS_MODEL, the authors' 0.5B, or the quickstart's")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, help="default: the first free one from 7860")
    parser.add_argument("--share", action="store_true", help="make a public link through Gradio")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Load the checkpoint and serve the page."""
    try:
        from ..demo import build_app, load_model
    except ImportError as error:
        raise SystemExit(f"hf-mars demo: error: {error}. Install it with `pip install hf-mars[demo]`.") from error
    try:
        model, tokenizer, source = load_model(options.checkpoint)
    except OSError as error:
        raise SystemExit(f"hf-mars demo: error: {error}") from error
    build_app(model, tokenizer, source).launch(
        server_name=options.host, server_port=options.port, share=options.share, show_error=True
    )
