"""An app that speaks OpenAI's API."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.errors import ServerErrorMiddleware
from transformers import PreTrainedTokenizerBase

from ..checking_options import read_origins
from ..config import ServingConfig
from ..engine import Engine
from .body_limit import BodyLimit
from .completing import Completing
from .errors import ERROR_HANDLERS, apologize
from .routes import router
from .served_model import ServedModel


__all__ = ["build_app"]


def build_app(
    engine: Engine,
    tokenizer: PreTrainedTokenizerBase,
    config: ServingConfig,
    max_length: int,
    on_end: Callable[[Completing], None] = lambda completing: None,
) -> FastAPI:
    """
    `/v1/chat/completions`, `/v1/completions`, `/v1/models` and `/health`, also for pages of the allowed origins. At
    its end the app closes the engine.

    Args:
        engine ([`Engine`]): Generates.
        tokenizer ([`PreTrainedTokenizerBase`]): Its tokenizer.
        config ([`ServingConfig`]): The model's name, the limits of a request, and who may ask from a browser.
        max_length (`int`): Tokens of the model's context.
        on_end (`Callable[[Completing], None]`, *optional*): Called when a request has ended.
    """
    app = FastAPI(title="hf_mars", lifespan=close_engine, exception_handlers=ERROR_HANDLERS)
    app.add_middleware(BodyLimit, max_bytes=config.max_body_bytes)
    # Around them, so that a browser shows a page what was refused and what failed as well.
    app.add_middleware(ServerErrorMiddleware, handler=apologize)
    app.add_middleware(
        CORSMiddleware,
        allow_origins=read_origins(config.allowed_origins),
        allow_methods=["*"],
        allow_headers=["*"],
        expose_headers=["Retry-After"],
    )
    app.state.served_model = ServedModel(engine, tokenizer, config, max_length, on_end)
    app.include_router(router)
    return app


@asynccontextmanager
async def close_engine(app: FastAPI) -> AsyncGenerator[None]:
    yield
    await asyncio.to_thread(app.state.served_model.engine.close)
