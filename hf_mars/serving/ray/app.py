"""An application for Ray Serve: replicas that come and go with the load, behind one app with OpenAI's API."""

import math
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Any

from fastapi import FastAPI
from ray import serve
from ray.serve.handle import DeploymentHandle
from transformers import AutoTokenizer

from ...modeling import AutoMARSModelForCausalLM, get_base_model
from ...native_dtype import choose_dtype
from ..engine import GenerationError, LocalEngine
from ..openai import build_app
from ..request import Failure, GenerationRequest, RequestOutput
from .config import RayServingConfig
from .engine import RayEngine


__all__ = ["MARSIngress", "MARSReplica", "build_ray_app"]


class MARSReplica:
    """
    A checkpoint and the scheduler that decodes with it.

    Args:
        config ([`RayServingConfig`]): What to load.
    """

    def __init__(self, config: RayServingConfig):
        device = "cuda" if config.num_gpus else "cpu"
        dtype = choose_dtype(config.dtype, device)
        model = AutoMARSModelForCausalLM.from_pretrained(config.checkpoint, dtype=dtype)
        model = get_base_model(model).to(device).eval()
        # Ray lets no more than `max_rows` requests in, but rows that were given up are free only after the next step.
        self.scheduler = config.make_scheduler(model, max_queue=10 * config.max_rows)
        self.engine = LocalEngine(self.scheduler)

    async def generate(self, request: GenerationRequest) -> AsyncIterator[RequestOutput | Failure]:
        """The outputs of a request. What fails is sent as a value: Ray would wrap an exception."""
        try:
            (outputs,) = await self.engine.submit([request])
        except ValueError as error:
            yield Failure(str(error), status=400)
            return
        try:
            async for output in outputs:
                yield output
        except GenerationError as error:
            yield Failure(str(error), error.status)
        finally:
            await outputs.aclose()

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
        config ([`RayServingConfig`]): What is served.
        replicas (`DeploymentHandle`): The replicas.
    """

    def __init__(self, config: RayServingConfig, replicas: DeploymentHandle):
        self.config, self.replicas = config, replicas

    async def __serve_build_asgi_app__(self) -> FastAPI:
        # Ray calls this where the app runs, so that what the app holds need not travel.
        config, status = self.config, await self.replicas.status.remote()
        tokenizer: Any = AutoTokenizer.from_pretrained(config.checkpoint)
        return build_app(
            RayEngine(self.replicas, config.max_attempts),
            tokenizer,
            config,
            status["max_length"],
        )


def build_ray_app(config: RayServingConfig | dict[str, Any]) -> serve.Application:
    """
    The application, for `serve.run`. On the command line:

    ```bash
    serve run hf_mars.serving.ray.app:build_ray_app checkpoint=path/to/checkpoint max_replicas=4 num_gpus=1
    ```

    Args:
        config ([`RayServingConfig`] or `dict`):
            What is served, and by how many replicas. Ray's command line passes a dictionary of texts.

    Raises:
        `ValueError`: If an option is out of range, or unknown.

    Example:

    ```python
    >>> from hf_mars.serving.ray import RayServingConfig
    >>> from hf_mars.serving.ray.app import build_ray_app
    >>> from ray import serve

    >>> serve.run(build_ray_app(RayServingConfig(checkpoint="path/to/checkpoint", max_replicas=4, num_gpus=1)))
    ```
    """
    if isinstance(config, dict):
        config = RayServingConfig(**config)
    replica = serve.deployment(
        MARSReplica,
        ray_actor_options={"num_cpus": config.num_cpus, "num_gpus": config.num_gpus},
        autoscaling_config={
            "min_replicas": config.min_replicas,
            "max_replicas": config.max_replicas,
            "target_ongoing_requests": config.target_ongoing_requests or config.max_rows,
        },
        max_ongoing_requests=config.max_rows,
        max_queued_requests=config.max_queued_requests,
        backpressure_config={
            "status_code": 429,
            "retry_after_s": math.ceil(config.max_queued_requests / (config.max_rows * config.max_replicas)),
        },
        graceful_shutdown_timeout_s=config.drain_timeout,
    )
    # The replicas' queue is the one that refuses: here nothing may wait before it.
    capacity = config.max_replicas * config.max_rows + config.max_queued_requests
    ingress = serve.deployment(serve.ingress()(MARSIngress), max_ongoing_requests=10 * capacity)
    return ingress.bind(config, replica.bind(config))
