"""Requests to a scheduler, and what waits for their answers."""

import threading

import torch

from hf_mars.serving import Failure, GenerationRequest


WAYS = [
    {},
    {"mars_threshold": 0.4, "mars_verify": False},
    {"mars_threshold": 0.3, "mars_verify": True, "mars_block_size": 6},
    {"mars_threshold": 1.0},
    {"mars_threshold": 1.2, "mars_verify": False, "mars_metric": "entropy"},
]


class Collector:
    """A sink that can be waited for."""

    def __init__(self):
        self.outputs, self.failure, self.is_done = [], None, threading.Event()

    def __call__(self, event):
        if isinstance(event, Failure):
            self.failure = event
            self.is_done.set()
            return
        self.outputs.append(event)
        if event.finish_reason is not None:
            self.is_done.set()

    @property
    def token_ids(self):
        return [token for output in self.outputs for token in output.token_ids]

    def wait(self):
        assert self.is_done.wait(60), "the request does not end"
        return self


def request(number, **overrides):
    generator = torch.Generator().manual_seed(number)
    length = 3 + 7 * number % 23
    arguments = {
        "prompt_ids": torch.randint(5, 300, (length,), generator=generator).tolist(),
        "max_new_tokens": 24 + number % 9,
        "mars_arguments": WAYS[number % len(WAYS)],
        "sampling": {"eos_token_id": list(range(100, 160))} if number % 3 == 0 else {},
    }
    return GenerationRequest(**{**arguments, **overrides})


def run(scheduler, requests):
    collectors = [Collector() for _ in requests]
    for one, collector in zip(requests, collectors, strict=True):
        scheduler.submit([one], [collector])
    return [collector.wait() for collector in collectors]


def alone(scheduler, requests):
    return [run(scheduler, [one])[0] for one in requests]
