"""How much masks bring, by request."""

from dataclasses import dataclass


__all__ = ["Acceptance"]


@dataclass
class Acceptance:
    """
    Running means over forwards with masks: what they added to a row beside the model's own next token, and what they
    read beside its last token.

    Args:
        memory (`float`): Share of its weight that an observation keeps when the next one comes.
        num_forwards, num_tokens, num_columns (`float`, *optional*, defaults to 0.0): Weighted sums to begin with.
    """

    memory: float
    num_forwards: float = 0.0
    num_tokens: float = 0.0
    num_columns: float = 0.0

    def add(self, num_tokens: int, num_columns: int) -> None:
        """Record a forward."""
        self.num_forwards = self.memory * self.num_forwards + 1
        self.num_tokens = self.memory * self.num_tokens + num_tokens
        self.num_columns = self.memory * self.num_columns + num_columns

    def means(self, prior: "Acceptance", weight: float) -> tuple[float, float]:
        """Tokens and columns a forward, where another's means count as so many forwards."""
        total = self.num_forwards + weight
        tokens = self.num_tokens + weight * prior.num_tokens / prior.num_forwards
        columns = self.num_columns + weight * prior.num_columns / prior.num_forwards
        return tokens / total, columns / total
