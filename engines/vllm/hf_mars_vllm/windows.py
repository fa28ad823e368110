"""
What one forward reads of each row, and what it will read next.

```
 row 0   [t]  d d  M M M      t  last token    d  draft    M  mask    (block size 4)
 row 1   [t]  M M M
```

vLLM calls everything after `t` drafts. It verifies them from the left and adds the model's own next token; a mask
never holds, since its logit is -inf. What the model says at the masks are the next drafts, if all drafts held.
"""

from collections.abc import Sequence
from dataclasses import dataclass


__all__ = ["Window", "next_window", "read_windows"]


@dataclass(frozen=True)
class Window:
    """
    What a forward read of one row beside its last token.

    Args:
        num_drafts (`int`): Drafts, which come first.
        num_masks (`int`): Masks after them.
        first_mask (`int`): Row of the forward's logits that belongs to the first mask.
    """

    num_drafts: int
    num_masks: int
    first_mask: int

    @property
    def num_columns(self) -> int:
        return 1 + self.num_drafts + self.num_masks

    @property
    def mask_rows(self) -> range:
        """Rows of the forward's logits that belong to masks."""
        return range(self.first_mask, self.first_mask + self.num_masks)


def read_windows(num_drafted: Sequence[int], drafted: Sequence[int], mask_token_id: int) -> list[Window]:
    """
    Find the masks in what vLLM verified. It may have cut a window at its token budget, or filled one up.

    Args:
        num_drafted (`Sequence[int]`): For each row, how many tokens followed its last token.
        drafted (`Sequence[int]`): These tokens, of all rows one after the other.
        mask_token_id (`int`): Id of the mask token.
    """
    windows, start = [], 0
    for row, count in enumerate(num_drafted):
        tokens = drafted[start : start + count]
        num_drafts = tokens.index(mask_token_id) if mask_token_id in tokens else count
        # A row has one row of logits for its last token, and one for each token that follows.
        windows.append(Window(num_drafts, count - num_drafts, first_mask=start + row + num_drafts + 1))
        start += count
    return windows


def next_window(
    window: Window,
    num_gained: int,
    choices: Sequence[int],
    probabilities: Sequence[float] | None,
    threshold: float,
    num_masks: int,
    max_length: int,
    mask_token_id: int,
) -> list[int]:
    """
    The tokens that shall follow a row's last token in the next forward.

    Args:
        window ([`Window`]): What this forward read.
        num_gained (`int`): Tokens that it added to the row.
        choices (`Sequence[int]`): The model's most likely token at each mask of the window.
        probabilities (`Sequence[float]`, *optional*): Of these tokens; needed if there is a threshold.
        threshold (`float`): Propose tokens while their probability is at least this.
        num_masks (`int`): Masks to append.
        max_length (`int`): Most tokens to propose; masks are left out first.
        mask_token_id (`int`): Id of the mask token.
    """
    drafts = []
    if num_gained == window.num_drafts + 1:  # all drafts held, so the masks followed true tokens
        for index, choice in enumerate(choices):
            if threshold > 0 and probabilities is not None and probabilities[index] < threshold:
                break
            drafts.append(choice)
    return (drafts + [mask_token_id] * num_masks)[:max_length]
