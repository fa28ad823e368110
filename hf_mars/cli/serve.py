"""`hf-mars serve`: OpenAI's API over one checkpoint."""

import argparse
import logging
import math
import os
import threading

from .checkpoints import add_checkpoint_arguments, load_checkpoint


__all__ = ["add_parser", "run"]


def add_parser(subparsers) -> None:
    parser = subparsers.add_parser(
        "serve",
        help="serve a checkpoint with OpenAI's API; the threshold follows the load",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add_checkpoint_arguments(parser)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=8000, help="port to listen on")
    parser.add_argument("--model-name", help="the name that requests give; default: the checkpoint as written")
    parser.add_argument(
        "--policy",
        choices=("lossless", "adaptive", "fixed"),
        default="lossless",
        help="lossless: verified, load moves how far drafts go; adaptive: lossy, load lowers the threshold; fixed",
    )
    parser.add_argument("--threshold-max", type=float, default=0.95, help="upper bound, and what `fixed` uses")
    parser.add_argument("--threshold-min", type=float, default=0.5, help="lower bound")
    parser.add_argument("--verify", action="store_true", help="make `fixed` lossless")
    parser.add_argument("--max-rows", type=int, default=16, help="requests that decode at once")
    parser.add_argument("--max-queue", type=int, default=64, help="requests that may wait; more get a 429")
    parser.add_argument("--prefill-chunk", type=int, default=256, help="tokens of prompts to read between two steps")
    parser.add_argument("--kv-memory", type=float, help="gigabytes for keys and values; default: a share of the free")
    parser.add_argument("--max-prompt-tokens", type=int, help="default: the model's context")
    parser.add_argument("--max-output-tokens", type=int, default=1024, help="also the default of a chat's answer")
    parser.add_argument("--max-n", type=int, default=8, help="answers to one request")
    parser.add_argument("--max-body-bytes", type=int, default=1_000_000, help="size of a request")
    parser.add_argument("--admin-token", default=os.environ.get("MARS_ADMIN_TOKEN"), help=argparse.SUPPRESS)
    parser.add_argument("--request-log", help="file that gets one JSON line for each request")
    parser.add_argument("--drain-timeout", type=float, default=60.0, help="seconds to finish after a SIGTERM")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Load the checkpoint and serve it until SIGTERM, which lets running requests finish."""
    try:
        import uvicorn

        from ..serving import KVBudget, Scheduler, ThresholdPolicy
        from ..serving.openai.limits import Limits
        from ..serving.server import build_server
    except ImportError as error:
        raise SystemExit(f"hf-mars serve: error: {error}. Install it with `pip install hf-mars[serve]`.") from error
    try:
        if not 0 <= options.drain_timeout < math.inf:
            raise ValueError(f"`--drain-timeout` must be a number of seconds, got {options.drain_timeout}.")
        if not 0 < options.port < 65536:
            raise ValueError(f"`--port` must be between 1 and 65535, got {options.port}.")
        if options.request_log:
            open_request_log(options.request_log)
        policy = ThresholdPolicy(options.policy, options.threshold_min, options.threshold_max, options.verify)
        limits = Limits(options.max_prompt_tokens, options.max_output_tokens, options.max_n, options.max_body_bytes)
        model, tokenizer = load_checkpoint(options.checkpoint, options.dtype, options.device)
        budget = KVBudget(model, options.kv_memory)
        scheduler = Scheduler(
            model, policy, budget, options.max_rows, options.max_queue, prefill_chunk=options.prefill_chunk
        )
    except (OSError, ValueError) as error:
        raise SystemExit(f"hf-mars serve: error: {error}") from error
    app = build_server(scheduler, tokenizer, options.model_name or options.checkpoint, limits, options.admin_token)

    class DrainingServer(uvicorn.Server):
        def handle_exit(self, signal_number: int, frame) -> None:
            # The scheduler gives up what is late before uvicorn does, so that every client gets an answer.
            threading.Thread(target=scheduler.close, args=(options.drain_timeout,), daemon=True).start()
            super().handle_exit(signal_number, frame)

    config = uvicorn.Config(
        app,
        host=options.host,
        port=options.port,
        log_level="warning",
        timeout_graceful_shutdown=math.ceil(options.drain_timeout) + 5,
    )
    DrainingServer(config).run()


def open_request_log(path: str) -> None:
    """Write one line for each request to a file."""
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(message)s"))
    log = logging.getLogger("hf_mars.serving.requests")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
