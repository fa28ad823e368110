"""An app that speaks OpenAI's API."""

import asyncio
import json
import logging
import time
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Body, FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from ..engine import Engine
from ..request import GenerationRequest
from .completing import ClientGone, Completing, until_gone
from .errors import APIError, add_error_handlers
from .limits import BodyLimit, Limits
from .protocol import ChatCompletionRequest, CompletionRequest
from .responses import AnswerFormat, ChatFormat, CompletionFormat, usage
from .stop_strings import StoppingTextStream


__all__ = ["build_app"]

request_logger = logging.getLogger("hf_mars.serving.requests")


def build_app(
    engine: Engine,
    tokenizer: PreTrainedTokenizerBase,
    model_name: str,
    max_length: int,
    limits: Limits | None = None,
    is_healthy: Callable[[], bool] = lambda: True,
    on_end: Callable[[Completing], None] = lambda completing: None,
    on_shutdown: Callable[[], None] = lambda: None,
) -> FastAPI:
    """
    `/v1/chat/completions`, `/v1/completions`, `/v1/models` and `/health`.

    Args:
        engine ([`Engine`]): Generates.
        tokenizer ([`PreTrainedTokenizerBase`]): Its tokenizer.
        model_name (`str`): The name that requests must give.
        max_length (`int`): Tokens of the model's context.
        limits ([`Limits`], *optional*): Limits of a request.
        is_healthy (`Callable[[], bool]`, *optional*): For `/health`.
        on_end (`Callable[[Completing], None]`, *optional*): Called when a request has ended.
        on_shutdown (`Callable[[], None]`, *optional*): Called when the server has drained.
    """
    limits = limits or Limits()
    created = int(time.time())

    @asynccontextmanager
    async def lifespan(app: FastAPI):
        yield
        await asyncio.to_thread(on_shutdown)

    app = FastAPI(title="hf_mars", lifespan=lifespan)
    app.add_middleware(BodyLimit, max_bytes=limits.max_body_bytes)
    add_error_handlers(app)

    def finish(completing: Completing) -> None:
        log_request(completing)
        on_end(completing)

    async def respond(
        http_request: Request,
        body: ChatCompletionRequest | CompletionRequest,
        prompts: list[list[int]],
        format_class: type[AnswerFormat],
    ) -> Response:
        requests = [request for prompt in prompts for request in to_requests(body, prompt, max_length, limits)]
        streams = [StoppingTextStream(tokenizer, body.stop_strings) for _ in requests]
        prompt_tokens = sum(map(len, prompts))
        include_usage = bool(body.stream_options and body.stream_options.include_usage)
        answer_format = format_class(model_name, tokenizer, include_usage)
        completing = Completing(engine, requests, streams, prompt_tokens, answer_format, finish)
        try:
            if body.stream:
                events = await until_gone(http_request, completing.start())
                return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
            return JSONResponse(await until_gone(http_request, completing.whole()))
        except ClientGone:
            return Response(status_code=499)

    def check_model(body: ChatCompletionRequest | CompletionRequest) -> None:
        if body.model != model_name:
            message = f"`model` {body.model!r} is not served here: {model_name!r} is."
            raise APIError(message, "model", 404, "model_not_found")
        if (body.n or 1) > limits.max_n:
            raise APIError(f"`n` must be at most {limits.max_n}, got {body.n}.", "n")

    @app.post("/v1/chat/completions")
    async def create_chat_completion(
        http_request: Request, body: Annotated[ChatCompletionRequest, Body()]
    ) -> Response:
        check_model(body)
        prompt = await asyncio.to_thread(apply_template, tokenizer, body)
        return await respond(http_request, body, [prompt], ChatFormat)

    @app.post("/v1/completions")
    async def create_completion(http_request: Request, body: Annotated[CompletionRequest, Body()]) -> Response:
        check_model(body)
        prompts = await asyncio.to_thread(tokenize, tokenizer, body)
        if len(prompts) * (body.n or 1) > limits.max_n:
            raise APIError(f"`prompt` times `n` asks for more than {limits.max_n} answers.", "prompt")
        return await respond(http_request, body, prompts, CompletionFormat)

    @app.get("/v1/models")
    async def list_models() -> dict[str, Any]:
        entry = {"id": model_name, "object": "model", "created": created, "owned_by": "hf_mars"}
        return {"object": "list", "data": [entry | {"max_model_len": max_length}]}

    @app.get("/health")
    async def tell_health() -> Response:
        return JSONResponse({"status": "ok"}) if is_healthy() else JSONResponse({"status": "stopped"}, 503)

    return app


def apply_template(tokenizer: PreTrainedTokenizerBase, body: ChatCompletionRequest) -> list[int]:
    """The tokens of a conversation."""
    if tokenizer.chat_template is None:
        raise APIError("`messages` need a chat template, which this model lacks: use /v1/completions.", "messages")
    messages = [message.to_chat() for message in body.messages]
    try:
        return tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"]
    except TemplateError as error:
        raise APIError(f"`messages` do not fit the model's chat template: {error}", "messages") from error


def tokenize(tokenizer: PreTrainedTokenizerBase, body: CompletionRequest) -> list[list[int]]:
    """The tokens of each prompt."""
    if isinstance(body.prompt, str):
        return [tokenizer(body.prompt)["input_ids"]]
    if isinstance(body.prompt[0], str):
        return [tokenizer(prompt)["input_ids"] for prompt in body.prompt]
    if max(body.prompt) >= len(tokenizer):
        raise APIError(f"`prompt` holds a token beyond the vocabulary of {len(tokenizer)}.", "prompt")
    return [body.prompt]


def to_requests(
    body: ChatCompletionRequest | CompletionRequest, prompt: list[int], max_length: int, limits: Limits
) -> list[GenerationRequest]:
    """One request of the engine for each choice; each draws its own random numbers."""
    field = "messages" if isinstance(body, ChatCompletionRequest) else "prompt"
    if not prompt:
        raise APIError(f"`{field}` is empty: it needs at least one token.", field)
    longest = min(max_length - 1, limits.max_prompt_tokens or max_length)
    if len(prompt) > longest:
        message = f"`{field}` has {len(prompt)} tokens, and at most {longest} are read: shorten it."
        raise APIError(message, field, code="context_length_exceeded")
    room = min(limits.max_output_tokens, max_length - len(prompt))
    limit = room if body.limit is None else body.limit
    if limit > room:
        raise APIError(f"`max_tokens` must be at most {room} after this prompt, got {limit}.", "max_tokens")
    return [
        GenerationRequest(
            prompt_ids=prompt,
            max_new_tokens=limit,
            mars_arguments=body.mars_arguments,
            sampling=body.sampling,
            seed=None if body.seed is None else (body.seed + choice) % 2**63,
            num_logprobs=body.num_logprobs,
        )
        for choice in range(body.n or 1)
    ]


def log_request(completing: Completing) -> None:
    """One line for each request, without its text."""
    now = time.monotonic()
    thresholds = [threshold for answer in completing.answers for threshold in answer.thresholds]
    first = completing.first_token
    entry = {
        "id": completing.format.id,
        "complete": completing.is_complete,
        **usage(completing.answers, completing.prompt_tokens),
        "first_token_s": None if first is None else round(first - completing.arrival, 4),
        "total_s": round(now - completing.arrival, 4),
        "threshold_first": thresholds[0] if thresholds else None,
        "threshold_last": thresholds[-1] if thresholds else None,
        "threshold_min": min(thresholds, default=None),
        "threshold_max": max(thresholds, default=None),
    }
    request_logger.info(json.dumps(entry))
