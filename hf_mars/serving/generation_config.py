"""A checkpoint's generation configuration, as far as a server follows it."""

import copy
import logging

from transformers import GenerationConfig, PreTrainedModel

from ..decoding.support import NOT_AVAILABLE, OTHER_STRATEGIES


__all__ = ["NO_OTHER_CUTS", "follow_generation_config"]

logger = logging.getLogger(__name__)

# Arguments of `generate` for a request that says itself how to sample: nothing else cuts its distribution.
NO_OTHER_CUTS = {"top_k": 0} | dict.fromkeys(("min_p", "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff"))

# What a row of a shared batch cannot have: its value here, and what happens instead.
NOT_FOLLOWED = {
    **dict.fromkeys((*OTHER_STRATEGIES, "is_assistant"), (None, "answers are decoded with masks")),
    **dict.fromkeys(("num_beams", "num_beam_groups"), (1, "answers are decoded with masks, without beams")),
    **dict.fromkeys(NOT_AVAILABLE, (None, "it is left out")),
    "guidance_scale": (1, "there is no guidance"),
    "watermarking_config": (None, "answers have no watermark"),
    "max_time": (None, "answers end at their length"),
    "stop_strings": (None, "a request has `stop`"),
    "num_return_sequences": (1, "a request has `n`"),
    **dict.fromkeys(
        ("output_scores", "output_logits", "return_dict_in_generate"), (False, "a request has `logprobs`")
    ),
    "use_cache": (True, "the server has a cache of its own"),
    "cache_implementation": (None, "the server has a cache of its own"),
    "prefill_chunk_size": (None, "the server has a `prefill_chunk` of its own"),
}


def follow_generation_config(model: PreTrainedModel) -> PreTrainedModel:
    """
    The same model, modules and weights, with a generation configuration of its own that a server can follow. A
    warning names what is left out, and what happens instead.

    Args:
        model ([`PreTrainedModel`]): The model, which stays as it is.
    """
    own = copy.copy(model)
    own.generation_config = leave_out(model.generation_config)
    return own


def leave_out(config: GenerationConfig) -> GenerationConfig:
    """A copy of a generation configuration, without what a server cannot follow."""
    own, left_out = copy.deepcopy(config), []
    for name, (value, instead) in NOT_FOLLOWED.items():
        given = getattr(own, name, None)
        if given is not None:  # some are arguments of `generate` alone
            setattr(own, name, value)
        if given not in (None, value) and (given or value):  # where nothing is the value here, nothing is all right
            left_out.append(f"`{name}={given!r}` ({instead})")
    if left_out:
        logger.warning("The server cannot follow the generation configuration in %s.", ", ".join(left_out))
    return own
