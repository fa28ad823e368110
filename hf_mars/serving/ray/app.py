"""An application for Ray Serve: replicas that come and go with the load, behind one app with OpenAI's API."""

import math
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Annotated, Any, Literal

import torch
from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field, model_validator
from ray import serve
from ray.serve.handle import DeploymentHandle
from transformers import AutoTokenizer

from ...modeling import AutoMARSModelForCausalLM, get_base_model
from ..engine import GenerationError, LocalEngine
from ..memory import KVBudget
from ..openai import build_app
from ..openai.limits import Limits
from ..policy import ThresholdPolicy
from ..request import Failure, GenerationRequest, Run
from ..scheduler import Scheduler
from .engine import RayEngine


__all__ = ["MARSIngress", "MARSReplica", "RaySettings", "build_ray_app"]

PositiveInt = Annotated[int, Field(ge=1)]


class RaySettings(BaseModel):
    """
    What is served, and by how many replicas.

    Args:
        checkpoint (`str`): Hub id or directory of a MARS checkpoint; every node must reach it.
        model_name (`str`, *optional*): The name that requests must give; by default the checkpoint as written.
        dtype (`str`, *optional*, defaults to `"float32"`): Of the weights.
        policy, threshold_min, threshold_max, verify (*optional*): See [`ThresholdPolicy`]. Each replica has its own.
        max_rows (`int`, *optional*, defaults to 16): Answers that one replica decodes at once.
        prefill_chunk (`int`, *optional*, defaults to 256): See [`Scheduler`].
        kv_memory (`float`, *optional*): See [`KVBudget`].
        max_prompt_tokens, max_output_tokens, max_n, max_body_bytes (*optional*): See [`Limits`].
        min_replicas, max_replicas (`int`, *optional*, defaults to 1 and 1): Bounds of the number of replicas.
        target_ongoing_requests (`float`, *optional*):
            Answers for each replica, waiting ones among them, that autoscaling aims at; by default `max_rows`.
        max_queued_requests (`int`, *optional*, defaults to 64):
            Answers that may wait for a replica; more get a 429. For a moment Ray counts those that find a free row
            too: more than this many at one instant are refused in any case.
        max_attempts (`int`, *optional*, defaults to 3): Replicas that may die on a request before it fails.
        drain_timeout (`float`, *optional*, defaults to 60): Seconds to finish for a replica that is stopped.
        num_cpus, num_gpus (`float`, *optional*, defaults to 1 and 0):
            Of each replica; without a GPU it decodes on the CPU.

    Raises:
        `ValueError`: If one is out of range, or unknown.
    """

    model_config = ConfigDict(extra="forbid")

    checkpoint: str
    model_name: str | None = None
    dtype: Literal["float32", "bfloat16", "float16", "float64"] = "float32"
    policy: str = "lossless"
    threshold_min: float = 0.5
    threshold_max: float = 0.95
    verify: bool = False
    max_rows: PositiveInt = 16
    prefill_chunk: PositiveInt = 256
    kv_memory: Annotated[float, Field(gt=0)] | None = None
    max_prompt_tokens: int | None = None
    max_output_tokens: int = 1024
    max_n: int = 8
    max_body_bytes: int = 1_000_000
    min_replicas: PositiveInt = 1
    max_replicas: PositiveInt = 1
    target_ongoing_requests: Annotated[float, Field(gt=0)] | None = None
    max_queued_requests: PositiveInt = 64
    max_attempts: PositiveInt = 3
    drain_timeout: Annotated[float, Field(ge=0)] = 60.0
    num_cpus: Annotated[float, Field(ge=0)] = 1.0
    num_gpus: Annotated[float, Field(ge=0)] = 0.0

    @model_validator(mode="after")
    def _check_fields(self) -> "RaySettings":
        if self.min_replicas > self.max_replicas:
            raise ValueError(
                f"`min_replicas` must not be above `max_replicas`, got {self.min_replicas} and {self.max_replicas}."
            )
        if self.max_queued_requests < self.max_n:
            raise ValueError(
                "`max_queued_requests` must be at least `max_n`, since the answers to one request wait together, got "
                f"{self.max_queued_requests} and {self.max_n}."
            )
        self.make_policy()
        self.make_limits()
        return self

    def make_policy(self) -> ThresholdPolicy:
        """The policy of one replica."""
        return ThresholdPolicy(self.policy, self.threshold_min, self.threshold_max, self.verify)

    def make_limits(self) -> Limits:
        """The limits of a request."""
        return Limits(self.max_prompt_tokens, self.max_output_tokens, self.max_n, self.max_body_bytes)


class MARSReplica:
    """
    A checkpoint and the scheduler that decodes with it.

    Args:
        settings ([`RaySettings`]): What to load.
    """

    def __init__(self, settings: RaySettings):
        model = AutoMARSModelForCausalLM.from_pretrained(settings.checkpoint, dtype=getattr(torch, settings.dtype))
        model = get_base_model(model).to("cuda" if settings.num_gpus else "cpu").eval()
        # Ray lets no more than `max_rows` requests in, but rows that were given up are free only after the next step.
        self.scheduler = Scheduler(
            model,
            settings.make_policy(),
            KVBudget(model, settings.kv_memory),
            settings.max_rows,
            max_queue=10 * settings.max_rows,
            prefill_chunk=settings.prefill_chunk,
        )
        self.engine = LocalEngine(self.scheduler)

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Run | Failure]:
        """The runs of a request. What fails is sent as a value: Ray would wrap an exception."""
        try:
            (runs,) = await self.engine.submit([request])
        except ValueError as error:
            yield Failure(str(error), status=400)
            return
        try:
            async for run in runs:
                yield run
        except GenerationError as error:
            yield Failure(str(error), error.status)
        finally:
            await runs.aclose()

    async def status(self) -> dict[str, Any]:
        """
        How busy it is, and what it has done; `handle.broadcast("status")` asks all replicas. To Ray it is a request
        like any other: it waits while all rows are taken.
        """
        return {
            "replica": serve.get_replica_context().replica_tag,
            "max_length": self.scheduler.max_length,
            "threshold": self.scheduler.policy.threshold(),
            **asdict(self.scheduler.load()),
            **asdict(self.scheduler.counts),
        }

    def check_health(self) -> None:
        """Called by Ray, which replaces a replica that raises."""
        if not self.scheduler.is_alive:
            raise RuntimeError("The scheduler has stopped.")


class MARSIngress:
    """
    The app with OpenAI's API, over the replicas.

    Args:
        settings ([`RaySettings`]): What is served.
        replicas (`DeploymentHandle`): The replicas.
    """

    def __init__(self, settings: RaySettings, replicas: DeploymentHandle):
        self.settings, self.replicas = settings, replicas

    async def __serve_build_asgi_app__(self) -> FastAPI:
        # Ray calls this where the app runs, since an app with routes that are closures does not travel.
        settings, status = self.settings, await self.replicas.status.remote()
        return build_app(
            RayEngine(self.replicas, settings.max_attempts),
            AutoTokenizer.from_pretrained(settings.checkpoint),
            settings.model_name or settings.checkpoint,
            status["max_length"],
            settings.make_limits(),
        )


def build_ray_app(settings: RaySettings) -> serve.Application:
    """
    The application, for `serve.run`. On the command line:

    ```bash
    serve run hf_mars.serving.ray.app:build_ray_app checkpoint=path/to/checkpoint max_replicas=4 num_gpus=1
    ```

    Args:
        settings ([`RaySettings`]): What is served, and by how many replicas.

    Example:

    ```python
    >>> from hf_mars.serving.ray.app import RaySettings, build_ray_app
    >>> from ray import serve

    >>> serve.run(build_ray_app(RaySettings(checkpoint="path/to/checkpoint", max_replicas=4, num_gpus=1)))
    ```
    """
    replica = serve.deployment(
        MARSReplica,
        ray_actor_options={"num_cpus": settings.num_cpus, "num_gpus": settings.num_gpus},
        autoscaling_config={
            "min_replicas": settings.min_replicas,
            "max_replicas": settings.max_replicas,
            "target_ongoing_requests": settings.target_ongoing_requests or settings.max_rows,
        },
        max_ongoing_requests=settings.max_rows,
        max_queued_requests=settings.max_queued_requests,
        backpressure_config={
            "status_code": 429,
            "retry_after_s": math.ceil(settings.max_queued_requests / (settings.max_rows * settings.max_replicas)),
        },
        graceful_shutdown_timeout_s=settings.drain_timeout,
    )
    # The replicas' queue is the one that refuses: here nothing may wait before it.
    capacity = settings.max_replicas * settings.max_rows + settings.max_queued_requests
    ingress = serve.deployment(serve.ingress()(MARSIngress), max_ongoing_requests=10 * capacity)
    return ingress.bind(settings, replica.bind(settings))
