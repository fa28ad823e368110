"""One step's input: the known tokens of every row, right-aligned, followed by masks."""

from dataclasses import dataclass

import torch


__all__ = ["Window", "build_window"]


@dataclass(frozen=True)
class Window:
    """
    Columns of one forward. `tokens` are a row's pending tokens and drafts, `M` masks, `.` trash:

    ```
    row 0   . . [t t] M M M
    row 1   . . . [t] M M M         right-aligned, so the wanted logits are the last columns of every row
    ```

    Args:
        input_ids (`torch.LongTensor` of shape `(rows, width)`): Token ids.
        slots (`torch.LongTensor` of shape `(rows, width)`):
            Where each column's keys and values are written: `cursor + index`. Trash goes past the row's last mask,
            where no query sees it and the next window overwrites it.
        position_ids (`torch.LongTensor` of shape `(rows, width)`): Positions for the model.
    """

    input_ids: torch.Tensor
    slots: torch.Tensor
    position_ids: torch.Tensor


def build_window(
    tokens: torch.Tensor,
    counts: torch.Tensor,
    cursors: torch.Tensor,
    num_masks: int,
    mask_token_id: int,
    position_offset: torch.Tensor,
    last_position: torch.Tensor,
) -> Window:
    """
    Right-align the known tokens of every row and append the masks.

    Args:
        tokens (`torch.LongTensor` of shape `(rows, length)`): Known tokens without keys and values yet, left-aligned.
        counts (`torch.LongTensor` of shape `(rows,)`): How many of them are real, at least 1.
        cursors (`torch.LongTensor` of shape `(rows,)`): Committed length of each row.
        num_masks (`int`): Masks to append, `B - 1` for blocks of `B`; 0 makes a plain autoregressive step.
        mask_token_id (`int`): Id of the mask token.
        position_offset (`torch.LongTensor` of shape `(rows,)`): Position id of a slot minus its number.
        last_position (`torch.LongTensor` of shape `(rows,)`):
            Slot beyond which the positions of a row are clamped: nothing past it can be returned, and a learned
            position table may end there.
    """
    rows, length = tokens.shape
    column = torch.arange(length + num_masks, device=tokens.device)
    index = column - (length - counts)[:, None]
    known = tokens.gather(1, index[:, :length].clamp(min=0))
    masks = known.new_full((rows, num_masks), mask_token_id)
    slots = cursors[:, None] + index.remainder(length + num_masks)
    position_ids = (torch.minimum(slots, last_position[:, None]) + position_offset[:, None]).clamp(min=0)
    return Window(input_ids=torch.cat([known, masks], dim=1), slots=slots, position_ids=position_ids)
