"""The training input: a clean and a noisy copy of every sequence in one row, and who sees whom."""

from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedConfig
from transformers.masking_utils import or_masks

from ..decoding.masks import MaskPredicate, create_attention_mask


__all__ = ["IGNORED", "Streams", "build_streams", "draw_phases", "select_stream_inputs"]

IGNORED = -100
CLEAN, NO_BLOCK = -1, -2


@dataclass
class Streams:
    """
    Clean tokens, then masks, side by side in every row (section 3.2). With B = 2 and a response of five tokens:

    ```
                     clean                  noisy            target
                 p0 p1 r2 r3 r4 r5 r6    M2 M3 M4 M5
    clean  r4     x  x  x  x  x           .  .  .  .          r5
    noisy  M2     x  x  .  .  .  .  .     x  .  .  .          r3     block of r2, r3: sees the prompt
    noisy  M3     x  x  .  .  .  .  .     x  x  .  .          r4
    noisy  M4     x  x  x  x  .  .  .     .  .  x  .          r5     block of r4, r5
    noisy  M5     x  x  x  x  .  .  .     .  .  x  x          r6
    ```

    A mask stands at the position of a response token and predicts the token after it, as logits are right-shifted. The
    last token of a response has no target, and needs no mask. Only responses are copied: prompt copies train nothing.

    Args:
        input_ids (`torch.LongTensor` of shape `(batch_size, clean_length + noisy_length)`): Tokens, then masks.
        position_ids (`torch.LongTensor`, same shape): A mask has the position of the token it stands for.
        shift_labels (`torch.LongTensor`, same shape): The token to predict at each column, -100 where there is none.
        offsets (`torch.LongTensor`, same shape):
            Place of each mask in its block, from 0; -1 for clean tokens and for the filling of shorter rows.
        sources (`torch.LongTensor`, same shape): Clean column of the token itself, or of the one a mask stands for.
        documents (`torch.LongTensor`, same shape): Which document of a packed row a column belongs to.
        is_real (`torch.BoolTensor`, same shape): `False` for padding and for the filling of shorter rows.
    """

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    shift_labels: torch.Tensor
    offsets: torch.Tensor
    sources: torch.Tensor
    documents: torch.Tensor
    is_real: torch.Tensor
    predicate: MaskPredicate

    def attention_mask(self, config: PreTrainedConfig, dtype: torch.dtype):
        """The mask of equation 2, in the form the model takes; see [`create_attention_mask`]."""
        return create_attention_mask(config, self.predicate, self.position_ids, self.position_ids, dtype)


def select_stream_inputs(inputs: dict[str, Any]) -> dict[str, Any]:
    """Of a collated batch, what [`build_streams`] takes: two streams need no lengths of packed documents."""
    return {name: inputs[name] for name in ("input_ids", "labels", "attention_mask", "position_ids") if name in inputs}


def draw_phases(input_ids: torch.Tensor, block_size: int) -> torch.Tensor:
    """A random shift of the tiling for each document that a row may hold, see [`build_streams`]."""
    batch_size, length = input_ids.shape
    return torch.randint(block_size, (batch_size, length + 1), device=input_ids.device)


def build_streams(
    input_ids: torch.Tensor,
    labels: torch.Tensor,
    mask_token_id: int,
    block_size: int,
    attention_mask: torch.Tensor | None = None,
    position_ids: torch.Tensor | None = None,
    phase: int | torch.Tensor | None = None,
    noisy_ratio: float = 1.0,
) -> Streams:
    """
    Lay out one collated batch as two streams.

    Blocks of `block_size` tile each document, from its first token or at a random phase. The first block of a response
    runs from the response's first token to the next boundary, so no block reaches back into the prompt. A document
    begins wherever `position_ids` are 0; without them every row is one.

    Args:
        input_ids (`torch.LongTensor` of shape `(batch_size, length)`): Token ids.
        labels (`torch.LongTensor` of shape `(batch_size, length)`): -100 where a token is not supervised.
        mask_token_id (`int`): Id of the mask token.
        block_size (`int`): Number of tokens in a block (B).
        attention_mask (`torch.LongTensor` of shape `(batch_size, length)`, *optional*): 0 where padded.
        position_ids (`torch.LongTensor` of shape `(batch_size, length)`, *optional*):
            Positions within the documents of packed rows.
        phase (`int` or `torch.LongTensor` of shape `(batch_size, length + 1)`, *optional*):
            Shift of the tiling, or one for each document of each row; 0 puts the boundaries at multiples of
            `block_size`. Drawn by [`draw_phases`] by default.
        noisy_ratio (`float`, *optional*, defaults to 1.0): Share of the blocks that are masked, drawn at random.

    Returns:
        [`Streams`]
    """
    batch_size, length = input_ids.shape
    device = input_ids.device
    index = torch.arange(length, device=device).expand(batch_size, -1)
    is_real = torch.ones_like(input_ids, dtype=torch.bool) if attention_mask is None else attention_mask.bool()
    if position_ids is None:
        position = (is_real.long().cumsum(-1) - 1).clamp(min=0)
        document = torch.zeros_like(index)
    else:
        position = position_ids
        document = (position == 0).long().cumsum(-1)

    # 1. Responses: runs of supervised tokens. The first token of a document is never predicted, so never supervised.
    supervised = (labels != IGNORED) & is_real & (position > 0)
    follows = torch.nn.functional.pad(supervised[:, :-1], (1, 0))
    response_start = index.where(supervised & ~follows, -1).cummax(-1).values

    # 2. Blocks: from the boundary before the token, or from the start of its response if that is later
    if phase is None:
        phase = draw_phases(input_ids, block_size)
    if isinstance(phase, torch.Tensor):
        phase = phase.gather(1, document)
    block_start = torch.maximum(response_start, index - (position + phase) % block_size)

    # 3. Masks: one for every response token that has a next one, gathered to the left
    next_labels = torch.nn.functional.pad(labels[:, 1:], (0, 1), value=IGNORED)
    has_target = supervised & torch.nn.functional.pad(supervised[:, 1:], (0, 1))
    if noisy_ratio < 1:
        has_target &= torch.rand(batch_size, length, device=device).gather(1, block_start.clamp(min=0)) < noisy_ratio
    counts = has_target.sum(-1)
    noisy_length = int(counts.max())
    source = (~has_target).long().argsort(dim=-1, stable=True)[:, :noisy_length]
    is_mask = torch.arange(noisy_length, device=device) < counts[:, None]
    noisy_start = block_start.gather(1, source)
    noisy_labels = next_labels.gather(1, source).where(is_mask, IGNORED)

    # 4. Who sees whom (equation 2)
    seen_below = torch.cat([index + 1, noisy_start], dim=1)
    block = torch.cat([torch.full_like(index, CLEAN), noisy_start.where(is_mask, NO_BLOCK)], dim=1)
    documents = torch.cat([document, document.gather(1, source)], dim=1)
    visible = torch.cat([is_real, is_mask], dim=1)

    def sees_clean(batch_idx, head_idx, q_idx, kv_idx):
        is_earlier = (kv_idx < length) & (kv_idx < seen_below[batch_idx, q_idx])
        same_document = documents[batch_idx, q_idx] == documents[batch_idx, kv_idx]
        # Padding sees itself, so that no row of the mask is empty.
        return is_earlier & same_document & (visible[batch_idx, kv_idx] | (kv_idx == q_idx))

    def sees_noisy(batch_idx, head_idx, q_idx, kv_idx):
        same_block = block[batch_idx, q_idx] == block[batch_idx, kv_idx]
        return (kv_idx >= length) & (kv_idx <= q_idx) & same_block

    return Streams(
        input_ids=torch.cat([input_ids, torch.full_like(source, mask_token_id)], dim=1),
        position_ids=torch.cat([position, position.gather(1, source)], dim=1),
        shift_labels=torch.cat([next_labels, noisy_labels], dim=1),
        offsets=torch.cat([torch.full_like(index, -1), (source - noisy_start).where(is_mask, -1)], dim=1),
        sources=torch.cat([index, source], dim=1),
        documents=documents,
        is_real=visible,
        predicate=or_masks(sees_clean, sees_noisy),
    )
