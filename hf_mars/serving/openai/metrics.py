"""Numbers for Prometheus."""

import time
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from ..scheduler import Scheduler
from .completing import Completing


__all__ = ["Metrics"]

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
            if value is not None:
                yield GaugeMetricFamily(name, description, value=value)
        counts = vars(self.scheduler.counts)
        for name, value in counts.items():
            if name != "spec_decode":
                yield make_counter(name, value)
        for name, value in vars(counts["spec_decode"]).items():
            yield make_counter(f"spec_decode_{name}", value)

    def text(self) -> bytes:
        """All of them in Prometheus' format."""
        return generate_latest(self.registry)


def make_counter(name: str, value: int | list[int]) -> CounterMetricFamily:
    """A counter, or one for each position in a draft."""
    description = f"{name.replace('_', ' ').capitalize()} since the start"
    if isinstance(value, int):
        return CounterMetricFamily(f"mars_{name}", description, value)
    family = CounterMetricFamily(f"mars_{name}", description, labels=["position"])
    for position, count in enumerate(value):
        family.add_metric([str(position)], count)
    return family
