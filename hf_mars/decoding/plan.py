"""What one step does with each row: how many drafts it verifies, and where masks follow."""

from dataclasses import dataclass

import torch


__all__ = ["Plan", "max_columns", "plan_fixed"]


@dataclass(frozen=True)
class Plan:
    """
    The shape of one step. No plan changes what a verified row generates, only how many forwards it takes.

    Args:
        num_drafts (`torch.LongTensor` of shape `(rows,)`):
            On the host: how many of its drafts each row verifies, from the left; the others are dropped.
        groups (`torch.LongTensor` of shape `(rows, num_groups)`):
            On the host: after how many drafts each group of masks follows. Whatever holds, the group after it drafts
            the next tokens; without such a group the next step of the row has no drafts. Repeated ones do no harm.
        num_masks (`int`): Masks of a group; 0 makes a plain autoregressive step of a row without drafts.
    """

    num_drafts: torch.Tensor
    groups: torch.Tensor
    num_masks: int

    @property
    def is_causal(self) -> bool:
        """Whether every column may see all that are before it: the only masks follow the last draft."""
        return self.num_masks == 0 or torch.equal(self.groups, self.num_drafts[:, None])

    @property
    def num_mask_columns(self) -> int:
        """Masks of all groups."""
        return self.groups.shape[1] * self.num_masks


def plan_fixed(num_drafts: torch.Tensor, num_masks: int) -> Plan:
    """All drafts, of shape `(rows,)`, then masks."""
    return Plan(num_drafts, num_drafts[:, None], num_masks)


def max_columns(block_size: int) -> int:
    """Columns of a step at most, for blocks of `block_size`: what the cache needs room for past the last token."""
    return 4 * block_size
