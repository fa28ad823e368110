"""One step's input: the known tokens of every row, right-aligned, followed by groups of masks."""

from dataclasses import dataclass

import torch


__all__ = ["Window", "build_window"]


@dataclass(frozen=True)
class Window:
    """
    Columns of one forward. `t` is a row's pending token, `d` are drafts, `M` masks, `.` trash:

    ```
    row 0   . . [t d d] M M M
    row 1   . . . . [t] M M M       right-aligned, so the wanted logits are the last columns of every row
    ```

    With several groups of masks, each stands for the tokens after another number of drafts, so that there are new
    drafts whichever of the old ones holds. A group sees the known tokens before it and itself:

    ```
    token      t  d1 d2 | M  M  | M  M  | M  M      groups after 0, 1 and 2 drafts
    slot       7  8  9  | 10 11 | 12 13 | 14 15     where keys and values are written
    position   7  8  9  | 8  9  | 9  10 | 10 11     what it stands for
    sees       -  -  -  | t     | t d1  | t d1 d2   and its own group up to itself
    ```

    Known tokens have the first slots, so those that hold stay where they are.

    Args:
        input_ids (`torch.LongTensor` of shape `(rows, width)`): Token ids.
        slots (`torch.LongTensor` of shape `(rows, width)`):
            Where each column's keys and values are written. Trash goes past the row's last mask, where no query sees
            it and the next window overwrites it.
        positions (`torch.LongTensor` of shape `(rows, width)`): The slot that each column stands for.
        num_seen (`torch.LongTensor` of shape `(rows, width)`): Leading slots that a column sees.
        first_slots (`torch.LongTensor` of shape `(rows, width)`): From where to itself it sees more: its own group.
        position_ids (`torch.LongTensor` of shape `(rows, width)`): Positions for the model.
    """

    input_ids: torch.Tensor
    slots: torch.Tensor
    positions: torch.Tensor
    num_seen: torch.Tensor
    first_slots: torch.Tensor
    position_ids: torch.Tensor


def build_window(
    tokens: torch.Tensor,
    counts: torch.Tensor,
    cursors: torch.Tensor,
    groups: torch.Tensor,
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
        groups (`torch.LongTensor` of shape `(rows, num_groups)`): After how many of `tokens` each group follows.
        num_masks (`int`): Masks of a group, `B - 1` for blocks of `B`.
        mask_token_id (`int`): Id of the mask token.
        position_offset (`torch.LongTensor` of shape `(rows,)`): Position id of a slot minus its number.
        last_position (`torch.LongTensor` of shape `(rows,)`):
            Slot beyond which the positions of a row are clamped: nothing past it can be returned, and a learned
            position table may end there.
    """
    length, num_groups = tokens.shape[1], groups.shape[1]
    width = length + num_groups * num_masks
    index = torch.arange(width, device=tokens.device) - (length - counts)[:, None]
    known = tokens.gather(1, index[:, :length].clamp(min=0))
    slots = cursors[:, None] + index.remainder(width)
    offsets = torch.arange(num_masks, device=tokens.device)
    ends = (cursors[:, None] + groups)[:, :, None].expand(-1, -1, num_masks)
    group_slots = slots[:, length:].unflatten(1, (num_groups, num_masks)) - offsets

    def with_masks(of_known: torch.Tensor, of_masks: torch.Tensor) -> torch.Tensor:
        return torch.cat([of_known, of_masks.flatten(1)], dim=1)

    positions = with_masks(slots[:, :length], ends + offsets)
    return Window(
        input_ids=torch.nn.functional.pad(known, (0, num_groups * num_masks), value=mask_token_id),
        slots=slots,
        positions=positions,
        num_seen=with_masks(slots[:, :length] + 1, ends),
        first_slots=with_masks(slots[:, :length], group_slots),
        position_ids=(torch.minimum(positions, last_position[:, None]) + position_offset[:, None]).clamp(min=0),
    )
