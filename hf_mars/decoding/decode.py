"""The loop that `GenerationMixin.generate` calls once it has prepared its inputs."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from transformers import (
    DynamicCache,
    GenerationConfig,
    LogitsProcessorList,
    PreTrainedModel,
    StoppingCriteriaList,
)
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled
from transformers.integrations.fsdp import is_fsdp_managed_module
from transformers.utils import logging

from .acceptance_counts import AcceptanceCounts, by_row
from .attention import EXACT_ATTENTION, WINDOW_ATTENTION, use_attention
from .batch import Batch
from .compat import can_compile, is_passed_by_user, optimized_for_decoding
from .context import Context, get_context_length
from .decoder import MARSDecoder
from .exact import ExactForward
from .gated_adapter import get_gated_adapter
from .options import DecodingOptions
from .output import MARSGenerateOutput, StepOutput, TokenRecord
from .plain import sample_plainly
from .positions import get_switch_length
from .processing import check_processors, for_row, is_position_wise
from .row_arguments import check_row_arguments, get_peft_arguments
from .sampling import SamplingParams
from .stopping import StoppingRule, get_pad_token_id
from .streaming import AcceptedTokensStreamer


__all__ = ["create_decoder", "decode", "decoding_mode"]

logger = logging.get_logger(__name__)


def decode(
    model: PreTrainedModel,
    input_ids: torch.Tensor,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    *,
    options: DecodingOptions,
    streamer: AcceptedTokensStreamer | None = None,
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
        streamer ([`AcceptedTokensStreamer`], *optional*): Gets the tokens of each forward as they are accepted.
        synced_gpus (`bool`, *optional*): See `GenerationMixin.generate`.

    Returns:
        [`MARSGenerateOutput`] if `generation_config.return_dict_in_generate`, else the sequences, a `torch.LongTensor`
        of shape `(batch_size, sequence_length)`.
    """
    decoder = create_decoder(
        model, input_ids, logits_processor, stopping_criteria, generation_config, options=options, **model_kwargs
    )
    batch, output_dict = decoder.batch, generation_config.return_dict_in_generate
    synced_gpus = is_synced(model, synced_gpus)
    if decoder.depends_on_forward:
        logger.warning_once(
            f"The rotary embedding of {type(model).__name__} changes beyond {get_switch_length(decoder.config)} "
            "tokens, and this call may go beyond: one token a forward. A smaller `max_new_tokens` allows several."
        )
        arguments = {"generation_config": generation_config, "synced_gpus": synced_gpus, "streamer": streamer}
        return sample_plainly(
            model, input_ids, logits_processor, options, stopping_criteria, **arguments, **model_kwargs
        )
    if generation_config.prefill_chunk_size is not None:
        while batch.rows.tokens.shape[1] > generation_config.prefill_chunk_size:
            decoder.prefill(generation_config.prefill_chunk_size)

    batch_size, prompt_length = input_ids.shape
    logits = TokenRecord(batch_size, input_ids.device) if output_dict and generation_config.output_logits else None
    returns = {
        "return_logits": logits is not None,
        "return_confidences": streamer is not None and streamer.wants_confidences,
    }
    outputs = []
    attention = EXACT_ATTENTION if options.is_exact else WINDOW_ATTENTION
    with decoding_mode(model, attention):
        while is_unfinished(batch.is_done, synced_gpus, input_ids.device):
            if batch.is_done:  # other processes still decode, and need this one's share of the weights
                model(input_ids=batch.sequences[:1, :1], use_cache=False)
                continue
            output = decoder.step(**returns)
            if logits is not None and output.logits is not None:
                logits.add(output.logits, output.ids, output.acceptance_lengths)
            if streamer is not None:
                length = output.acceptance_lengths[0]
                confidences = None if output.confidences is None else output.confidences[0, :length]
                streamer.put_accepted(output.accepted_tokens[0, :length], confidences)
            outputs.append(replace(output, logits=None))

    acceptance_lengths, counts = collect_counts(outputs, batch_size)
    num_tokens = max(map(sum, acceptance_lengths))
    sequences = batch.sequences[:, : prompt_length + num_tokens]
    past = batch.context.past
    if past is None and output_dict and batch_size == 1 and batch.use_cache:
        past = DynamicCache(config=decoder.config)
    if past is not None:
        batch.cache.store(past, max_length=batch.context.length + num_tokens - 1)
    if not output_dict:
        return sequences
    records = {"scores": decoder.scores, "logits": logits}
    fields: dict[str, Any] = {name: record and record.to_tuple(num_tokens) for name, record in records.items()}
    fields |= {"sequences": sequences, "cache": past, "num_forward_passes": len(outputs)}
    return MARSGenerateOutput(**fields, acceptance_lengths=acceptance_lengths, **by_row(counts))


@contextmanager
def decoding_mode(model: PreTrainedModel, attention: str = WINDOW_ATTENTION) -> Generator[None]:
    """
    What the forwards of decoders need of a model: attention for windows, and the gated adapter that is active.

    Args:
        model ([`PreTrainedModel`]): The model.
        attention (`str`, *optional*, defaults to `WINDOW_ATTENTION`): See [`use_attention`].
    """
    with use_attention(model, attention), get_gated_adapter(model).attached(), optimized_for_decoding(model):
        yield


def create_decoder(
    model: PreTrainedModel,
    input_ids: torch.Tensor,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    *,
    options: DecodingOptions,
    generator: torch.Generator | None = None,
    **model_kwargs,
) -> MARSDecoder:
    """
    The decoder of a batch, before its first forward.

    Args:
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
    check_processors(logits_processor)
    check_row_arguments(model_kwargs, batch_size=len(input_ids))
    past = cache if is_passed_by_user(cache) else None
    length = get_context_length(input_ids, attention_mask, inputs_embeds, past, generation_config)
    batch_size, prompt_length = input_ids.shape
    stopping = StoppingRule(stopping_criteria, prompt_length, batch_size, options.mask_token_id)
    static = generation_config.cache_implementation == "static"
    if static or use_cache is False or getattr(model, "tp_size", None):
        options = options.without_plan()  # all steps, or those of all processes, have the same shapes
    position_wise = LogitsProcessorList(filter(is_position_wise, logits_processor))
    params = [
        SamplingParams(
            decoding=options,
            index=row,
            num_rows=batch_size,
            max_length=stopping.max_length,
            eos_token_ids=stopping.eos_token_ids,
            do_sample=generation_config.do_sample,
            processors=LogitsProcessorList(for_row(p, row, batch_size) for p in logits_processor),
            position_wise=position_wise,
            generator=generator,
        )
        for row in range(batch_size)
    ]
    batch = Batch(
        Context(input_ids.long(), length, position_ids, attention_mask, inputs_embeds, past),
        params,
        model.config.get_text_config().num_hidden_layers,
        pad_token_id=get_pad_token_id(generation_config) or 0,
        use_cache=use_cache is not False,
        static=static,
        stopping=stopping if stopping.others else None,
        # PEFT has one adapter for each row of the call; plain decoding keeps all rows to the end.
        keeps_rows="adapter_names" in get_peft_arguments(model) or options.is_exact,
    )
    has_scores = generation_config.return_dict_in_generate and generation_config.output_scores
    forward: Callable | None = ExactForward(model, batch) if options.is_exact else None
    if batch.static and can_compile(model, batch.cache, generation_config):
        forward = model.get_compiled_call(generation_config.compile_config)
    return MARSDecoder(
        model,
        batch,
        scores=TokenRecord(batch_size, input_ids.device) if has_scores else None,
        forward=forward,
        **model_kwargs,
    )


def is_synced(model: PreTrainedModel, synced_gpus: bool | None) -> bool:
    """Whether all processes must run the same number of forwards, as `GenerationMixin.generate` decides it."""
    if synced_gpus is not None:
        return synced_gpus
    is_distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    world_size = torch.distributed.get_world_size() if is_distributed else 1
    return world_size > 1 and (is_deepspeed_zero3_enabled() or is_fsdp_managed_module(model))


def is_unfinished(is_done: bool, synced_gpus: bool, device: torch.device) -> bool:
    """Whether this process must run another forward: for its own rows or, with `synced_gpus`, for others."""
    if not synced_gpus:
        return not is_done
    num_unfinished = torch.tensor(0 if is_done else 1, device=device)
    torch.distributed.all_reduce(num_unfinished)
    return num_unfinished.item() > 0


def collect_counts(outputs: list[StepOutput], batch_size: int) -> tuple[list[list[int]], list[AcceptanceCounts]]:
    """For each row of the batch, the tokens that each of its forwards added, and the counts of its drafts."""
    acceptance_lengths, counts = [[] for _ in range(batch_size)], [AcceptanceCounts() for _ in range(batch_size)]
    for output in outputs:
        columns = (output.ids, output.acceptance_lengths, output.num_draft_tokens, output.num_accepted_tokens)
        for row, length, num_draft_tokens, num_accepted_tokens in torch.stack(columns, dim=1).tolist():
            if length > 0:
                acceptance_lengths[row].append(length)
                counts[row].observe(num_draft_tokens, num_accepted_tokens)
    return acceptance_lengths, counts
