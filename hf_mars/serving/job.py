"""One sequence on its way through the scheduler."""

import logging
from collections.abc import Callable
from typing import Any

import torch
from transformers import PreTrainedModel

from ..decoding import MARSDecoder, SamplingParams, prepare
from ..decoding.plan import max_columns
from ..decoding.positions import get_switch_length
from ..decoding.sampling import read_row_threshold
from .policy import ThresholdPolicy
from .prefix_cache import PrefixCache
from .request import Failure, GenerationRequest, RequestOutput


__all__ = ["Job", "Sink", "count_slots", "get_max_length", "try_to_start"]

logger = logging.getLogger(__name__)

Sink = Callable[[RequestOutput | Failure], None]


class Job:
    """
    A request, and where it stands.

    Args:
        request ([`GenerationRequest`]): The request.
        sink (`Callable`): Gets each [`RequestOutput`], or one [`Failure`]; called from the scheduler's thread.
        num_slots (`int`): Slots that its keys and values may need.

    Attributes:
        token_ids (`list[int]`): What it has generated.
        is_started (`bool`): Whether it has a decoder of its own: until its prompt is read and it joins the batch.
        params ([`SamplingParams`]): How it decodes, once it was started.
        num_cached (`int`): Tokens of the prompt that were known from earlier ones.
        is_cancelled (`bool`): Whether nobody waits for it any more.
        reads_alone (`bool`): Whether its prompt may not be read with others, as that failed.
    """

    params: SamplingParams

    def __init__(self, request: GenerationRequest, sink: Sink, num_slots: int):
        self.request, self.sink, self.num_slots = request, sink, num_slots
        self.token_ids = list(request.generated_ids)
        self._decoder: MARSDecoder | None = None
        self.is_cancelled = self.reads_alone = False
        self.num_cached = 0

    @property
    def is_started(self) -> bool:
        return self._decoder is not None

    @property
    def decoder(self) -> MARSDecoder:
        """
        Its own decoder.

        Raises:
            `RuntimeError`: If it is not started.
        """
        if self._decoder is None:
            raise RuntimeError("The request has no decoder of its own: call `start` first.")
        return self._decoder

    def start(self, model: PreTrainedModel, policy: ThresholdPolicy, prefixes: PrefixCache | None = None) -> None:
        """
        Give it a decoder of its own, which `generate` prepares. What the request sets wins over the policy. What
        `prefixes` knows of its prompt is not read again.

        Raises:
            `TypeError`: As [`generate`].
            `ValueError`: As [`generate`].
        """
        request = self.request
        input_ids = torch.tensor([request.prompt_ids + self.token_ids], device=model.device)
        eos_token_id, pad_token_id = model.generation_config.eos_token_id, model.generation_config.pad_token_id
        if pad_token_id is None:  # nothing is padded here; without one `generate` warns
            pad_token_id = eos_token_id[0] if isinstance(eos_token_id, list) else eos_token_id
        self._decoder = decoder = prepare(
            model,
            input_ids,
            fill_in_policy(request.mars_arguments, policy),
            make_generator(request.seed, len(self.token_ids)),
            attention_mask=torch.ones_like(input_ids),  # a padding token in a prompt is a token like any other
            max_new_tokens=request.max_new_tokens - len(self.token_ids),
            pad_token_id=pad_token_id,
            **request.sampling,
        )
        self.params = decoder.batch.sampling.params[0]
        past = None if prefixes is None else prefixes.find(request.prompt_ids)
        self.num_cached = 0 if past is None else past.get_seq_length()
        if past is not None:
            decoder.batch.take_context(past)

    def leave_decoder(self) -> None:
        """Its prompt is read, and the batch goes on with what its decoder held."""
        self._decoder = None

    def start_over_alone(self) -> None:
        """Drop what was read of its prompt; it is read anew, without others."""
        self._decoder, self.reads_alone = None, True

    def cancel(self) -> None:
        """Nobody waits for it any more."""
        self.is_cancelled = True

    def add(self, token_ids: list[int]) -> None:
        """It has generated these."""
        self.token_ids += token_ids

    def read_threshold(self) -> float | None:
        """The threshold of its next step; `None` if that is planned."""
        return None if self.params.decoding.is_planned else read_row_threshold(self.params)

    def deliver(self, event: RequestOutput | Failure) -> None:
        """Hand an event to whoever waits; if nobody takes it, the job is cancelled."""
        try:
            self.sink(event)
        except Exception:
            logger.exception("Nobody took what a request generated: it is cancelled.")
            self.cancel()


def make_generator(seed: int | None, num_tokens: int) -> torch.Generator | None:
    """The random numbers of a request with a seed, but for those of tokens that it has already."""
    if seed is None:
        return None
    generator = torch.Generator().manual_seed(seed % 2**63)
    torch.rand(num_tokens, generator=generator)
    return generator


def fill_in_policy(mars_arguments: dict[str, Any], policy: ThresholdPolicy) -> dict[str, Any]:
    """
    The `mars_*` arguments of a request, with what the policy says where it sets nothing.

    Raises:
        `ValueError`: If it sets a metric alone.
    """
    arguments = dict(mars_arguments)
    verify = arguments.setdefault("mars_verify", policy.verify)
    if "mars_threshold" not in arguments:
        if "mars_metric" in arguments:
            raise ValueError("`mars_metric` needs a `mars_threshold` of its own: the server's is a probability.")
        threshold = policy.draft_threshold() if verify else policy.lossy_threshold
        if threshold is not None:
            arguments["mars_threshold"] = threshold
    return arguments


def get_max_length(model: PreTrainedModel) -> int:
    """Tokens that a request may reach: no more than change the rotary embedding of the requests beside it."""
    config = model.config.get_text_config()
    switch = get_switch_length(config)
    if switch is None or switch >= config.max_position_embeddings:
        return config.max_position_embeddings
    logger.warning(
        "Requests may have %d tokens, not %d: beyond, the rotary embedding changes for all requests of a batch.",
        switch,
        config.max_position_embeddings,
    )
    return switch


def count_slots(request: GenerationRequest, max_length: int, block_size: int) -> int:
    """
    The slots that the keys and values of a request may need.

    Args:
        request ([`GenerationRequest`]): The request.
        max_length (`int`): Tokens of the model's context.
        block_size (`int`): Block size where the request sets none.

    Raises:
        `ValueError`: If the prompt is empty, or too long together with the answer.
    """
    if not request.prompt_ids:
        raise ValueError("The prompt is empty: it needs at least one token.")
    length = len(request.prompt_ids) + request.max_new_tokens
    if length > max_length:
        raise ValueError(
            f"The prompt has {len(request.prompt_ids)} tokens, and with {request.max_new_tokens} new ones it is "
            f"longer than the {max_length} tokens of the model's context."
        )
    return length + max_columns(request.mars_arguments.get("mars_block_size", block_size))


def try_to_start(model: PreTrainedModel, policy: ThresholdPolicy) -> None:
    """
    Start a request that sets nothing itself, so that no client is told of the server's mistake as its own.

    Raises:
        `ValueError`: If the model's generation configuration spoils every such request.
    """
    try:
        Job(GenerationRequest([0], max_new_tokens=1), lambda event: None, num_slots=0).start(model, policy)
    except (TypeError, ValueError) as error:
        raise ValueError(f"No request can be served with this generation configuration: {error}") from error
