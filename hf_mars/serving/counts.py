"""What a scheduler has done."""

from dataclasses import dataclass, field

from ..decoding import AcceptanceCounts


__all__ = ["Counts"]


@dataclass
class Counts:
    """
    What the scheduler has done since it started.

    Args:
        forward_passes (`int`): Decoding steps of the batch.
        row_forward_passes (`int`): The same, counted for each row.
        generated_tokens (`int`): Tokens.
        prompt_tokens (`int`): Tokens of prompts.
        cached_tokens (`int`): Of them, those that were known from earlier prompts.
        finished, failed, cancelled (`int`): Requests that ended so.
        spec_decode ([`AcceptanceCounts`]): Drafts of all requests.
    """

    forward_passes: int = 0
    row_forward_passes: int = 0
    generated_tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    finished: int = 0
    failed: int = 0
    cancelled: int = 0
    spec_decode: AcceptanceCounts = field(default_factory=AcceptanceCounts)

    def add(self, **numbers: int) -> None:
        """Count these, each by its name."""
        for name, number in numbers.items():
            setattr(self, name, getattr(self, name) + number)
