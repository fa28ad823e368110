"""Logits processors: called once for all columns where the prefix does not matter, else one position at a time."""

import copy

import torch
from transformers import LogitsProcessor, LogitsProcessorList
from transformers.generation import logits_process


__all__ = ["check_processors", "for_row", "is_prefix_free", "process_position"]

# They look at the scores of one position alone.
PREFIX_FREE = (
    logits_process.EpsilonLogitsWarper,
    logits_process.EtaLogitsWarper,
    logits_process.InfNanRemoveLogitsProcessor,
    logits_process.LogitNormalization,
    logits_process.MinPLogitsWarper,
    logits_process.SuppressTokensLogitsProcessor,
    logits_process.TemperatureLogitsWarper,
    logits_process.TopHLogitsWarper,
    logits_process.TopKLogitsWarper,
    logits_process.TopPLogitsWarper,
    logits_process.TypicalLogitsWarper,
)
# They carry a state from one call to the next, which a rejected token would spoil.
STATEFUL = (
    logits_process.SynthIDTextWatermarkLogitsProcessor,
    logits_process.UnbatchedClassifierFreeGuidanceLogitsProcessor,
)


def check_processors(processors: LogitsProcessorList) -> None:
    """
    Raises:
        `ValueError`: If a processor keeps a state from call to call.
    """
    for processor in processors:
        if isinstance(processor, STATEFUL):
            raise ValueError(
                f"`mars_threshold` does not work with {type(processor).__name__} (`guidance_scale`, "
                "`watermarking_config`), which keeps a state from one token to the next: leave one of them out."
            )


def is_prefix_free(processor: LogitsProcessor) -> bool:
    """Whether a processor looks at the scores of one position alone, so that a proposal may meet it."""
    return isinstance(processor, PREFIX_FREE)


def process_position(
    processors: LogitsProcessorList, prefix: torch.Tensor, scores: torch.Tensor, mask_token_id: int
) -> torch.Tensor:
    """
    Apply a row's processors to the scores of the position after its true prefix.

    Args:
        processors ([`LogitsProcessorList`]): Of the row, see [`for_row`].
        prefix (`torch.LongTensor` of shape `(length,)`): The true tokens so far, with the row's left padding.
        scores (`torch.FloatTensor` of shape `(vocab_size,)`): Scores, the mask token's at -inf.
        mask_token_id (`int`): Id of the mask token.

    Raises:
        `ValueError`: If they leave no token but the mask token.
    """
    processed = processors(prefix[None], scores[None])[0]
    processed[mask_token_id] = -torch.inf
    if torch.isneginf(processed).all():
        raise ValueError(
            "The logits processors (`logits_processor`, `prefix_allowed_tokens_fn`, `forced_eos_token_id`, ...) "
            "allow no token but the mask token, which is never generated."
        )
    return processed


def for_row(processor: LogitsProcessor, row: int, num_rows: int) -> LogitsProcessor:
    """The processor as it applies to one row of the batch: some of transformers' own keep data for each row."""
    if isinstance(processor, logits_process.PrefixConstrainedLogitsProcessor):
        allowed, batch_id = processor._prefix_allowed_tokens_fn, row // processor._num_beams
        return logits_process.PrefixConstrainedLogitsProcessor(lambda _, prefix: allowed(batch_id, prefix), 1)
    if isinstance(processor, logits_process.RepetitionPenaltyLogitsProcessor):
        lengths = processor.prompt_ignore_length
        if isinstance(lengths, torch.Tensor) and lengths.numel() > 1:
            return replaced(processor, prompt_ignore_length=prompt_slice(lengths, row, num_rows))
    if isinstance(processor, logits_process.EncoderRepetitionPenaltyLogitsProcessor):
        return replaced(processor, encoder_input_ids=prompt_slice(processor.encoder_input_ids, row, num_rows))
    if isinstance(processor, logits_process.EncoderNoRepeatNGramLogitsProcessor):
        ngrams = prompt_slice(processor.generated_ngrams, row, num_rows)
        return replaced(processor, batch_size=1, generated_ngrams=ngrams)
    return processor


def prompt_slice(values: torch.Tensor | list, row: int, num_rows: int) -> torch.Tensor | list:
    """The entry of a row among values with one entry a prompt; prompts repeat with `num_return_sequences`."""
    prompt = row // (num_rows // len(values))
    return values[prompt : prompt + 1]


def replaced(processor: LogitsProcessor, **attributes) -> LogitsProcessor:
    processor = copy.copy(processor)
    vars(processor).update(attributes)
    return processor
