"""Options of an application of Ray Serve."""

from dataclasses import field

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from ..checking_options import check_positive
from ..config import ServingConfig


__all__ = ["RayServingConfig"]


# Ray's command line gives text, which pydantic converts; it also refuses options that are unknown.
@dataclass(config=ConfigDict(extra="forbid"))
class RayServingConfig(ServingConfig):
    r"""
    Options of [`build_ray_app`]: those of [`ServingConfig`], which each replica takes for itself, and those of the
    cluster. Every node must reach the checkpoint.

    Parameters:
        min_replicas (`int`, *optional*, defaults to `1`):
            Lower bound of the number of replicas.
        max_replicas (`int`, *optional*, defaults to `1`):
            Upper bound of the number of replicas.
        target_ongoing_requests (`float`, *optional*):
            Answers for each replica, waiting ones among them, that autoscaling aims at. By default `max_rows`.
        max_queued_requests (`int`, *optional*, defaults to `64`):
            Answers that may wait for a replica; more get a 429. For a moment Ray counts those that find a free row
            too: more than this many at one instant are refused in any case.
        max_attempts (`int`, *optional*, defaults to `3`):
            Replicas that may die on a request before it fails.
        num_cpus (`float`, *optional*, defaults to `1.0`):
            CPUs of each replica.
        num_gpus (`float`, *optional*, defaults to `0.0`):
            GPUs of each replica; without one it decodes on the CPU.
    """

    min_replicas: int = field(default=1, metadata={"help": "Lower bound of the number of replicas."})
    max_replicas: int = field(default=1, metadata={"help": "Upper bound of the number of replicas."})
    target_ongoing_requests: float | None = field(
        default=None,
        metadata={
            "help": "Answers for each replica, waiting ones among them, that autoscaling aims at. By default "
            "`max_rows`."
        },
    )
    max_queued_requests: int = field(
        default=64,
        metadata={
            "help": "Answers that may wait for a replica; more get a 429. For a moment Ray counts those that find a "
            "free row too: more than this many at one instant are refused in any case."
        },
    )
    max_attempts: int = field(
        default=3,
        metadata={"help": "Replicas that may die on a request before it fails."},
    )
    num_cpus: float = field(default=1.0, metadata={"help": "CPUs of each replica."})
    num_gpus: float = field(
        default=0.0,
        metadata={"help": "GPUs of each replica; without one it decodes on the CPU."},
    )

    def __post_init__(self):
        super().__post_init__()
        check_positive(self, "min_replicas", "max_replicas", "target_ongoing_requests", "max_attempts")
        if self.min_replicas > self.max_replicas:
            raise ValueError(
                f"`min_replicas` must not be above `max_replicas`, got {self.min_replicas} and {self.max_replicas}."
            )
        if self.max_queued_requests < self.max_n:
            raise ValueError(
                "`max_queued_requests` must be at least `max_n`, since the answers to one request wait together, got "
                f"{self.max_queued_requests} and {self.max_n}."
            )
        for name in ("num_cpus", "num_gpus"):
            if getattr(self, name) < 0:
                raise ValueError(f"`{name}` must be at least 0, got {getattr(self, name)}.")
