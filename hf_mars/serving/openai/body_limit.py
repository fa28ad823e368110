"""A limit of what is read from a client."""

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .errors import error_body


__all__ = ["BodyLimit"]


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
