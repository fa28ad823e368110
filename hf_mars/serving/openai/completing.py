"""A request on its way through the app: to tokens, through the engine, and back to text, whole or streamed."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from fastapi import Request
from openai import BaseModel
from openai.types import CompletionUsage

from ..engine import Engine, GenerationError, RequestOutputs
from ..request import GenerationRequest
from .answer import Answer
from .errors import APIError, error_body
from .responses import AnswerFormat, count_usage
from .stop_strings import StoppingTextStream


__all__ = ["ClientGone", "Completing", "until_gone"]

Result = TypeVar("Result")


class ClientGone(Exception):
    """The client has closed the connection."""


async def until_gone(http_request: Request, work: Awaitable[Result]) -> Result:
    """
    Wait for some work, or give it up when the client goes away.

    Raises:
        [`ClientGone`]: If it has.
    """

    async def wait_for_disconnect() -> None:
        while (await http_request.receive())["type"] != "http.disconnect":
            pass

    working, watching = asyncio.ensure_future(work), asyncio.ensure_future(wait_for_disconnect())
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientGone
    finally:
        for task in (working, watching):
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task


class Completing:
    """
    The answers to one request.

    Args:
        engine ([`Engine`]): Generates.
        requests (`Sequence[GenerationRequest]`): One for each choice.
        text_streams (`Sequence[StoppingTextStream]`): For each, to text.
        prompt_tokens (`int`): Tokens of the prompts, each counted once.
        answer_format ([`AnswerFormat`]): Form of the answers.
        on_end (`Callable[[Completing], None]`): Called once, when they are finished or given up.
    """

    def __init__(
        self,
        engine: Engine,
        requests: Sequence[GenerationRequest],
        text_streams: Sequence[StoppingTextStream],
        prompt_tokens: int,
        answer_format: AnswerFormat,
        on_end: Callable[["Completing"], None],
    ):
        self.engine, self.requests, self.on_end = engine, requests, on_end
        self.prompt_tokens, self.format = prompt_tokens, answer_format
        self.answers = [Answer(index, stream) for index, stream in enumerate(text_streams)]
        self.arrival = time.monotonic()
        self.first_token: float | None = None
        self.is_complete = False
        self._outputs: Sequence[RequestOutputs] = []

    def usage(self) -> CompletionUsage:
        """What it took so far."""
        return count_usage(self.answers, self.prompt_tokens)

    async def whole(self) -> BaseModel:
        """The answers at once."""
        try:
            await self._submit()
            async for _ in self._merged():
                pass
            self.is_complete = True
            return self.format.complete(self.answers, self.usage())
        except GenerationError as error:
            raise to_api_error(error) from error
        finally:
            await self._close()

    async def start(self) -> AsyncIterator[str]:
        """Wait for the first output, so that an early error is one of HTTP, and return the events to stream."""
        merged = self._merged()
        try:
            await self._submit()
            first = await anext(merged)
        except GenerationError as error:
            await self._close()
            raise to_api_error(error) from error
        except BaseException:
            await self._close()
            raise
        return self._events(first, merged)

    async def _events(self, first: tuple[Answer, str], merged: AsyncIterator) -> AsyncIterator[str]:
        sent = dict.fromkeys(range(len(self.answers)), 0)
        try:
            for answer in self.answers:
                chunk = self.format.first_chunk(answer)
                if chunk is not None:
                    yield to_event(chunk)
            async for answer, text in chain(first, merged):
                num_told = len(answer.told or ())
                if text or num_told > sent[answer.index]:
                    yield to_event(self.format.text_chunk(answer, text, sent[answer.index]))
                    sent[answer.index] = num_told
                if answer.finish_reason is not None:
                    yield to_event(self.format.final_chunk(answer))
            self.is_complete = True
            if self.format.include_usage:
                yield to_event(self.format.usage_chunk(self.answers, self.usage()))
            yield "data: [DONE]\n\n"
        except GenerationError as error:
            told = to_api_error(error)
            yield to_event(error_body(told.message, told.status))
        finally:
            await self._close()

    async def _submit(self) -> None:
        try:
            self._outputs = await self.engine.submit(self.requests)
        except ValueError as error:
            raise APIError(str(error)) from error
        except RuntimeError as error:
            raise APIError(str(error), status=503) from error

    async def _merged(self) -> AsyncIterator[tuple[Answer, str]]:
        """Each answer whenever it grows, with its new text, until all are finished."""
        pending = {asyncio.ensure_future(anext(outputs)): index for index, outputs in enumerate(self._outputs)}
        try:
            while pending:
                done, _ = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    index = pending.pop(task)
                    answer, outputs = self.answers[index], self._outputs[index]
                    text = answer.add(task.result())
                    self.first_token = self.first_token or time.monotonic()
                    if answer.finish_reason is None:
                        pending[asyncio.ensure_future(anext(outputs))] = index
                    else:
                        await outputs.aclose()  # after a stop string its row would go on
                    yield answer, text
        finally:
            for task in pending:
                task.cancel()

    async def _close(self) -> None:
        for outputs in self._outputs:
            await outputs.aclose()
        self.on_end(self)


async def chain(first: Result, rest: AsyncIterator[Result]) -> AsyncIterator[Result]:
    yield first
    async for item in rest:
        yield item


def to_event(data: BaseModel | dict[str, Any]) -> str:
    """A server-sent event."""
    text = json.dumps(data, ensure_ascii=False) if isinstance(data, dict) else data.to_json(indent=None)
    return f"data: {text}\n\n"


def to_api_error(error: GenerationError) -> APIError:
    """What a client is told: details of a failure of the server stay in its log."""
    if error.status == 500:
        return APIError("The server failed on this request; its log has the details.", status=500)
    return APIError(str(error), status=error.status)
