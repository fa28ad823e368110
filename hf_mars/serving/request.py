"""What goes into the scheduler, and what comes out."""

from dataclasses import dataclass, field
from typing import Any, Literal


__all__ = ["Failure", "GenerationRequest", "QueueFull", "RequestOutput", "TokenLogprob"]


@dataclass
class GenerationRequest:
    """
    One sequence to generate.

    Args:
        prompt_ids (`list[int]`): Tokens of the prompt.
        max_new_tokens (`int`): Limit of the answer.
        mars_arguments (`dict`, *optional*): `mars_*` arguments of `generate` that the request sets itself.
        sampling (`dict`, *optional*): Other arguments of `generate`: `do_sample`, `temperature`, `top_p`, ...
        seed (`int`, *optional*): Seed of its own random numbers.
        num_logprobs (`int`, *optional*): How many alternatives of each token to tell; `None` for no log-probabilities.
        generated_ids (`list[int]`, *optional*): Tokens of an earlier attempt, to go on from.
    """

    prompt_ids: list[int]
    max_new_tokens: int
    mars_arguments: dict[str, Any] = field(default_factory=dict)
    sampling: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None
    num_logprobs: int | None = None
    generated_ids: list[int] = field(default_factory=list)


@dataclass
class TokenLogprob:
    """
    How likely the model found a token.

    Args:
        logprob (`float`): Natural logarithm of its probability, without temperature.
        alternatives (`list[tuple[int, float]]`): The most likely tokens and theirs.
    """

    logprob: float
    alternatives: list[tuple[int, float]]


@dataclass
class RequestOutput:
    """
    What one forward pass added to a sequence.

    Args:
        token_ids (`list[int]`): Tokens.
        threshold (`float`, *optional*): The threshold of the step; `None` if it was planned.
        finish_reason (`str`, *optional*): `"stop"` after an end-of-sequence token, `"length"` at the limit.
        logprobs (`list[TokenLogprob]`, *optional*): One for each token, where wanted.
        num_draft_tokens, num_accepted_tokens (`int`): Draft tokens of the forward, see [`AcceptanceCounts`].
    """

    token_ids: list[int]
    threshold: float | None
    finish_reason: Literal["stop", "length"] | None = None
    logprobs: list[TokenLogprob] | None = None
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0


@dataclass
class Failure:
    """
    The request ended with an error.

    Args:
        message (`str`): What went wrong.
        status (`int`): The HTTP status: 400 if the request is at fault, 500 if the server is, 503 if it shuts down.
    """

    message: str
    status: int


class QueueFull(Exception):
    """
    Raised where no more requests can wait.

    Args:
        retry_after (`int`): Seconds after which it may be worth another try.
    """

    def __init__(self, retry_after: int):
        super().__init__(f"The queue is full: try again in {retry_after} s.")
        self.retry_after = retry_after
