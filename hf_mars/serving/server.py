"""One process that serves one checkpoint."""

from fastapi import FastAPI
from transformers import PreTrainedTokenizerBase

from .engine import LocalEngine
from .openai.app import build_app
from .openai.limits import Limits
from .openai.operations import Metrics, add_operations
from .scheduler import Scheduler


__all__ = ["build_server"]


def build_server(
    scheduler: Scheduler,
    tokenizer: PreTrainedTokenizerBase,
    model_name: str,
    limits: Limits | None = None,
    admin_token: str | None = None,
) -> FastAPI:
    """
    The whole app over one scheduler: OpenAI's API, metrics and the threshold's knob. At the end it closes the
    scheduler.

    Args:
        scheduler ([`Scheduler`]): Generates.
        tokenizer ([`PreTrainedTokenizerBase`]): Its tokenizer.
        model_name (`str`): The name that requests must give.
        limits ([`Limits`], *optional*): Limits of a request.
        admin_token (`str`, *optional*): See [`add_operations`].
    """
    metrics = Metrics(scheduler)
    app = build_app(
        LocalEngine(scheduler),
        tokenizer,
        model_name,
        scheduler.max_length,
        limits,
        is_healthy=lambda: scheduler.is_alive,
        on_end=metrics.observe,
        on_shutdown=scheduler.close,
    )
    add_operations(app, metrics, scheduler.policy, admin_token)
    return app
