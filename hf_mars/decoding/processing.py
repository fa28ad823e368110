"""Logits processors: position-wise ones are called once for all columns, others one position at a time."""

import copy

import torch
from transformers import LogitsProcessor, LogitsProcessorList
from transformers.generation import logits_process

from .acceptance import accepts, confidence, sample
from .compat import get_prefix_constraint
from .options import Mode
from .rows import Rows
from .sampling import SamplingParams, SamplingTensors, ends


__all__ = [
    "check_processors",
    "for_row",
    "is_position_wise",
    "process_drafts",
    "process_masks",
    "process_position_wise",
]

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
        values = processors(no_prefix, flat).view_as(selected)  # pyrefly: ignore[bad-argument-type]  # see below
        values[..., sampling.mask_token_id] = -torch.inf
        processed = values if len(rows.params) == len(scores) else processed.index_copy(0, rows.indices, values)
    return processed


def process_drafts(
    logits: torch.Tensor,
    scores: torch.Tensor,
    rows: Rows,
    sampling: SamplingTensors,
    sequences: torch.Tensor,
    uniforms: torch.Tensor | None,
) -> torch.Tensor:
    """
    Apply the processors that look at the tokens so far to each draft's position and the one after, in order, for as
    long as the draft before holds.

    Args:
        logits (`torch.FloatTensor` of shape `(rows, max_drafts + 1, vocab_size)`): Before any processor.
        scores (`torch.FloatTensor` of the same shape): After the position-wise ones.
        rows, sampling, sequences, uniforms: As for [`decide`].

    Returns:
        `torch.FloatTensor` of the same shape.
    """
    scores, max_drafts = scores.clone(), rows.drafts.shape[1]
    for index, prefix, num_drafts in list_prefixes(rows, sampling, sequences):
        params = sampling.params[index]
        for position in range(num_drafts + 1):
            column = max_drafts - num_drafts + position
            processed = process_position(params, prefix, logits[index, column])
            scores[index, column] = processed
            token = choose(params, processed, None if uniforms is None else uniforms[index, position])
            if position == num_drafts or token != rows.drafts[index, position]:
                break
            prefix = torch.cat([prefix, token[None]])
            if ends(params, prefix):
                break
    return scores


def process_masks(
    logits: torch.Tensor,
    scores: torch.Tensor,
    bonus_token: torch.Tensor,
    rows: Rows,
    sampling: SamplingTensors,
    thresholds: torch.Tensor,
    sequences: torch.Tensor,
    uniforms: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """
    Apply the processors that look at the tokens so far to the masks of lossy rows, in order, for as long as the mask
    before is accepted. Masks of verified rows only draft; their tokens meet those processors later.

    Args:
        logits (`torch.FloatTensor` of shape `(rows, num_masks, vocab_size)`): Before any processor.
        scores (`torch.FloatTensor` of the same shape): After the position-wise ones.
        bonus_token (`torch.LongTensor` of shape `(rows, 1)`): The token before the first mask.
        rows, sampling, thresholds, sequences, uniforms: As for [`decide`].

    Returns:
        `tuple(torch.FloatTensor, torch.LongTensor)`: the processed scores, and of shape `(rows,)` how many masks of
        each row may be accepted, as no others met the tokens before them.
    """
    scores, num_masks = scores.clone(), logits.shape[1]
    reach = [num_masks] * len(logits)
    for index, prefix, _ in list_prefixes(rows, sampling, sequences):
        params = sampling.params[index]
        if params.decoding.mode is not Mode.LOSSY:
            continue
        reach[index], token = 0, bonus_token[index, 0]
        for mask in range(min(num_masks, params.decoding.block_size - 1)):
            prefix = torch.cat([prefix, token[None]])
            if ends(params, prefix):
                break
            processed = process_position(params, prefix, logits[index, mask])
            scores[index, mask] = processed
            if not is_confident(params, processed, thresholds[index]):
                break
            reach[index] = mask + 1
            token = choose(params, processed, None if uniforms is None else uniforms[index, mask + 1])
    return scores, torch.tensor(reach, device=scores.device)


def list_prefixes(
    rows: Rows, sampling: SamplingTensors, sequences: torch.Tensor
) -> list[tuple[int, torch.Tensor, int]]:
    """Of each row that still decodes and has processors that look at the tokens so far: its place, tokens, drafts."""
    state = torch.stack([rows.ids, rows.lengths, rows.num_drafts, rows.is_active], dim=1).tolist()
    listed = []
    for index in sampling.with_prefix:
        row, length, num_drafts, is_active = state[index]
        if is_active:  # else done, in a batch that keeps its rows: a grammar would be asked beyond its end
            listed.append((index, sequences[row, :length], num_drafts))
    return listed


def process_position(params: SamplingParams, prefix: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """
    Apply a row's processors to the scores of the position after its true prefix.

    Raises:
        `ValueError`: If they leave no token but the mask token.
    """
    # To type checkers no operation of torch returns the `LongTensor` that processors ask for.
    processed = params.processors(prefix[None], scores[None])[0]  # pyrefly: ignore[bad-argument-type]
    processed[params.decoding.mask_token_id] = -torch.inf
    if torch.isneginf(processed).all():
        raise ValueError(
            "The logits processors (`logits_processor`, `prefix_allowed_tokens_fn`, `forced_eos_token_id`, ...) "
            "allow no token but the mask token, which is never generated."
        )
    return processed


def is_confident(params: SamplingParams, scores: torch.Tensor, threshold: torch.Tensor) -> bool:
    """Whether the token of a mask is accepted in lossy mode."""
    metric = params.decoding.metric
    return bool(accepts(confidence(scores[None], metric)[None], threshold[None], metric))


def choose(params: SamplingParams, scores: torch.Tensor, uniform: torch.Tensor | None) -> torch.Tensor:
    """The token of one position."""
    if uniform is None or not params.do_sample:
        return scores.argmax(-1)
    return sample(scores[None].softmax(-1), uniform[None])[0]


def for_row(processor: LogitsProcessor, row: int, num_rows: int) -> LogitsProcessor:
    """The processor as it applies to one row of the batch: some of transformers' own keep data for each row."""
    if isinstance(processor, logits_process.PrefixConstrainedLogitsProcessor):
        allowed, num_sequences = get_prefix_constraint(processor)
        prompt = row // num_sequences
        return logits_process.PrefixConstrainedLogitsProcessor(lambda _, prefix: allowed(prompt, prefix), 1)
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
