"""What a batch starts from."""

from dataclasses import dataclass

import torch
from transformers import Cache, GenerationConfig

from .compat import get_mask_length


__all__ = ["Context", "get_context_length"]


@dataclass(frozen=True)
class Context:
    """
    The context of every row: all that comes before the first generated token.

    A *slot* is a place in the cache, counted from the start of the context; an *index* is a place in `sequences`. They
    differ where the context holds more than `input_ids`: embeddings, or the cache of an earlier turn.

    Args:
        input_ids (`torch.LongTensor` of shape `(batch_size, prompt_length)`): Left-padded prompts.
        length (`int`): Slots of the context: prompt, embeddings and what `past` holds.
        position_ids (`torch.LongTensor` of shape `(batch_size, length)`): Positions of the last slots of the context.
        attention_mask (`torch.LongTensor` of shape `(batch_size, context_length)`, *optional*): 0 where padded.
        inputs_embeds (`torch.FloatTensor` of shape `(batch_size, context_length, hidden_size)`, *optional*):
            Embeddings of the context, instead of tokens.
        past ([`Cache`], *optional*): Keys and values of an earlier turn. With it, no row leaves before all are done.
    """

    input_ids: torch.Tensor
    length: int
    position_ids: torch.Tensor
    attention_mask: torch.Tensor | None = None
    inputs_embeds: torch.Tensor | None = None
    past: Cache | None = None

    @property
    def slot_offset(self) -> int:
        """Slot of a token minus its index."""
        return self.length - self.input_ids.shape[1]


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
    mask_length = get_mask_length(generation_config, length) if attention_mask is None else attention_mask.shape[1]
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
