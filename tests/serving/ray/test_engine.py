import asyncio

import pytest


pytest.importorskip("ray")

from ray.exceptions import ActorDiedError, ActorUnavailableError  # noqa: E402
from ray.serve.exceptions import BackPressureError  # noqa: E402

from hf_mars.serving import Failure, GenerationRequest, QueueFull, RequestOutput  # noqa: E402
from hf_mars.serving.engine import GenerationError  # noqa: E402
from hf_mars.serving.ray.engine import RayEngine  # noqa: E402


class Stream:
    """What a handle returns: events, and an error that cancelling raises too."""

    def __init__(self, *events):
        self.events, self.is_cancelled = list(events), False

    async def __anext__(self):
        await asyncio.sleep(0)
        event = self.events[0]
        if isinstance(event, Exception):
            raise event
        return self.events.pop(0)

    def cancel(self):
        self.is_cancelled = True
        if isinstance(self.events[0], Exception):
            raise self.events[0]


class Handle:
    """Gives out one stream after the other, and keeps the requests."""

    def __init__(self, *streams):
        self.streams, self.requests = iter(streams), []

    def options(self, **_):
        return self

    def remote(self, request):
        self.requests.append(request)
        return next(self.streams)


def collect(handle, requests, max_attempts=3):
    """All tokens of each request."""

    async def all_tokens(runs):
        return [token_id async for run in runs for token_id in run.token_ids]

    async def run():
        return [await all_tokens(runs) for runs in await RayEngine(handle, max_attempts).submit(requests)]

    return asyncio.run(run())


def full():
    return Stream(BackPressureError(4, 4, 429, 2.5))


def test_request_goes_on_elsewhere():
    request = GenerationRequest([1], 9, generated_ids=[5])
    unreachable = Stream(RequestOutput([8], 0.5), ActorUnavailableError("gone", b"x" * 16))
    handle = Handle(
        Stream(RequestOutput([6, 7], 0.5), ActorDiedError()),
        full(),
        unreachable,
        Stream(RequestOutput([9], 0.5, "stop")),
    )
    assert collect(handle, [request]) == [[6, 7, 8, 9]]
    assert [each.generated_ids for each in handle.requests] == [[5], [5, 6, 7], [5, 6, 7], [5, 6, 7, 8]]
    assert request.generated_ids == [5]
    assert unreachable.is_cancelled


def test_attempts_are_bounded():
    handle = Handle(*[Stream(ActorDiedError()) for _ in range(2)])
    with pytest.raises(GenerationError) as error:
        collect(handle, [GenerationRequest([1], 9)], max_attempts=2)
    assert error.value.status == 500


def test_full_queue_refuses_all_or_none():
    accepted = Stream(RequestOutput([6], 0.5), RequestOutput([7], 0.5))
    with pytest.raises(QueueFull) as error:
        collect(Handle(accepted, full(), full()), [GenerationRequest([1], 9)] * 3)
    assert error.value.retry_after == 3
    assert accepted.is_cancelled


def test_failure_of_a_request():
    with pytest.raises(GenerationError, match="too long") as error:
        collect(Handle(Stream(Failure("too long", status=400))), [GenerationRequest([1], 9)])
    assert error.value.status == 400
