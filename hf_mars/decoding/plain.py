"""One token a forward: the path of transformers itself, with the counts that come with the others."""

from collections.abc import Callable, Collection
from typing import Any

import torch
from transformers import GenerationMixin, LogitsProcessor, LogitsProcessorList, PreTrainedModel, StoppingCriteriaList
from transformers.generation.utils import GenerateOutput

from .acceptance_counts import AcceptanceCounts, by_row
from .compat import run_plain_loop
from .gated_adapter import get_gated_adapter
from .options import DecodingOptions
from .output import MARSGenerateOutput
from .stopping import StoppingRule, get_pad_token_id


__all__ = ["ExcludeMaskToken", "count_plain", "generate_plainly", "sample_plainly"]


class ExcludeMaskToken(LogitsProcessor):
    """Makes the mask token impossible."""

    def __init__(self, mask_token_id: int):
        self.mask_token_id = torch.tensor([mask_token_id])

    def __call__(self, input_ids: torch.LongTensor, scores: torch.Tensor) -> torch.Tensor:
        return scores.index_fill(-1, self.mask_token_id.to(scores.device), -torch.inf)


def generate_plainly(
    model: PreTrainedModel, options: DecodingOptions, lookup: Callable[[str], Any], **kwargs
) -> MARSGenerateOutput | torch.Tensor:
    """
    `GenerationMixin.generate` with the mask token excluded.

    Args:
        model ([`PreTrainedModel`]): The model.
        options ([`DecodingOptions`]): Of mode `PLAIN`.
        lookup (`Callable[[str], Any]`): From the name of an argument to its value.
        kwargs: Keyword arguments of `GenerationMixin.generate`.
    """
    prompt = next((kwargs[name] for name in ("inputs", "input_ids") if kwargs.get(name) is not None), None)
    embeds = kwargs.get("inputs_embeds")
    given = prompt if prompt is not None else embeds
    options.read_threshold(batch_size=1 if given is None else len(given))  # for its errors
    processors = LogitsProcessorList(kwargs.pop("logits_processor", None) or [])
    processors.append(ExcludeMaskToken(options.mask_token_id))
    with get_gated_adapter(model).attached():
        output = GenerationMixin.generate(model, logits_processor=processors, **kwargs)
    # Without any input the prompt is one beginning-of-sequence token.
    prompt_length = prompt.shape[1] if prompt is not None else int(embeds is None)
    eos, pad = lookup("eos_token_id"), lookup("pad_token_id")
    # A row that another criterion ended is filled up as well.
    others = [lookup("stop_strings"), lookup("max_time"), kwargs.get("stopping_criteria")]
    fill = ((eos if isinstance(eos, int) else None) if pad is None else pad) if any(others) else None
    eos_token_ids = torch.as_tensor([] if eos is None else eos).flatten().tolist()
    return count_plain(output, prompt_length, eos_token_ids, fill)


def sample_plainly(
    model: PreTrainedModel,
    input_ids: torch.Tensor,
    logits_processor: LogitsProcessorList,
    options: DecodingOptions,
    stopping_criteria: StoppingCriteriaList,
    **kwargs,
) -> MARSGenerateOutput | torch.Tensor:
    """
    The plain loop of `generate` over what it has prepared, with the mask token excluded.

    Args:
        options ([`DecodingOptions`]): For the id of the mask token.
        model, input_ids, logits_processor, stopping_criteria, kwargs: See [`decode`].
    """
    processors = LogitsProcessorList([ExcludeMaskToken(options.mask_token_id), *logits_processor])
    output = run_plain_loop(
        model, input_ids, logits_processor=processors, stopping_criteria=stopping_criteria, **kwargs
    )
    stopping = StoppingRule(stopping_criteria, input_ids.shape[1], len(input_ids), options.mask_token_id)
    fill = get_pad_token_id(kwargs["generation_config"]) if stopping.others else None
    return count_plain(output, input_ids.shape[1], stopping.eos_token_ids, fill)


def count_plain(
    output: GenerateOutput | torch.Tensor, prompt_length: int, eos_token_ids: Collection[int], fill: int | None
) -> MARSGenerateOutput | torch.Tensor:
    """
    Add the counts of multi-token decoding to what plain generation returned; a tensor stays as it is.

    Args:
        output ([`GenerateOutput`] or `torch.Tensor`): What it returned.
        prompt_length (`int`): Length of the sequences before the first token.
        eos_token_ids (`Collection[int]`): Tokens that end a row.
        fill (`int`, *optional*): What fills a row that another criterion ended; `None` where there is none.
    """
    if isinstance(output, torch.Tensor):
        return output
    generated = output.sequences[:, prompt_length:].tolist()
    acceptance_lengths = []
    for row in generated:
        length = next((index + 1 for index, token in enumerate(row) if token in eos_token_ids), len(row))
        while fill is not None and length == len(row) > 1 and row[-1] == fill:
            row.pop()
            length -= 1
        acceptance_lengths.append([1] * length)
    return MARSGenerateOutput(
        **dict[str, Any](output),
        num_forward_passes=max(map(len, acceptance_lengths)),
        acceptance_lengths=acceptance_lengths,
        **by_row([AcceptanceCounts() for _ in generated]),
    )
