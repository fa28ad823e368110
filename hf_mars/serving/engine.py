"""From the scheduler's thread to asyncio."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from .job import Job
from .request import Failure, GenerationRequest, RequestOutput
from .scheduler import Scheduler


__all__ = ["Engine", "GenerationError", "LocalEngine", "RequestOutputs"]


class GenerationError(Exception):
    """
    A request ended with an error.

    Args:
        failure ([`Failure`]): What the scheduler said.
    """

    def __init__(self, failure: Failure):
        super().__init__(failure.message)
        self.status = failure.status


class RequestOutputs(Protocol):
    """The outputs of one request, an asynchronous iterator that can be closed early."""

    def __aiter__(self) -> "RequestOutputs": ...

    async def __anext__(self) -> RequestOutput: ...

    async def aclose(self) -> None: ...


class Engine(Protocol):
    """What generates for the app: this process's scheduler, or replicas elsewhere."""

    async def submit(self, requests: Sequence[GenerationRequest]) -> Sequence[RequestOutputs]:
        """
        Start requests, all or none.

        Returns:
            `Sequence[RequestOutputs]`: The outputs of each. Closing an iterator (`aclose`) ends its request; it raises
            [`GenerationError`] if the request fails.

        Raises:
            `ValueError`: If a request can never be served.
            [`QueueFull`]: If too many wait.
        """

    @property
    def is_alive(self) -> bool:
        """Whether it takes requests."""

    def close(self) -> None:
        """Take no more requests, and return when those that are there are done."""


class LocalEngine:
    """
    The scheduler of this process.

    Args:
        scheduler ([`Scheduler`]): The scheduler.
    """

    def __init__(self, scheduler: Scheduler):
        self.scheduler = scheduler

    async def submit(self, requests: Sequence[GenerationRequest]) -> Sequence[RequestOutputs]:
        """See [`Engine.submit`]."""
        loop = asyncio.get_running_loop()
        queues: list[asyncio.Queue[RequestOutput | Failure]] = [asyncio.Queue() for _ in requests]

        def make_sink(queue: asyncio.Queue):
            def sink(event: RequestOutput | Failure) -> None:
                if not loop.is_closed():
                    loop.call_soon_threadsafe(queue.put_nowait, event)

            return sink

        jobs = self.scheduler.submit(requests, [make_sink(queue) for queue in queues])
        return [OutputIterator(self.scheduler, job, queue) for job, queue in zip(jobs, queues, strict=True)]

    @property
    def is_alive(self) -> bool:
        """See [`Engine.is_alive`]."""
        return self.scheduler.is_alive

    def close(self) -> None:
        """See [`Engine.close`]."""
        self.scheduler.close()


class OutputIterator:
    """The outputs of one job. Unlike a generator it can be closed before it was started."""

    def __init__(self, scheduler: Scheduler, job: Job, queue: asyncio.Queue):
        self.scheduler, self.job, self.queue = scheduler, job, queue
        self.is_done = False

    def __aiter__(self) -> "OutputIterator":
        return self

    async def __anext__(self) -> RequestOutput:
        if self.is_done:
            raise StopAsyncIteration
        event = await self.queue.get()
        if isinstance(event, Failure):
            self.is_done = True
            raise GenerationError(event)
        self.is_done = event.finish_reason is not None
        return event

    async def aclose(self) -> None:
        if not self.is_done:
            self.is_done = True
            self.scheduler.cancel([self.job])
