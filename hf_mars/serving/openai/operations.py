"""What those who run the server see and turn: `/metrics` and `/admin/threshold`."""

import hmac
import time
from collections.abc import Callable, Iterator
from typing import Annotated, Any

from fastapi import Body, FastAPI, Request
from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from ..policy import ThresholdPolicy
from ..scheduler import Scheduler
from .completing import Completing
from .errors import APIError
from .protocol import ThresholdRequest


__all__ = ["Metrics", "add_operations"]

LOOPBACK = ("127.0.0.1", "::1")
SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class Metrics:
    """
    Numbers for Prometheus.

    Args:
        scheduler ([`Scheduler`]): What is measured.
    """

    def __init__(self, scheduler: Scheduler):
        self.scheduler, self.registry = scheduler, CollectorRegistry()
        self.registry.register(self)
        self.first_token = Histogram(
            "mars_time_to_first_token_seconds", "Until the first token", registry=self.registry, buckets=SECONDS
        )
        self.per_token = Histogram(
            "mars_time_per_token_seconds", "For each token after the first", registry=self.registry, buckets=SECONDS
        )

    def observe(self, completing: Completing) -> None:
        """Take in a request that has ended."""
        if completing.first_token is None:
            return
        self.first_token.observe(completing.first_token - completing.arrival)
        longest = max(len(answer.token_ids) for answer in completing.answers)
        if completing.is_complete and longest > 1:
            self.per_token.observe((time.monotonic() - completing.first_token) / (longest - 1))

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """What the scheduler knows, read when asked; called by Prometheus' client."""
        load, policy = self.scheduler.load(), self.scheduler.policy
        gauges = {
            "mars_requests_running": ("Requests that decode or have their prompt read", load.running),
            "mars_requests_queued": ("Requests that wait for a row", load.queued),
            "mars_kv_use": ("Share of the memory for keys and values that is promised", load.kv_use),
            "mars_threshold": ("Threshold of requests that set none", policy.threshold()),
            "mars_lossy_threshold": ("Threshold of requests that are not verified", policy.lossy_threshold()),
            "mars_draft_threshold": ("Threshold of requests that are verified", policy.draft_threshold()),
        }
        for name, (description, value) in gauges.items():
            yield GaugeMetricFamily(name, description, value=value)
        for name, value in vars(self.scheduler.counts).items():
            yield CounterMetricFamily(f"mars_{name}", f"{name.replace('_', ' ').capitalize()} since the start", value)

    def text(self) -> bytes:
        """All of them in Prometheus' format."""
        return generate_latest(self.registry)


def add_operations(app: FastAPI, metrics: Metrics, policy: ThresholdPolicy, admin_token: str | None = None) -> None:
    """
    Add `/metrics` and `/admin/threshold`.

    Args:
        app (`FastAPI`): The app.
        metrics ([`Metrics`]): The numbers.
        policy ([`ThresholdPolicy`]): What is turned.
        admin_token (`str`, *optional*):
            Bearer token of `/admin/threshold`. Without one, or with an empty one, it answers to this machine alone.
    """
    check = make_check(admin_token)

    @app.get("/metrics")
    async def tell_metrics() -> Response:
        return Response(metrics.text(), media_type=CONTENT_TYPE_LATEST)

    @app.get("/admin/threshold")
    async def tell_threshold(http_request: Request) -> dict[str, Any]:
        check(http_request)
        return describe(policy)

    @app.post("/admin/threshold")
    async def set_threshold(http_request: Request, body: Annotated[ThresholdRequest, Body()]) -> dict[str, Any]:
        check(http_request)
        policy.pin(body.threshold)
        return describe(policy)


def make_check(admin_token: str | None) -> Callable[[Request], None]:
    """A function that raises unless a request may turn the threshold."""

    def check(http_request: Request) -> None:
        if admin_token:
            given = http_request.headers.get("authorization", "").removeprefix("Bearer ")
            if not hmac.compare_digest(given.encode(), admin_token.encode()):
                raise APIError("`Authorization` must be the bearer token of the server.", "Authorization", 401)
        elif http_request.client is None or http_request.client.host not in LOOPBACK:
            raise APIError("Only this machine may do that: start the server with `--admin-token`.", status=403)

    return check


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
