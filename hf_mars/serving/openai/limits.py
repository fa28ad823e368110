"""Limits of a request."""

from dataclasses import dataclass

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .errors import error_body


__all__ = ["BodyLimit", "Limits"]


@dataclass(frozen=True)
class Limits:
    """
    Limits of a request.

    Args:
        max_prompt_tokens (`int`, *optional*): Tokens of a prompt; by default what the model's context holds.
        max_output_tokens (`int`, *optional*, defaults to 1024): Tokens of an answer, and what a chat gets by default.
        max_n (`int`, *optional*, defaults to 8): Answers to one request.
        max_body_bytes (`int`, *optional*, defaults to 1,000,000): Size of the body.

    Raises:
        `ValueError`: If one is not positive.
    """

    max_prompt_tokens: int | None = None
    max_output_tokens: int = 1024
    max_n: int = 8
    max_body_bytes: int = 1_000_000

    def __post_init__(self):
        for name, value in vars(self).items():
            if value is not None and value < 1:
                raise ValueError(f"`{name}` must be at least 1, got {value}.")


class BodyLimit:
    """
    Middleware that reads no more of a body than is allowed, whatever its headers promise.

    Args:
        app (`ASGIApp`): The app.
        max_bytes (`int`): Size of a body at most.
    """

    def __init__(self, app: ASGIApp, max_bytes: int):
        self.app, self.max_bytes = app, max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        parts, size, has_more = [], 0, True
        while has_more:
            message = await receive()
            if message["type"] != "http.request":  # the client is gone
                return
            body = message.get("body", b"")
            size, has_more = size + len(body), message.get("more_body", False)
            parts.append(body)
            if size > self.max_bytes:
                text = f"The body is larger than {self.max_bytes} bytes."
                await JSONResponse(error_body(text, 413), 413, headers={"Connection": "close"})(scope, receive, send)
                return
        whole: Message | None = {"type": "http.request", "body": b"".join(parts), "more_body": False}

        async def receive_again() -> Message:
            nonlocal whole
            message, whole = whole, None
            return await receive() if message is None else message

        await self.app(scope, receive_again, send)
