"""Masks of several tilings of one batch, over the keys and values of a clean stream that is not trained."""

from dataclasses import dataclass

import torch
from transformers import PreTrainedConfig
from transformers.masking_utils import or_masks

from ..decoding.masks import MaskPredicate, create_attention_mask
from .streams import IGNORED, Streams, build_streams, draw_phases


__all__ = ["MaskColumns", "build_mask_columns", "draw_tilings"]


@dataclass
class MaskColumns:
    """
    What a gated adapter is trained on: masks alone, as the clean columns they see were computed before. With B = 3, a
    response of five tokens and two tilings:

    ```
                clean, frozen           masks              teacher
             p0 p1 r2 r3 r4 r5 r6    M2 M3  M3 M4
    M2        x  x  .  .  .  .  .     x  .   .  .          what r2 predicts    tiling 0, block of r2, r3, r4
    M3        x  x  .  .  .  .  .     x  x   .  .          what r3 predicts
    M3        x  x  x  .  .  .  .     .  .   x  .          what r3 predicts    tiling 1, block of r3, r4, r5
    M4        x  x  x  .  .  .  .     .  .   x  x          what r4 predicts
    ```

    The last token of a block has no mask, other than in [`Streams`]: decoding reads B - 1 masks a forward, and where
    the clean stream does not learn, a mask that is never read has nothing to teach.

    Args:
        input_ids (`torch.LongTensor` of shape `(batch_size, num_columns)`): The mask token.
        position_ids (`torch.LongTensor`, same shape): The position of the token that a mask stands for.
        labels (`torch.LongTensor`, same shape): The token after it in the data, -100 in the filling of shorter rows.
        offsets (`torch.LongTensor`, same shape): Place of each mask in its block, from 0; -1 in the filling.
        sources (`torch.LongTensor`, same shape): Clean column of the token that a mask stands for. It is the teacher.
        key_positions (`torch.LongTensor` of shape `(batch_size, clean_length + num_columns)`): Positions of all keys.
        predicate (`Callable`): Who sees whom; queries count from 0, keys from the first clean column.
    """

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    labels: torch.Tensor
    offsets: torch.Tensor
    sources: torch.Tensor
    key_positions: torch.Tensor
    predicate: MaskPredicate

    @property
    def is_real(self) -> torch.Tensor:
        """Which columns are masks, of shape `(batch_size, num_columns)`; the others fill up shorter rows."""
        return self.offsets >= 0

    def attention_mask(self, config: PreTrainedConfig, dtype: torch.dtype):
        """The mask of the attention, in the form the model takes; see [`create_attention_mask`]."""
        return create_attention_mask(config, self.predicate, self.position_ids, self.key_positions, dtype)


def draw_tilings(
    inputs: dict[str, torch.Tensor], mask_token_id: int, block_size: int, num_phases: int, noisy_ratio: float = 1.0
) -> list[Streams]:
    """
    Tile the responses of a batch several times, with phases that differ and are drawn for each document. With as many
    phases as a block has tokens, every position starts a block once, and always in the same order.

    Args:
        inputs (`dict[str, torch.Tensor]`): A collated batch, see [`build_streams`].
        mask_token_id (`int`): Id of the mask token.
        block_size (`int`): Number of tokens in a block (B).
        num_phases (`int`): How many tilings.
        noisy_ratio (`float`, *optional*, defaults to 1.0): Share of the blocks that are masked, drawn at random.
    """
    # All of them leave nothing to draw.
    first = 0 if num_phases == block_size else draw_phases(inputs["input_ids"], block_size)
    steps = [index * block_size // num_phases for index in range(num_phases)]
    return [
        build_streams(
            **inputs,
            mask_token_id=mask_token_id,
            block_size=block_size,
            phase=(first + step) % block_size,
            noisy_ratio=noisy_ratio,
        )
        for step in steps
    ]


def build_mask_columns(
    tilings: list[Streams], length: int, block_size: int, mask_token_id: int, decay: float = 1.0
) -> MaskColumns:
    """
    Put the masks of several tilings of a batch side by side, in each row one tiling after the other.

    Args:
        tilings (`list[Streams]`): The batch, tiled.
        length (`int`): Number of clean columns.
        block_size (`int`): Number of tokens in a block (B).
        mask_token_id (`int`): Id of the mask token.
        decay (`float`, *optional*, defaults to 1.0):
            Share of the blocks that go on after each of their masks, drawn at random. A mask sees none after it, so
            the others say the same without it.

    Returns:
        [`MaskColumns`], of at least one column, which may be filling.
    """
    clean = tilings[0]

    def noisy(name: str, filling: int) -> torch.Tensor:
        # One column of filling, for a batch without any mask.
        columns = torch.cat([getattr(streams, name)[:, length:] for streams in tilings], dim=1)
        return torch.nn.functional.pad(columns, (0, 1), value=filling)

    offsets = noisy("offsets", -1)
    widths = [streams.offsets.shape[1] - length for streams in tilings] + [1]
    tiling = torch.arange(len(widths), device=offsets.device).repeat_interleave(
        torch.tensor(widths, device=offsets.device)
    )
    # Blocks are told apart by their tiling and their first token.
    block = tiling * length + noisy("sources", 0) - offsets.clamp(min=0)
    is_kept = (offsets >= 0) & (offsets < block_size - 1)
    if decay < 1:
        drawn = torch.rand(len(offsets), len(widths) * length, device=offsets.device).gather(1, block)
        is_kept &= drawn < decay**offsets
    counts = is_kept.sum(-1)
    width = max(int(counts.max()), 1)
    order = (~is_kept).long().argsort(dim=-1, stable=True)[:, :width]
    is_real = torch.arange(width, device=order.device) < counts[:, None]

    def kept(columns: torch.Tensor, filling: int) -> torch.Tensor:
        return columns.gather(1, order).where(is_real, filling)

    offsets, sources = kept(offsets, -1), kept(noisy("sources", 0), 0)
    position_ids, documents = kept(noisy("position_ids", 0), 0), kept(noisy("documents", 0), -1)
    first_token = sources - offsets  # of the block
    block = kept(block, -1)

    # Keys are the clean columns, then the masks: one table for each property that the predicate asks of a key.
    def of_keys(of_clean: torch.Tensor, of_masks: torch.Tensor) -> torch.Tensor:
        return torch.cat([of_clean[:, :length], of_masks], dim=1)

    key_documents = of_keys(clean.documents, documents)
    key_is_real = of_keys(clean.is_real, is_real)
    key_blocks = of_keys(torch.full_like(clean.documents, -2), block)

    def sees_clean(batch_idx, head_idx, q_idx, kv_idx):
        is_earlier = (kv_idx < length) & (kv_idx < first_token[batch_idx, q_idx])
        same_document = documents[batch_idx, q_idx] == key_documents[batch_idx, kv_idx]
        return is_earlier & same_document & key_is_real[batch_idx, kv_idx]

    def sees_masks(batch_idx, head_idx, q_idx, kv_idx):
        same_block = block[batch_idx, q_idx] == key_blocks[batch_idx, kv_idx]
        return (kv_idx >= length) & (kv_idx - length <= q_idx) & same_block

    return MaskColumns(
        input_ids=torch.full_like(sources, mask_token_id),
        position_ids=position_ids,
        labels=kept(noisy("shift_labels", IGNORED), IGNORED),
        offsets=offsets,
        sources=sources,
        key_positions=of_keys(clean.position_ids, position_ids),
        predicate=or_masks(sees_clean, sees_masks),
    )
