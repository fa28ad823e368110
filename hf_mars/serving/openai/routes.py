"""The endpoints of OpenAI's API."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from .completing import ClientGone, Completing, until_gone
from .errors import APIError
from .protocol import ChatCompletionRequest, CompletionRequest
from .responses import AnswerFormat, ChatFormat, CompletionFormat
from .served_model import ServedModel
from .stop_strings import StoppingTextStream


__all__ = ["router"]

router = APIRouter()


async def get_served_model(http_request: Request) -> ServedModel:
    """The model of the app."""
    return http_request.app.state.served_model


Served = Annotated[ServedModel, Depends(get_served_model)]


@router.post("/v1/chat/completions")
async def create_chat_completion(
    http_request: Request, body: Annotated[ChatCompletionRequest, Body()], served: Served
) -> Response:
    """An answer to a conversation."""
    served.check(body)
    prompt = await asyncio.to_thread(served.apply_template, body)
    return await respond(http_request, body, [prompt], served, ChatFormat)


@router.post("/v1/completions")
async def create_completion(
    http_request: Request, body: Annotated[CompletionRequest, Body()], served: Served
) -> Response:
    """What follows a text, or each of several."""
    served.check(body)
    prompts = await asyncio.to_thread(served.tokenize, body)
    if len(prompts) * (body.n or 1) > served.config.max_n:
        raise APIError(f"`prompt` times `n` asks for more than {served.config.max_n} answers.", "prompt")
    return await respond(http_request, body, prompts, served, CompletionFormat)


@router.get("/v1/models")
async def list_models(served: Served) -> dict[str, Any]:
    """The one model there is."""
    return {"object": "list", "data": [served.describe()]}


@router.get("/v1/models/{name:path}")
async def retrieve_model(name: str, served: Served) -> dict[str, Any]:
    """The model of that name; names of the Hub have a slash."""
    served.check_name(name)
    return served.describe()


@router.get("/health")
async def tell_health(served: Served) -> Response:
    """Whether requests are taken."""
    return JSONResponse({"status": "ok"}) if served.engine.is_alive else JSONResponse({"status": "stopped"}, 503)


async def respond(
    http_request: Request,
    body: ChatCompletionRequest | CompletionRequest,
    prompts: list[list[int]],
    served: ServedModel,
    format_class: type[AnswerFormat],
) -> Response:
    """Generate, and answer at once or in a stream, unless the client goes away."""
    requests = [request for prompt in prompts for request in served.to_requests(body, prompt)]
    streams = [StoppingTextStream(served.tokenizer, body.stop_strings) for _ in requests]
    include_usage = bool(body.stream_options and body.stream_options.include_usage)
    include_drafts = served.config.per_request_spec_decode_metrics == "summary"
    answer_format = format_class(served.name, include_usage, include_drafts)
    prompt_tokens = sum(map(len, prompts))
    completing = Completing(served.engine, requests, streams, prompt_tokens, answer_format, served.finish)
    try:
        if body.stream:
            events = await until_gone(http_request, completing.start())
            return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
        whole = await until_gone(http_request, completing.whole())
        return Response(whole.to_json(indent=None), media_type="application/json")
    except ClientGone:
        return Response(status_code=499)
