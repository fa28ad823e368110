"""The door: `generate` with the `mars_*` arguments."""

import inspect
from functools import partial
from typing import Any

import torch
from transformers import GenerationMixin, LogitsProcessor, LogitsProcessorList, PreTrainedModel, StoppingCriteriaList
from transformers.generation import StopStringCriteria

from .decode import decode
from .options import DecodingOptions, Threshold
from .output import MARSGenerateOutput
from .support import check_supported


__all__ = ["generate"]


@torch.no_grad()
def generate(
    *args,
    model: PreTrainedModel,
    mars_threshold: Threshold | None = None,
    mars_block_size: int | None = None,
    mars_verify: bool | None = None,
    mars_metric: str | None = None,
    **kwargs,
) -> MARSGenerateOutput | torch.Tensor:
    r"""
    [`~generation.GenerationMixin.generate`] that can add several tokens to a sequence with one forward pass.

    Without a `mars_*` argument it is `GenerationMixin.generate`, unchanged. With one, each step appends masks to the
    tokens so far, and one causal forward predicts the next token and, at each mask, the token after (MARS section
    3.4):

    1. Build the window of every row: tokens decided but not yet in the cache, drafts (verify), and
       `mars_block_size - 1` masks, right-aligned over the batch.
    2. Forward all rows. Each sees its own slots of the cache only, at its own length.
    3. Exclude the mask token; choose a token and a confidence at every column.
    4. The first token is the model's own autoregressive choice and is always accepted. Masks are accepted from the
    left
       while their confidence is at least `mars_threshold`. With `mars_verify`, they are held as drafts instead, and
       the next forward, which must read them anyway, keeps those that the autoregressive choice agrees with.
    5. Cut at `max_new_tokens` or `max_length`, and at the first end-of-sequence token.
    6. Keep in the cache what was computed for real tokens. What was computed for masks is overwritten by the next
    step.

    Args:
        args:
            Positional arguments of `GenerationMixin.generate`.
        model ([`PreTrainedModel`]):
            A model with a `config.mars`, see [`~hf_mars.enable_mars`].
        mars_threshold (`float`, *optional*):
            Least probability, between 0 and 1, at which a mask's token is accepted. 1 is one token a forward, the
            plain path. With `mars_verify` it defaults to 0.5: drafts are checked, so it trades only speed.
        mars_block_size (`int`, *optional*):
            Most tokens that a forward may add to a row. Defaults to the block size of the training.
        mars_verify (`bool`, *optional*, defaults to `False`):
            Return exactly what plain generation returns. In float32 and float64 greedy outputs are the same token for
            token; in half precision two forwards of different width can break a tie differently.
        kwargs:
            Keyword arguments of `GenerationMixin.generate`. Greedy decoding of any batch size with left padding,
            `eos_token_id` (one or several), `max_new_tokens`, `max_length`, `streamer` and `return_dict_in_generate`
            are supported together with `mars_threshold`.

    Returns:
        [`MARSGenerateOutput`] if `return_dict_in_generate`, else a `torch.LongTensor` of shape `(batch_size,
        sequence_length)`.

    Raises:
        `TypeError`: If a `mars_*` argument has the wrong type.
        `ValueError`: If a `mars_*` argument is unknown or out of range, if the model has no `config.mars`, or if
        another
            argument asks for what multi-token decoding does not do. The message names the argument.
    """
    kwargs = name_arguments(args, kwargs)
    given = {"mars_threshold": mars_threshold, "mars_block_size": mars_block_size}
    given |= {"mars_verify": mars_verify, "mars_metric": mars_metric}
    options = DecodingOptions.from_arguments(model, collect_mars_arguments(given, kwargs))
    if options is None:
        return GenerationMixin.generate(model, **kwargs)

    configs = [config for config in (kwargs.get("generation_config"), model.generation_config) if config is not None]

    def lookup(name: str) -> Any:
        values = [kwargs.get(name), *(getattr(config, name, None) for config in configs)]
        return next((value for value in values if value is not None), None)

    check_supported(lookup)
    if options.is_autoregressive:
        return generate_autoregressively(model, options, lookup("eos_token_id"), **kwargs)
    # A callable strategy does not get these three from `generate`.
    tokenizer, stop_strings = kwargs.pop("tokenizer", None), lookup("stop_strings")
    if stop_strings is not None and tokenizer is not None:
        criteria = StoppingCriteriaList(kwargs.get("stopping_criteria") or [])
        criteria.append(StopStringCriteria(tokenizer, stop_strings))
        kwargs.update(stopping_criteria=criteria, stop_strings=None)
    strategy = partial(decode, options=options, streamer=kwargs.get("streamer"), synced_gpus=kwargs.get("synced_gpus"))
    return GenerationMixin.generate(model, custom_generate=strategy, **kwargs)


def name_arguments(args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
    """All arguments of `GenerationMixin.generate` by name."""
    bound = inspect.signature(GenerationMixin.generate).bind(None, *args, **kwargs).arguments
    bound.pop("self")
    return {**bound.pop("kwargs", {}), **bound}


def collect_mars_arguments(given: dict[str, Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The `mars_*` arguments of a call, or of its `generation_config` where the call leaves them out."""
    config = kwargs.get("generation_config")
    arguments = {} if config is None else {name: v for name, v in vars(config).items() if name.startswith("mars_")}
    # Misspelt ones, still to be refused.
    arguments |= {name: kwargs.pop(name) for name in list(kwargs) if name.startswith("mars_")}
    return arguments | {name: value for name, value in given.items() if value is not None}


def generate_autoregressively(
    model: PreTrainedModel, options: DecodingOptions, eos_token_id: int | list[int] | None, **kwargs
) -> MARSGenerateOutput | torch.Tensor:
    """One token a forward: the plain path, with the mask token excluded and the counts that come with the others."""
    processors = LogitsProcessorList(kwargs.pop("logits_processor", None) or [])
    processors.append(ExcludeMaskToken(options.mask_token_id))
    output = GenerationMixin.generate(model, logits_processor=processors, **kwargs)
    if isinstance(output, torch.Tensor):
        return output

    prompt = kwargs.get("inputs") if kwargs.get("inputs") is not None else kwargs.get("input_ids")
    generated = output.sequences[:, 0 if prompt is None else prompt.shape[1] :].tolist()
    eos_token_ids = set(torch.as_tensor([] if eos_token_id is None else eos_token_id).flatten().tolist())
    lengths = [next((i + 1 for i, token in enumerate(row) if token in eos_token_ids), len(row)) for row in generated]
    return MARSGenerateOutput(
        **output, num_forward_passes=len(generated[0]), run_lengths=[[1] * length for length in lengths]
    )


class ExcludeMaskToken(LogitsProcessor):
    """Makes the mask token impossible."""

    def __init__(self, mask_token_id: int):
        self.mask_token_id = torch.tensor([mask_token_id])

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        return scores.index_fill(-1, self.mask_token_id.to(scores.device), -torch.inf)
