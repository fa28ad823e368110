"""Drafting for a bigger model: what a MARS model does as the `assistant_model` of transformers' assisted decoding."""

from typing import Any

import torch
from torch.nn.functional import pad
from transformers import Cache, GenerationConfig, LogitsProcessorList, PreTrainedModel, StoppingCriteriaList
from transformers.generation import GenerateDecoderOnlyOutput

from .decode import decoding_mode
from .gated_adapter import get_gated_adapter
from .options import DecodingOptions


__all__ = ["draft"]


def draft(
    model: PreTrainedModel,
    input_ids: torch.Tensor,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    *,
    options: DecodingOptions,
    **model_kwargs,
) -> GenerateDecoderOnlyOutput:
    """
    Propose the tokens that follow, a block with each forward, until a criterion stops it.

    A forward reads what is not in the cache yet, and masks. It gives the model's own next token and, at each mask, the
    one after. All of them are drafts, the masks' no less than the model's own, as the bigger model verifies them. So
    each is drawn from the very scores that are returned for it, which rejection sampling needs to know. If no
    criterion stops within a block (the number of drafts asked for, an end of sequence, a token less likely than
    `assistant_confidence_threshold`), the next forward reads it and drafts on.

    Args:
        model ([`PreTrainedModel`]): The model.
        input_ids (`torch.LongTensor` of shape `(1, length)`): All tokens so far.
        logits_processor, stopping_criteria, generation_config, model_kwargs: As prepared by `generate`, with a cache
            that can be cropped and holds the first of these tokens.
        options ([`DecodingOptions`]): Block size and mask token.

    Returns:
        [`~generation.GenerateDecoderOnlyOutput`]: the sequence with the drafts, the processed scores of each draft,
        and the cache, which has no masks.
    """
    for name in ("labels", "token_type_ids"):  # of other columns than those that are read here
        model_kwargs.pop(name, None)
    first_position = model_kwargs.pop("position_ids")[:, -1:] - (input_ids.shape[1] - 1)
    sequences, scores = input_ids, ()
    with decoding_mode(model):
        while True:
            block_size = min(options.block_size, generation_config.max_length - sequences.shape[1])
            block = read_block(model, sequences, first_position, block_size - 1, options.mask_token_id, **model_kwargs)
            for logits in block.unbind(1):
                # To type checkers no operation of torch returns a `LongTensor`.
                scores += (logits_processor(sequences, logits),)  # pyrefly: ignore[bad-argument-type]
                if generation_config.do_sample:
                    token = torch.multinomial(scores[-1].softmax(-1), num_samples=1)
                else:
                    token = scores[-1].argmax(-1, keepdim=True)
                sequences = torch.cat([sequences, token], dim=1)
                if stopping_criteria(sequences, scores).all():
                    fields: dict[str, Any] = {"sequences": sequences, "scores": scores}
                    return GenerateDecoderOnlyOutput(**fields, cache=model_kwargs["cache"])


def read_block(
    model: PreTrainedModel,
    sequences: torch.Tensor,
    first_position: torch.Tensor,
    num_masks: int,
    mask_token_id: int,
    *,
    cache: Cache,
    attention_mask: torch.Tensor | None,
    **model_kwargs,
) -> torch.Tensor:
    """
    Forward the tokens that are not in the cache, and masks.

    Args:
        sequences (`torch.LongTensor` of shape `(1, length)`): All tokens so far.
        first_position (`torch.LongTensor` of shape `(1, 1)`): Position of the first of them; below 0 with padding.
        num_masks (`int`): Masks.
        mask_token_id (`int`): Id of the mask token.
        cache ([`Cache`]): Keys and values of tokens; those of the tokens that are read are added.
        attention_mask (`torch.LongTensor` of shape `(1, at most length)`, *optional*): 0 where they are padding.
        model, model_kwargs: See [`draft`].

    Returns:
        `torch.FloatTensor` of shape `(1, 1 + num_masks, vocab_size)`: float32 logits after the last token and at the
        masks; the mask token's are -inf.
    """
    past_length = cache.get_seq_length()
    tokens = pad(sequences, (0, num_masks), value=mask_token_id)
    positions = first_position + torch.arange(past_length, tokens.shape[1], device=tokens.device)
    if attention_mask is not None:
        attention_mask = pad(attention_mask, (0, tokens.shape[1] - attention_mask.shape[1]), value=1)
    if "logits_to_keep" in model_kwargs:
        model_kwargs["logits_to_keep"] = num_masks + 1
    with get_gated_adapter(model).acting_on(num_masks):
        logits = model(
            input_ids=tokens[:, past_length:],
            attention_mask=attention_mask,
            position_ids=positions.clamp(min=0),
            cache=cache,
            return_dict=True,
            **model_kwargs,
        ).logits
    cache.crop(-num_masks)
    logits = logits[:, -num_masks - 1 :].to(device=tokens.device, dtype=torch.float32, copy=True)
    logits[..., mask_token_id] = -torch.inf
    return logits
