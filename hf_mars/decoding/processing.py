"""Logits processors: position-wise ones are called once for all columns, others one position at a time."""

import copy

import torch
from transformers import LogitsProcessor, LogitsProcessorList
from transformers.generation import logits_process

from .acceptance import accepts, confidence, sample
from .options import Mode
from .rows import Rows
from .sampling import SamplingParams, SamplingTensors, ends


__all__ = ["check_processors", "for_row", "is_position_wise", "process_by_position", "process_position_wise"]

# They look at the scores of one position alone.
POSITION_WISE = (
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


def is_position_wise(processor: LogitsProcessor) -> bool:
    """Whether a processor looks at the scores of one position alone, so that a draft token may meet it."""
    return isinstance(processor, POSITION_WISE)


def process_position_wise(scores: torch.Tensor, sampling: SamplingTensors) -> torch.Tensor:
    """Apply every row's position-wise processors to its columns, of shape `(rows, columns, vocab_size)`."""
    processed = scores
    for rows in sampling.by_processors:
        processors = rows.params[0].position_wise
        if not processors:
            continue
        selected = scores if len(rows.params) == len(scores) else scores[rows.indices]
        flat = selected.reshape(-1, scores.shape[-1])
        no_prefix = torch.zeros(len(flat), 0, dtype=torch.long, device=scores.device)
        values = processors(no_prefix, flat).view_as(selected)
        values[..., sampling.mask_token_id] = -torch.inf
        processed = values if len(rows.params) == len(scores) else processed.index_copy(0, rows.indices, values)
    return processed


def process_by_position(
    logits: torch.Tensor,
    scores: torch.Tensor,
    rows: Rows,
    sampling: SamplingTensors,
    thresholds: torch.Tensor,
    uniforms: torch.Tensor | None,
    sequences: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """
    Apply the processors that look at the tokens so far: to each draft's position and the one after, and in lossy mode
    to each mask, in order, and for as long as the token before is accepted.

    Args:
        logits, rows, sampling, thresholds, sequences: As for [`decide`].
        scores (`torch.FloatTensor` of shape `(rows, columns, vocab_size)`): After the position-wise processors.
        uniforms (`torch.FloatTensor` of shape `(rows, 2, largest_block)`, *optional*): See [`draw_uniforms`].

    Returns:
        `tuple(torch.FloatTensor, torch.LongTensor)`: the processed scores, and of shape `(rows,)` how many masks of
        each row may be accepted, as no others met the tokens before them.
    """
    scores = scores.clone()
    max_drafts = rows.drafts.shape[1]
    num_masks = logits.shape[1] - max_drafts - 1
    reach = [num_masks] * len(logits)
    state = torch.stack([rows.ids, rows.lengths, rows.num_drafts, rows.is_active], dim=1).tolist()
    for index in sampling.with_prefix:
        params, (row, length, num_drafts, is_active) = sampling.params[index], state[index]
        if not is_active:  # done, in a batch that keeps its rows: a grammar would be asked beyond its end
            continue
        prefix = sequences[row, :length]
        is_lossy = params.decoding.mode is Mode.LOSSY
        num_own_masks = min(num_masks, params.decoding.block_size - 1) if is_lossy else 0
        if is_lossy:
            reach[index] = 0
        for position in range(num_drafts + 1 + num_own_masks):
            column = max_drafts - num_drafts + position
            processed = process_position(params, prefix, logits[index, column])
            scores[index, column] = processed
            if position < num_drafts:
                token = rows.drafts[index, position]
                if not holds(params, processed, rows, index, position, uniforms):
                    break
            else:
                mask = position - num_drafts  # 0 is the bonus token
                if mask > 0 and not is_confident(params, processed, thresholds[index]):
                    break
                if is_lossy:
                    reach[index] = mask
                token = choose(params, processed, None if uniforms is None else uniforms[index, 0, mask])
            prefix = torch.cat([prefix, token[None]])
            if ends(params, prefix):
                break
    return scores, torch.tensor(reach, device=scores.device)


def process_position(params: SamplingParams, prefix: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """
    Apply a row's processors to the scores of the position after its true prefix.

    Raises:
        `ValueError`: If they leave no token but the mask token.
    """
    processed = params.processors(prefix[None], scores[None])[0]
    processed[params.decoding.mask_token_id] = -torch.inf
    if torch.isneginf(processed).all():
        raise ValueError(
            "The logits processors (`logits_processor`, `prefix_allowed_tokens_fn`, `forced_eos_token_id`, ...) "
            "allow no token but the mask token, which is never generated."
        )
    return processed


def holds(
    params: SamplingParams,
    scores: torch.Tensor,
    rows: Rows,
    index: int,
    position: int,
    uniforms: torch.Tensor | None,
) -> bool:
    """Whether a draft is accepted, see [`verify_greedily`] and [`rejection_sample`]."""
    draft = rows.drafts[index, position]
    if not params.do_sample:
        return bool(scores.argmax(-1) == draft)
    proposed = rows.draft_probabilities[index, position, draft]
    return bool(uniforms[index, 1, position] * proposed < scores.softmax(-1)[draft])


def is_confident(params: SamplingParams, scores: torch.Tensor, threshold: torch.Tensor) -> bool:
    """Whether the token of a mask is accepted in lossy mode."""
    metric = params.decoding.metric
    return bool(accepts(confidence(scores[None], metric)[None], threshold[None], metric))


def choose(params: SamplingParams, scores: torch.Tensor, uniform: torch.Tensor | None) -> torch.Tensor:
    """The token of one position."""
    if not params.do_sample:
        return scores.argmax(-1)
    return sample(scores[None].softmax(-1), uniform[None])[0]


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
