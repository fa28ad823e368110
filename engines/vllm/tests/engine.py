"""Engines to compare, and how requests are sent to them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vllm import LLM, SamplingParams


__all__ = ["MARS", "Request", "greedy", "load", "run", "tokens_per_forward"]

MARS = {"model": "hf_mars_vllm.MARSProposer", "num_speculative_tokens": 6}
ALWAYS = {"automatic": False}  # masks for every row at every step: what is tested is whether answers stay the same


def load(
    checkpoint: Path,
    speculative_config: dict[str, Any] | None = None,
    mars: dict[str, Any] | None = None,
    **arguments,
) -> LLM:
    """
    An engine in this process.

    Args:
        checkpoint (`Path`): What it serves.
        speculative_config (`dict`, *optional*): Its speculative method; none by default.
        mars (`dict`, *optional*): Options of the proposer; masks for every row by default.
        arguments: As for `LLM`.
    """
    defaults = {
        "dtype": "float32",
        "enforce_eager": True,
        "enable_prefix_caching": False,
        "max_model_len": 384,
        "max_num_seqs": 16,
        "block_size": 32,
        "num_gpu_blocks_override": 256,
        "seed": 0,
    }
    return LLM(
        str(checkpoint),
        speculative_config=speculative_config and dict(speculative_config),
        additional_config={"mars": ALWAYS if mars is None else mars},
        **{**defaults, **arguments},
    )


@dataclass
class Request:
    """
    Args:
        prompt (`list[int]`): Token ids.
        params (`SamplingParams`): Its parameters.
        step (`int`, *optional*, defaults to 0): Step of the engine before which it comes in.
        abort_after (`int`, *optional*): Steps after which it is aborted.

    Attributes:
        answer (`CompletionOutput`): What vLLM said last: `token_ids`, `text`, `logprobs`, `finish_reason`.
        num_tokens, num_forwards (`int`): Tokens so far, and forwards that added some.
    """

    prompt: list[int]
    params: SamplingParams
    step: int = 0
    abort_after: int | None = None
    answer: Any = field(default=None, init=False)
    num_tokens: int = field(default=0, init=False)
    num_forwards: int = field(default=0, init=False)

    @property
    def token_ids(self) -> list[int]:
        return [] if self.answer is None else list(self.answer.token_ids)


def greedy(max_tokens: int = 48, **arguments) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=max_tokens, **arguments)


def run(llm: LLM, requests: Iterable[Request]) -> list[Request]:
    """Serve requests as they come in, and return them answered."""
    engine, requests = llm.llm_engine, list(requests)
    waiting = dict(enumerate(requests))
    step = 0
    while waiting or engine.has_unfinished_requests():
        for index, request in list(waiting.items()):
            if request.step <= step:
                engine.add_request(str(index), {"prompt_token_ids": request.prompt}, request.params)
                del waiting[index]
        for output in engine.step():
            request = requests[int(output.request_id)]
            request.answer = output.outputs[0]
            request.num_forwards += len(request.token_ids) > request.num_tokens
            request.num_tokens = len(request.token_ids)  # the list of the answer itself grows
        for index, request in enumerate(requests):
            if request.abort_after is not None and step == request.step + request.abort_after:
                engine.abort_request([str(index)])
        step += 1
    return requests


def tokens_per_forward(requests: list[Request]) -> float:
    return sum(request.num_tokens for request in requests) / sum(request.num_forwards for request in requests)
