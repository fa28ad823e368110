"""The door: `generate` with the `mars_*` arguments."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from transformers import DynamicCache, GenerationMixin, PreTrainedModel, StoppingCriteriaList
from transformers.generation import StopStringCriteria
from transformers.generation.utils import GenerateOutput

from .decode import create_decoder, decode
from .decoder import MARSDecoder
from .drafting import draft
from .gated_adapter import get_gated_adapter
from .options import DecodingOptions, Mode, Threshold
from .output import MARSGenerateOutput
from .plain import generate_plainly
from .positions import get_switch_length
from .row_arguments import get_peft_arguments
from .streaming import AcceptedTokensStreamer
from .support import check_adapter, check_exact, check_supported


__all__ = ["generate", "prepare"]


@torch.no_grad()
def generate(
    *args,
    model: PreTrainedModel,
    mars_threshold: Threshold | None = None,
    mars_block_size: int | None = None,
    mars_verify: bool | str | None = None,
    mars_metric: str | None = None,
    **kwargs,
) -> MARSGenerateOutput | torch.Tensor:
    r"""
    [`~generation.GenerationMixin.generate`] that can add several tokens to a sequence with one forward pass.

    Without a `mars_*` argument it is `GenerationMixin.generate`, unchanged. With one, each step appends masks to the
    tokens so far, and one causal forward gives the next token and, at each mask, the one after (MARS, section 3.4):

    1. Build the window of every row, right-aligned over the batch: tokens that are decided but not in the cache yet,
       drafts (with `mars_verify`), and `mars_block_size - 1` masks, or what a [`Planner`] says.
    2. Forward all rows. Each sees its own slots of the cache alone, at its own length.
    3. Exclude the mask token, apply the logits processors, and take a token and a confidence at every column.
    4. The first token is the model's own autoregressive choice and always accepted. The masks are accepted from the
       left while their confidence passes `mars_threshold`. With `mars_verify` they are held as drafts instead: the
       next forward, which has to read them anyway, keeps those that the autoregressive choice agrees with.
    5. Judge the stopping criteria after each token, and cut there. Nothing after the cut is streamed, returned, scored
       or counted.
    6. Keep in the cache what was computed for real tokens. What was computed for masks is overwritten by the next step
       and never seen. Rows that are done leave the batch.

    Every `mars_*` argument may also be an attribute of a passed `generation_config`, or of the model's own; an
    argument wins, and a passed configuration wins over the model's.

    As the drafter of a bigger model of the same vocabulary, `bigger.generate(**inputs, assistant_model=model)`, the
    model proposes a block of tokens with each of its forwards, and the bigger model verifies them: its output is what
    it would be with any other drafter. `num_assistant_tokens` and `assistant_confidence_threshold` of this model's
    `generation_config` mean what they mean there, and `mars_block_size` is read from it too; with a block of 1 it is
    assisted decoding as of old. Thresholds, metric and `mars_verify` do not matter to drafts. See [`draft`].

    Args:
        args:
            Positional arguments of `GenerationMixin.generate`.
        model ([`PreTrainedModel`]):
            A model with a `config.mars`, see [`~hf_mars.enable_mars`]; bound by `model.generate`.
        mars_threshold (`float`, `torch.Tensor` or `Callable`, *optional*):
            How sure the model must be of a mask's token: a number, a tensor of shape `(batch_size,)` with a number for
            each row, or a function without arguments that returns either and is called at every step, so that it can
            be turned while text is generated. Between 0 and 1, or at least 0 for the entropy. A probability or margin
            of 1 is one token a forward: the plain path, without masks. With `mars_verify` it trades only speed, and
            without it each step is planned: how many drafts are verified, and after which of them masks follow, by
            what steps of each size took so far and by how often drafts of each confidence held; down to the plain step
            where masks do not pay, see [`Planner`]. Planned steps are not available with
            `cache_implementation="static"`, `use_cache=False`, tensor parallelism and `mars_verify="exact"`: there the
            threshold is 0.5.
        mars_block_size (`int`, *optional*):
            Most tokens that a forward may add to a row. Defaults to the block size of the training.
        mars_verify (`bool` or `str`, *optional*, defaults to `False`):
            Return what plain generation returns. In float32 and float64 greedy outputs are the same token for token;
            in half precision two forwards of different width can round differently and break a near tie, and with
            dynamic quantisation (int8, fp8) scales and roundings depend on the width of a forward. With sampling,
            every token has exactly the distribution of plain sampling, not the same random draws: the token at a
            position is the inverse of its cumulative distribution at a random number of its own, so that threshold,
            block size and plan do not change what a seed gives, see [`draw_uniforms`].
            With `"exact"` every token is computed to the bit as plain generation computes it, in half precision too:
            slower than `True`, and refused where it would not be faster than plain generation, see [`ExactForward`].
        mars_metric (`str`, *optional*, defaults to `"probability"`):
            What the confidence is: the `"probability"` of the most likely token (accept while at least the threshold),
            the `"entropy"` of the distribution in nats (while at most), or the `"margin"` between the probabilities of
            the two most likely tokens (while at least). Taken from the processed float32 scores without the mask
            token. With sampling it decides whether a token is drawn at all, whichever is drawn.
        kwargs:
            Keyword arguments of `GenerationMixin.generate`. Notes on some of them:

            - `logits_processor`, `prefix_allowed_tokens_fn`: processors that look at the prefix are called for one row
              and one position at a time, with the true tokens so far as `input_ids` of shape `(1, length)`; with
              `mars_verify` once for each generated token, in order, and what a mask proposes is not processed by
              them. In lossy mode a mask's position is processed too, and if the mask is not confident then, the next
              forward asks for that one position again. Where a criterion ends a row within a forward, positions after
              the cut may have been processed. So a processor that works from `input_ids` can be used in every mode;
              one that keeps a place of its own between calls, as xgrammar's does unless it is `stateless`, needs
              `mars_verify` and a batch of one, as the calls of several rows come in turns. No attribute tells them
              apart, so this is not checked.
            - `stopping_criteria`, `stop_strings`, `max_time`: called after each token of each row, with all rows as
              `input_ids` of shape `(batch_size, length)`, see [`StoppingRule`]. A row ends when its own value is true.
            - `streamer`: a batch of one. `put` gets the tokens of each forward as they are accepted, `end` comes once,
              also after an exception. A streamer with a method `put_accepted(token_ids, confidences)` gets that
              instead of `put`, see [`AcceptedTokensStreamer`].
            - `cache`: a [`DynamicCache`] of an earlier turn, updated in place. `use_cache=False` works.
            - `cache_implementation="static"`: preallocated storage and windows of `2 * mars_block_size - 1` columns,
              so that steps have static shapes and are compiled where `generate` compiles.

    Returns:
        [`MARSGenerateOutput`] if `return_dict_in_generate`, else a `torch.LongTensor` of shape `(batch_size,
        sequence_length)`.

    Raises:
        `TypeError`: If a `mars_*` argument has the wrong type.
        `ValueError`: If a `mars_*` argument is unknown or out of range; if the model has no `config.mars`; if another
            argument selects another strategy (`num_beams`, `penalty_alpha`, `assistant_model`,
            `prompt_lookup_num_tokens`, `use_mtp`, ...) or asks for what is not available (`output_attentions`,
            `output_hidden_states`, `guidance_scale`, `token_healing`, an offloaded or quantized cache); if a streamer
            meets a batch; or if the attention backend takes no mask where one is needed (flash attention with padding
            or a batch). The message names the argument and what to do.
    """
    kwargs = name_arguments(args, kwargs)
    given = {"mars_threshold": mars_threshold, "mars_block_size": mars_block_size}
    given |= {"mars_verify": mars_verify, "mars_metric": mars_metric}
    arguments = collect_mars_arguments(model, given, kwargs)
    if getattr(kwargs.get("generation_config"), "is_assistant", False):
        drafts: Any = generate_drafts(model, arguments, **kwargs)  # to the model that asked for them
        return drafts
    if not arguments or arguments == {"mars_verify": False}:
        with get_gated_adapter(model).attached():  # the base model itself
            return GenerationMixin.generate(model, **kwargs)
    if kwargs.get("streamer") is None:
        return generate_with_masks(model, arguments, **kwargs)
    streamer = AcceptedTokensStreamer(kwargs.pop("streamer"))
    try:
        return generate_with_masks(model, arguments, streamer=streamer, **kwargs)
    finally:
        streamer.end()  # a reader in another thread must not wait for ever


@torch.no_grad()
def prepare(
    model: PreTrainedModel,
    input_ids: torch.Tensor,
    mars_arguments: dict[str, Any],
    generator: torch.Generator | None = None,
    **kwargs,
) -> MARSDecoder:
    """
    What `generate` would run, before its first forward: for a loop of one's own, such as a server's.

    Args:
        model ([`PreTrainedModel`]): A model with a `config.mars`.
        input_ids (`torch.LongTensor` of shape `(batch_size, prompt_length)`): The prompts.
        mars_arguments (`dict`): The `mars_*` arguments of [`generate`].
        generator (`torch.Generator`, *optional*): Source of the random numbers, on the CPU.
        kwargs: Keyword arguments of `GenerationMixin.generate`, but for `streamer`, `synced_gpus` and `stop_strings`.

    Raises:
        `TypeError`: As [`generate`].
        `ValueError`: As [`generate`].
    """
    options = DecodingOptions.from_arguments(model, mars_arguments)
    if options.is_exact:
        raise ValueError("`mars_verify='exact'` is for `generate` alone: rows that join would change its forwards.")
    check_supported(make_lookup(model, kwargs))
    check_adapter(model)
    strategy = partial(create_decoder, options=options, generator=generator)
    decoder = GenerationMixin.generate(model, input_ids, custom_generate=strategy, **kwargs)
    if decoder.depends_on_forward:
        raise ValueError(
            f"The rotary embedding of {type(model).__name__} changes for a whole batch beyond "
            f"{get_switch_length(decoder.config)} tokens: shorten the prompt, or lower `max_new_tokens`."
        )
    return decoder


def generate_with_masks(
    model: PreTrainedModel, arguments: dict[str, Any], **kwargs
) -> MARSGenerateOutput | torch.Tensor:
    """Check a call with `mars_*` arguments, and choose between one and several tokens a forward."""
    options = DecodingOptions.from_arguments(model, arguments)
    lookup = make_lookup(model, kwargs)
    check_supported(lookup)
    check_adapter(model)
    if options.is_exact:
        check_exact(model, lookup)
    if options.mode is Mode.PLAIN:
        return generate_plainly(model, options, lookup, **kwargs)
    # A callable strategy does not get these three from `generate`.
    tokenizer, stop_strings = kwargs.pop("tokenizer", None), lookup("stop_strings")
    if stop_strings is not None and tokenizer is not None:
        criteria = StoppingCriteriaList(kwargs.get("stopping_criteria") or [])
        criteria.append(StopStringCriteria(tokenizer, stop_strings))
        kwargs.update(stopping_criteria=criteria, stop_strings=None)
    strategy = partial(decode, options=options, streamer=kwargs.get("streamer"), synced_gpus=kwargs.get("synced_gpus"))
    return GenerationMixin.generate(model, custom_generate=strategy, **kwargs)


def generate_drafts(model: PreTrainedModel, arguments: dict[str, Any], **kwargs) -> GenerateOutput:
    """Answer the `generate` of another model, which asks its `assistant_model` for drafts."""
    options = DecodingOptions.from_arguments(model, {**arguments, "mars_verify": True})  # by that other model
    # Where that one samples from another vocabulary, transformers puts a head of its own on this one.
    has_own_head = hasattr(model.get_output_embeddings(), "weight")
    if options.block_size == 1 or not has_own_head:
        with get_gated_adapter(model).attached():
            return GenerationMixin.generate(model, **kwargs)
    if kwargs.get("inputs_embeds") is not None:
        raise ValueError("`inputs_embeds` is not available with a MARS model as `assistant_model`: pass `input_ids`.")
    check_adapter(model)
    get_peft_arguments(model)  # for its errors
    if kwargs.get("cache") is None:
        kwargs["cache"] = DynamicCache()  # keeps everything, so that sliding-window layers can be cropped again
    return GenerationMixin.generate(model, custom_generate=partial(draft, options=options), **kwargs)


def make_lookup(model: PreTrainedModel, kwargs: dict[str, Any]) -> Callable[[str], Any]:
    """From the name of an argument to its value: of the call, its generation configuration, or the model's."""
    configs = [config for config in (kwargs.get("generation_config"), model.generation_config) if config is not None]

    def lookup(name: str) -> Any:
        values = [kwargs.get(name), *(getattr(config, name, None) for config in configs)]
        return next((value for value in values if value is not None), None)

    return lookup


def name_arguments(args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
    """All arguments of `GenerationMixin.generate` by name."""
    bound = inspect.signature(GenerationMixin.generate).bind(None, *args, **kwargs).arguments
    bound.pop("self")
    return {**bound.pop("kwargs", {}), **bound}


def collect_mars_arguments(model: PreTrainedModel, given: dict[str, Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The `mars_*` arguments of a call, else of its `generation_config`, else of the model's."""
    configs = [config for config in (model.generation_config, kwargs.get("generation_config")) if config is not None]
    fields = [item for config in configs for item in vars(config).items()]
    arguments = {name: value for name, value in fields if name.startswith("mars_") and value is not None}
    # Misspelt ones, still to be refused.
    arguments |= {name: kwargs.pop(name) for name in list(kwargs) if name.startswith("mars_")}
    return arguments | {name: value for name, value in given.items() if value is not None}
