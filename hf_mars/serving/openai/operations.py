"""What those who run the server see and turn: `/metrics` and `/admin/threshold`."""

import hmac
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, FastAPI, Request
from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_LATEST

from ..policy import ThresholdPolicy
from .errors import APIError
from .metrics import Metrics
from .protocol import ThresholdRequest


__all__ = ["add_operations"]

LOOPBACK = ("127.0.0.1", "::1")

router = APIRouter()


@dataclass(frozen=True)
class Operations:
    """
    What the endpoints show and turn.

    Args:
        metrics ([`Metrics`]): The numbers.
        policy ([`ThresholdPolicy`]): What is turned.
        admin_token (`str`, *optional*): Bearer token of `/admin/threshold`.
    """

    metrics: Metrics
    policy: ThresholdPolicy
    admin_token: str | None


async def get_operations(http_request: Request) -> Operations:
    """Those of the app."""
    return http_request.app.state.operations


Operated = Annotated[Operations, Depends(get_operations)]


@router.get("/metrics")
async def tell_metrics(operations: Operated) -> Response:
    """All numbers in Prometheus' format."""
    return Response(operations.metrics.text(), media_type=CONTENT_TYPE_LATEST)


@router.get("/admin/threshold")
async def tell_threshold(http_request: Request, operations: Operated) -> dict[str, Any]:
    """The threshold, and what turns it."""
    check_admin(http_request, operations.admin_token)
    return describe(operations.policy)


@router.post("/admin/threshold")
async def set_threshold(
    http_request: Request, body: Annotated[ThresholdRequest, Body()], operations: Operated
) -> dict[str, Any]:
    """Hold the threshold, or let the load turn it again."""
    check_admin(http_request, operations.admin_token)
    operations.policy.pin(body.threshold)
    return describe(operations.policy)


def add_operations(app: FastAPI, metrics: Metrics, policy: ThresholdPolicy, admin_token: str | None = None) -> None:
    """
    Add `/metrics` and `/admin/threshold`.

    Args:
        app (`FastAPI`): The app.
        metrics ([`Metrics`]): The numbers.
        policy ([`ThresholdPolicy`]): What is turned.
        admin_token (`str`, *optional*):
            Bearer token of `/admin/threshold`. Without one, or with an empty one, it answers to this machine alone,
            and to no page in its browser.
    """
    app.state.operations = Operations(metrics, policy, admin_token)
    app.include_router(router)


def check_admin(http_request: Request, admin_token: str | None) -> None:
    """
    Raises:
        [`APIError`]: If a request may not turn the threshold.
    """
    if admin_token:
        given = http_request.headers.get("authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(given.encode(), admin_token.encode()):
            raise APIError("`Authorization` must be the bearer token of the server.", "Authorization", 401)
    elif http_request.client is None or http_request.client.host not in LOOPBACK or "origin" in http_request.headers:
        message = "Only this machine may do that, and no page in its browser: start the server with `--admin-token`."
        raise APIError(message, status=403)


def describe(policy: ThresholdPolicy) -> dict[str, Any]:
    """The threshold, and what turns it."""
    return {
        "threshold": policy.threshold(),
        "lossy_threshold": policy.lossy_threshold(),
        "draft_threshold": policy.draft_threshold(),
        "pinned": policy.pinned,
        "policy": policy.kind,
        "level": policy.level,
    }
