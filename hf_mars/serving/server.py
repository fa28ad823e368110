"""One process that serves one checkpoint."""

import math
import threading

import uvicorn
from fastapi import FastAPI
from transformers import PreTrainedTokenizerBase

from .config import ServerConfig
from .engine import LocalEngine
from .openai import build_app
from .openai.metrics import Metrics
from .openai.operations import add_operations
from .scheduler import Scheduler


__all__ = ["DrainingServer", "build_server"]


def build_server(scheduler: Scheduler, tokenizer: PreTrainedTokenizerBase, config: ServerConfig) -> FastAPI:
    """
    The whole app over one scheduler: OpenAI's API, metrics and the threshold's knob. At the end it closes the
    scheduler.

    Args:
        scheduler ([`Scheduler`]): Generates.
        tokenizer ([`PreTrainedTokenizerBase`]): The model's tokenizer.
        config ([`ServerConfig`]): The model's name, the limits of a request, and the token of the knob.
    """
    metrics = Metrics(scheduler)
    app = build_app(LocalEngine(scheduler), tokenizer, config, scheduler.max_length, on_end=metrics.observe)
    add_operations(app, metrics, scheduler.policy, config.admin_token)
    return app


class DrainingServer(uvicorn.Server):
    """
    Listens until SIGTERM, which lets running requests finish.

    Args:
        app (`FastAPI`): The app.
        scheduler ([`Scheduler`]): What runs the requests.
        config ([`ServerConfig`]): Where to listen, and how long requests may take to finish.
    """

    def __init__(self, app: FastAPI, scheduler: Scheduler, config: ServerConfig):
        self.scheduler, self.drain_timeout = scheduler, config.drain_timeout
        super().__init__(
            uvicorn.Config(
                app,
                host=config.host,
                port=config.port,
                log_level="warning",
                timeout_graceful_shutdown=math.ceil(config.drain_timeout) + 5,
            )
        )

    def handle_exit(self, sig: int, frame) -> None:
        # The scheduler gives up what is late before uvicorn does, so that every client gets an answer.
        threading.Thread(target=self.scheduler.close, args=(self.drain_timeout,), daemon=True).start()
        super().handle_exit(sig, frame)
