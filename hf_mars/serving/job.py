"""One sequence on its way through the scheduler."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from transformers import PreTrainedModel

from ..decoding import MARSDecoder, prepare
from ..decoding.row_options import RowOptions
from .policy import ThresholdPolicy
from .request import Failure, GenerationRequest, Run


__all__ = ["Job", "Sink", "count_slots", "start", "take_over"]

logger = logging.getLogger(__name__)

Sink = Callable[[Run | Failure], None]

# Arguments of `generate` that a row of a shared batch cannot have, and their values here.
BATCH_ONLY = {
    "use_cache": True,
    "cache_implementation": None,
    "prefill_chunk_size": None,
    "max_time": None,
    "stop_strings": None,
    "num_return_sequences": 1,
    "return_dict_in_generate": False,
    "output_scores": False,
    "output_logits": False,
}


@dataclass(eq=False)
class Job:
    """
    A request, and where it stands.

    Args:
        request ([`GenerationRequest`]): The request.
        sink (`Callable`): Gets each [`Run`], or one [`Failure`]; called from the scheduler's thread.
        num_slots (`int`): Slots that its keys and values may need.
        token_ids (`list[int]`): What it has generated.
        decoder ([`MARSDecoder`], *optional*): Its own, until its prompt is read and it joins the batch.
        options ([`RowOptions`], *optional*): How it decodes.
        generator (`torch.Generator`, *optional*): Its random numbers.
        is_cancelled (`bool`): Whether nobody waits for it any more.
        reads_alone (`bool`): Whether its prompt may not be read with others, as that failed.
    """

    request: GenerationRequest
    sink: Sink
    num_slots: int
    token_ids: list[int] = field(default_factory=list)
    decoder: MARSDecoder | None = None
    options: RowOptions | None = None
    generator: torch.Generator | None = None
    is_cancelled: bool = False
    reads_alone: bool = False

    def __post_init__(self):
        self.token_ids = list(self.request.generated_ids)
        if self.request.seed is not None:
            # What an earlier attempt has drawn is not drawn again.
            seed = (self.request.seed + len(self.token_ids)) % 2**63
            self.generator = torch.Generator().manual_seed(seed)

    def read_threshold(self) -> float:
        """The threshold of its next step."""
        return self.options.read_threshold()


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
    return length + 2 * request.mars_arguments.get("mars_block_size", block_size)


def start(job: Job, model: PreTrainedModel, policy: ThresholdPolicy) -> None:
    """
    Give the job a decoder of its own, which `generate` prepares. What the request sets wins over the policy.

    Raises:
        As `generate`.
    """
    request = job.request
    arguments = dict(request.mars_arguments)
    verify = arguments.setdefault("mars_verify", policy.verify)
    if "mars_threshold" not in arguments:
        if "mars_metric" in arguments:
            raise ValueError("`mars_metric` needs a `mars_threshold` of its own: the server's is a probability.")
        arguments["mars_threshold"] = policy.draft_threshold if verify else policy.lossy_threshold
    input_ids = torch.tensor([request.prompt_ids + job.token_ids], device=model.device)
    eos_token_id, pad_token_id = model.generation_config.eos_token_id, model.generation_config.pad_token_id
    if pad_token_id is None:  # nothing is padded here; without one `generate` warns
        pad_token_id = eos_token_id[0] if isinstance(eos_token_id, list) else eos_token_id
    job.decoder = prepare(
        model,
        input_ids,
        arguments,
        job.generator,
        attention_mask=torch.ones_like(input_ids),  # a padding token in a prompt is a token like any other
        max_new_tokens=request.max_new_tokens - len(job.token_ids),
        pad_token_id=pad_token_id,
        **request.sampling,
    )
    job.options = job.decoder.options.rows[0]


def take_over(model: PreTrainedModel) -> None:
    """Take out of the model's generation configuration what only a batch of its own can have, and say so."""
    config = model.generation_config
    for name, value in BATCH_ONLY.items():
        given = getattr(config, name, value)
        if given not in (None, value):
            logger.warning("%s=%r of the generation configuration is not available in a server.", name, given)
        setattr(config, name, value)
