"""Generation on replicas of Ray Serve: a request outlives the replica that serves it."""

import asyncio
import logging
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from ray.exceptions import RayActorError, RayError
from ray.serve.exceptions import BackPressureError, RayServeException, RequestCancelledError
from ray.serve.handle import DeploymentHandle, DeploymentResponseGenerator

from ..engine import GenerationError
from ..request import Failure, GenerationRequest, QueueFull, RequestOutput


__all__ = ["RayEngine"]

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_TRIES = 0.5


class RayEngine:
    """
    Replicas elsewhere, as an [`Engine`]. When a replica dies, its requests go on at another one from the tokens that
    have arrived.

    Args:
        handle (`DeploymentHandle`): The replicas, each a [`MARSReplica`].
        max_attempts (`int`): Replicas that may die on a request before it fails.
    """

    def __init__(self, handle: DeploymentHandle, max_attempts: int):
        self.handle, self.max_attempts = handle.options(method_name="generate", stream=True), max_attempts

    async def submit(self, requests: Sequence[GenerationRequest]) -> list["ReplicaOutputs"]:
        """See [`Engine.submit`]. Returns when each request has its first output."""
        outputs = [ReplicaOutputs(self.handle, request, self.max_attempts) for request in requests]
        starting = [asyncio.ensure_future(each.start()) for each in outputs]
        try:
            await asyncio.gather(*starting)
        except BaseException:
            for task in starting:
                task.cancel()
            await asyncio.gather(*starting, return_exceptions=True)
            for each in outputs:
                await each.aclose()
            raise
        return outputs

    @property
    def is_alive(self) -> bool:
        """Ray replaces replicas that die."""
        return True

    def close(self) -> None:
        """The replicas belong to the application, which outlives an ingress."""


class ReplicaOutputs:
    """The outputs of one request, from whichever replica lives."""

    def __init__(self, handle: DeploymentHandle, request: GenerationRequest, max_attempts: int):
        self.handle, self.request, self.max_attempts = handle, request, max_attempts
        self.token_ids = list(request.generated_ids)
        self.num_deaths = 0
        self.is_done = False
        self.first: RequestOutput | None = None
        self.stream: DeploymentResponseGenerator | None = handle.remote(request)

    async def start(self) -> None:
        """
        Wait for the first output.

        Raises:
            [`QueueFull`]: If too many requests wait for a replica.
            [`GenerationError`]: If the request fails.
        """
        self.first = await self._receive()

    def __aiter__(self) -> "ReplicaOutputs":
        return self

    async def __anext__(self) -> RequestOutput:
        output, self.first = self.first, None
        if output is None:
            if self.is_done:
                raise StopAsyncIteration
            output = await self._receive()
        return output

    async def aclose(self) -> None:
        """Free the row."""
        self.is_done, self.first = True, None
        self._drop()

    async def _receive(self) -> RequestOutput:
        event = None
        while event is None:
            event = await self._try()
        if isinstance(event, Failure):
            self.is_done, self.stream = True, None
            raise GenerationError(event)
        self.token_ids += event.token_ids
        if event.finish_reason is not None:
            self.is_done, self.stream = True, None
        return event

    async def _try(self) -> RequestOutput | Failure | None:
        """What the replica sends next, or nothing if the request has to go to another one."""
        if self.stream is None:
            self.stream = self.handle.remote(replace(self.request, generated_ids=list(self.token_ids)))
        try:
            return await anext(self.stream)
        except RequestCancelledError:  # closed meanwhile
            raise asyncio.CancelledError from None
        except BackPressureError as error:
            self.stream = None
            if self.num_deaths == 0:
                self.is_done = True
                raise QueueFull(math.ceil(error.retry_after_s or 1)) from error
            await asyncio.sleep(SECONDS_BETWEEN_TRIES)  # accepted once, it is not refused now
        except RayActorError as error:
            self._drop()  # a replica that is only out of reach would go on
            self.num_deaths += 1
            if self.num_deaths == self.max_attempts:
                logger.error("A request failed: %d replicas died on it.", self.num_deaths, exc_info=error)
                return Failure("Every replica that served the request died.", status=500)
            logger.warning("A replica died; its request goes on elsewhere after %d tokens.", len(self.token_ids))
        except (RayError, RayServeException) as error:
            logger.error("A request failed.", exc_info=error)
            return Failure(str(error), status=500)
        return None

    def _drop(self) -> None:
        stream, self.stream = self.stream, None
        if stream is not None:
            with suppress(RayError, RayServeException):  # of a stream that has failed already
                stream.cancel()
