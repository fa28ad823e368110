"""The loop that `GenerationMixin.generate` calls once it has prepared its inputs."""

import torch
from transformers import (
    Cache,
    DynamicCache,
    GenerationConfig,
    LogitsProcessorList,
    PreTrainedModel,
    StoppingCriteriaList,
)
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled
from transformers.integrations.fsdp import is_fsdp_managed_module

from .options import DecodingOptions
from .output import MARSGenerateOutput, TokenRecord
from .processing import check_processors
from .rows import Step
from .strategy import MARSDecoder
from .streaming import RunStreamer


__all__ = ["create_decoder", "decode"]


def decode(
    model: PreTrainedModel,
    input_ids: torch.Tensor,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    *,
    options: DecodingOptions,
    streamer: RunStreamer | None = None,
    synced_gpus: bool | None = None,
    **model_kwargs,
) -> MARSGenerateOutput | torch.Tensor:
    """
    Decode a batch to its end.

    Args:
        model ([`PreTrainedModel`]): The model.
        input_ids (`torch.LongTensor` of shape `(batch_size, prompt_length)`): The prompts.
        logits_processor, stopping_criteria, generation_config, model_kwargs: As prepared by `generate`, which would
            pass arguments that are named here unprepared.
        options ([`DecodingOptions`]): How to decode.
        streamer ([`RunStreamer`], *optional*): Gets each run of tokens as it is accepted.
        synced_gpus (`bool`, *optional*): See `GenerationMixin.generate`.

    Returns:
        [`MARSGenerateOutput`] if `generation_config.return_dict_in_generate`, else the sequences, a `torch.LongTensor`
        of shape `(batch_size, sequence_length)`.
    """
    decoder = create_decoder(
        model,
        input_ids,
        logits_processor,
        stopping_criteria,
        generation_config,
        options=options,
        with_confidences=streamer is not None and streamer.wants_confidences,
        **model_kwargs,
    )
    if decoder.static and model._valid_auto_compile_criteria({"cache": decoder.cache}, generation_config):
        decoder.forward = model.get_compiled_call(generation_config.compile_config)
    if generation_config.prefill_chunk_size is not None:
        while decoder.rows.tokens.shape[1] > generation_config.prefill_chunk_size:
            decoder.prefill(generation_config.prefill_chunk_size)

    steps = []
    with model._optimize_model_for_decode():
        while model._has_unfinished_sequences(decoder.is_done, is_synced(model, synced_gpus), input_ids.device):
            if decoder.is_done:  # other processes still decode, and need this one's share of the weights
                model(input_ids=decoder.sequences[:1, :1], use_cache=False)
                continue
            step = decoder.step()
            steps.append(step)
            if streamer is not None:
                length = step.run_lengths[0]
                confidences = None if step.confidences is None else step.confidences[0, :length]
                streamer.put_run(step.runs[0, :length], confidences)

    batch_size, prompt_length = input_ids.shape
    run_lengths = collect_run_lengths(steps, batch_size)
    num_tokens = max(map(sum, run_lengths))
    sequences = decoder.sequences[:, : prompt_length + num_tokens]
    past, output_dict = decoder.past, generation_config.return_dict_in_generate
    if past is None and output_dict and batch_size == 1 and decoder.use_cache:
        past = DynamicCache(config=decoder.config)
    if past is not None:
        decoder.cache.store(past, max_length=decoder.context_length + num_tokens - 1)
    if not output_dict:
        return sequences
    records = {"scores": decoder.scores, "logits": decoder.logits}
    return MARSGenerateOutput(
        sequences=sequences,
        **{name: record and record.to_tuple(num_tokens) for name, record in records.items()},
        cache=past,
        num_forward_passes=len(steps),
        run_lengths=run_lengths,
    )


def create_decoder(
    model: PreTrainedModel,
    input_ids: torch.Tensor,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    *,
    options: DecodingOptions,
    with_confidences: bool = False,
    generator: torch.Generator | None = None,
    **model_kwargs,
) -> MARSDecoder:
    """
    The decoder of a batch, before its first forward.

    Args:
        with_confidences (`bool`, *optional*, defaults to `False`): Whether steps tell the confidence of their tokens.
        generator (`torch.Generator`, *optional*): Source of the random numbers, on the CPU.
        model, input_ids, logits_processor, stopping_criteria, generation_config, options, model_kwargs:
            See [`decode`].
    """
    for name in ("labels", "logits_to_keep", "streamer"):  # plain generation does not pass them on either
        model_kwargs.pop(name, None)
    attention_mask, position_ids, inputs_embeds, cache, use_cache = (
        model_kwargs.pop(name, None)
        for name in ("attention_mask", "position_ids", "inputs_embeds", "cache", "use_cache")
    )
    batch_size, prompt_length = input_ids.shape
    check_processors(logits_processor)
    past = cache if getattr(cache, "_is_user_defined", False) else None
    pad_token = generation_config._pad_token_tensor
    records = {
        name: TokenRecord(batch_size, prompt_length, input_ids.device)
        for name in ("scores", "logits")
        if generation_config.return_dict_in_generate and getattr(generation_config, f"output_{name}")
    }
    return MARSDecoder(
        model,
        options,
        input_ids,
        get_context_length(input_ids, attention_mask, inputs_embeds, past, generation_config),
        position_ids,
        logits_processor,
        stopping_criteria,
        attention_mask=attention_mask,
        inputs_embeds=inputs_embeds,
        past=past,
        use_cache=use_cache is not False,
        static=generation_config.cache_implementation == "static",
        do_sample=generation_config.do_sample,
        pad_token_id=0 if pad_token is None else int(pad_token),
        with_confidences=with_confidences,
        generator=generator,
        **records,
        **model_kwargs,
    )


def get_context_length(
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor | None,
    inputs_embeds: torch.Tensor | None,
    past: Cache | None,
    generation_config: GenerationConfig,
) -> int:
    """Number of slots before the first generated token: a passed cache may hold what `input_ids` leaves out."""
    past_length = 0 if past is None else past.get_seq_length()
    length = input_ids.shape[1] if inputs_embeds is None else inputs_embeds.shape[1]
    mask_length = (
        getattr(generation_config, "_mask_length", length) if attention_mask is None else attention_mask.shape[1]
    )
    if inputs_embeds is None and mask_length == length + past_length:
        length = mask_length
    if mask_length != length:
        raise ValueError(
            f"`attention_mask` covers {mask_length} positions, but there are {length}: it must cover the cache, if "
            "one is passed, and the prompt."
        )
    if length == 0:
        raise ValueError("`input_ids` is empty: pass at least one token.")
    if past_length >= length:
        raise ValueError(f"`cache` holds {past_length} positions, and nothing new follows: pass the new tokens too.")
    return length


def is_synced(model: PreTrainedModel, synced_gpus: bool | None) -> bool:
    """Whether all processes must run the same number of forwards, as `GenerationMixin.generate` decides it."""
    if synced_gpus is not None:
        return synced_gpus
    is_distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    world_size = torch.distributed.get_world_size() if is_distributed else 1
    return world_size > 1 and (is_deepspeed_zero3_enabled() or is_fsdp_managed_module(model))


def collect_run_lengths(steps: list[Step], batch_size: int) -> list[list[int]]:
    """For each row of the batch, the tokens that each of its forwards added."""
    run_lengths = [[] for _ in range(batch_size)]
    for step in steps:
        for row, run_length in zip(step.ids.tolist(), step.run_lengths.tolist(), strict=True):
            if run_length > 0:
                run_lengths[row].append(run_length)
    return run_lengths
