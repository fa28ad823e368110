"""How many drafts there were, and how many of them held."""

from dataclasses import dataclass, field, fields
from typing import Any


__all__ = ["AcceptanceCounts", "by_row"]


@dataclass
class AcceptanceCounts:
    """
    Counts of speculative decoding, with the names and definitions of vLLM. They are taken before a row is cut at its
    budget or its end. Verified decoding counts the draft tokens that a forward verified; lossy decoding counts the
    masks that a forward offered, which are its draft tokens.

    Args:
        num_drafts (`int`): Forwards that had at least one draft token.
        num_draft_tokens (`int`): Draft tokens.
        num_accepted_tokens (`int`): Draft tokens that were accepted; bonus tokens are not among them.
        num_accepted_tokens_per_pos (`list[int]`): The same for each position in the draft, the first one first.
    """

    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_accepted_tokens_per_pos: list[int] = field(default_factory=list)

    def observe(self, num_draft_tokens: int, num_accepted_tokens: int) -> None:
        """Count one forward of one row."""
        if num_draft_tokens == 0:
            return
        self.num_drafts += 1
        self.num_draft_tokens += num_draft_tokens
        self.num_accepted_tokens += num_accepted_tokens
        per_pos = self.num_accepted_tokens_per_pos
        per_pos.extend([0] * (num_draft_tokens - len(per_pos)))
        for position in range(num_accepted_tokens):
            per_pos[position] += 1

    def add(self, other: "AcceptanceCounts") -> None:
        """Count what another one has counted."""
        self.num_drafts += other.num_drafts
        self.num_draft_tokens += other.num_draft_tokens
        self.num_accepted_tokens += other.num_accepted_tokens
        per_pos = self.num_accepted_tokens_per_pos
        per_pos.extend([0] * (len(other.num_accepted_tokens_per_pos) - len(per_pos)))
        for position, count in enumerate(other.num_accepted_tokens_per_pos):
            per_pos[position] += count

    @property
    def acceptance_rate(self) -> float:
        """Accepted over draft tokens; 0 where nothing was drafted."""
        return self.num_accepted_tokens / self.num_draft_tokens if self.num_draft_tokens else 0.0

    @property
    def mean_acceptance_length(self) -> float:
        """Mean number of tokens that a forward with drafts decided: 1 + accepted tokens over drafts."""
        return 1 + self.num_accepted_tokens / self.num_drafts if self.num_drafts else 1.0


def by_row(counts: list[AcceptanceCounts]) -> dict[str, Any]:
    """Every count as a list with one entry a row."""
    return {field.name: [getattr(row, field.name) for row in counts] for field in fields(AcceptanceCounts)}
