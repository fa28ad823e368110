"""Errors in OpenAI's form: each names the field at fault."""

import re
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from openai.types import ErrorObject
from starlette.exceptions import HTTPException

from ..request import QueueFull


__all__ = ["ERROR_HANDLERS", "APIError", "apologize", "error_body"]


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
    message, param = clean(message), param and clean(param)
    return {"error": ErrorObject(message=message, type=kind, param=param, code=code).to_dict()}


def clean(text: str) -> str:
    """The text with a mark for what has no encoding."""
    return text.encode(errors="replace").decode()


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
    if first["type"] == "json_invalid":
        return JSONResponse(error_body(f"The body must be valid JSON: {first['ctx']['error']}.", 400), 400)
    if first["type"] == "missing":  # what is missing inside has words of its own
        return JSONResponse(error_body("The body is missing: it must be a JSON object.", 400), 400)
    path = [str(part) for part in first["loc"][1:]]
    text = first["msg"].removeprefix("Value error, ").removesuffix(".")
    if path:
        text = text.removeprefix(f"`{path[-1]}` ")  # which names it without where it stands
        return JSONResponse(error_body(f"`{'.'.join(path)}` {text}.", 400, ".".join(path)), 400)
    # A check of several fields together names them; else it is about the body itself.
    param = find_name(text) if text.startswith("`") else None
    return JSONResponse(error_body(f"{text}." if param else f"The body {text}.", 400, param), 400)


async def report(request: Request, error: HTTPException) -> JSONResponse:
    """Where there is no such endpoint."""
    return JSONResponse(error_body(error.detail, error.status_code), error.status_code, error.headers)


async def apologize(request: Request, error: Exception) -> JSONResponse:
    """Where the server is at fault."""
    return JSONResponse(error_body("The server failed; its log has the details.", 500), 500)


ERROR_HANDLERS: dict[Any, Any] = {
    APIError: refuse,
    QueueFull: postpone,
    RequestValidationError: explain,
    HTTPException: report,
}


def find_name(message: str) -> str | None:
    """The first name in backticks."""
    named = re.search(r"`(\w+)`", message)
    return named.group(1) if named else None
