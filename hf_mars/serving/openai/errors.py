"""Errors in OpenAI's form: each names the field at fault."""

import re
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from openai.types import ErrorObject
from starlette.exceptions import HTTPException

from ..request import QueueFull


__all__ = ["ERROR_HANDLERS", "APIError", "error_body"]


class APIError(Exception):
    """
    A request that is refused.

    Args:
        message (`str`): What is wrong, and what to do.
        param (`str`, *optional*): The field at fault. By default the one that the message puts in backticks.
        status (`int`, *optional*, defaults to 400): HTTP status.
        code (`str`, *optional*): For programs.
    """

    def __init__(self, message: str, param: str | None = None, status: int = 400, code: str | None = None):
        super().__init__(message)
        self.message, self.status, self.code = message, status, code
        self.param = param or find_name(message)


def error_body(message: str, status: int, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """The body of an error."""
    kind = "rate_limit_error" if status == 429 else "invalid_request_error" if status < 500 else "server_error"
    message, param = (text and text.encode(errors="replace").decode() for text in (message, param))
    return {"error": ErrorObject(message=message, type=kind, param=param, code=code).to_dict()}


async def refuse(request: Request, error: APIError) -> JSONResponse:
    """Where a request is refused."""
    return JSONResponse(error_body(error.message, error.status, error.param, error.code), error.status)


async def postpone(request: Request, error: QueueFull) -> JSONResponse:
    """Where too many requests wait."""
    body = error_body(str(error), 429, code="rate_limit_exceeded")
    return JSONResponse(body, 429, headers={"Retry-After": str(error.retry_after)})


async def explain(request: Request, error: RequestValidationError) -> JSONResponse:
    """Where a body is not valid."""
    first = error.errors()[0]
    param, message = find_field(first, error.body), first["msg"].removeprefix("Value error, ")
    if param is None:
        return JSONResponse(error_body(f"The body is not valid: {message}.", 400), 400)
    stated = message if f"`{param}`" in message else f"`{param}`: {message}"
    return JSONResponse(error_body(f"{stated}.", 400, param), 400)


async def report(request: Request, error: HTTPException) -> JSONResponse:
    """Where there is no such endpoint."""
    return JSONResponse(error_body(str(error.detail), error.status_code), error.status_code, error.headers)


async def apologize(request: Request, error: Exception) -> JSONResponse:
    """Where the server is at fault."""
    return JSONResponse(error_body("The server failed; its log has the details.", 500), 500)


ERROR_HANDLERS = {
    APIError: refuse,
    QueueFull: postpone,
    RequestValidationError: explain,
    HTTPException: report,
    Exception: apologize,
}


def find_field(error: dict[str, Any], body: Any) -> str | None:
    """The path of the field at fault, as it stands in the body: `messages.0.content`."""
    path = []
    for part in error["loc"][1:]:
        is_there = part in body if isinstance(body, dict) else isinstance(body, list) and isinstance(part, int)
        if not is_there and error["type"] != "missing":
            break  # what follows is the name of a type, not of a field
        path.append(str(part))
        body = body[part] if is_there else None
    if path:
        return ".".join(path)
    return find_name(error["msg"])  # a check of several fields together


def find_name(message: str) -> str | None:
    """The first name in backticks."""
    named = re.search(r"`(\w+)`", message)
    return named.group(1) if named else None
