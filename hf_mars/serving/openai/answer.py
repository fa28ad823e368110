"""One choice of an answer as it grows."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from ...decoding import AcceptanceCounts
from ..request import RequestOutput, TokenLogprob
from .stop_strings import StoppingTextStream


__all__ = ["Answer"]


@dataclass
class Answer:
    """
    One choice as it grows.

    Args:
        index (`int`): Which choice it is.
        text_stream ([`StoppingTextStream`]): Turns its tokens into text.
    """

    index: int
    text_stream: StoppingTextStream
    text: str = ""
    num_forward_passes: int = 0
    finish_reason: str | None = None
    thresholds: list[float] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    counts: AcceptanceCounts = field(default_factory=AcceptanceCounts)
    text_offset: int = 0  # of the next token whose log-probability is told

    def add(self, output: RequestOutput) -> str:
        """Take in what a forward added, and return the text that can be shown now."""
        self.num_forward_passes += 1
        self.thresholds.append(output.threshold)
        self.counts.observe(output.num_draft_tokens, output.num_accepted_tokens)
        before = self.text_stream.num_tokens
        shown = self.text_stream.push(output.token_ids)
        if self.text_stream.is_stopped:
            self.finish_reason = "stop"
        elif output.finish_reason is not None:
            self.finish_reason = output.finish_reason
            shown += self.text_stream.finish()
            if self.text_stream.is_stopped:
                self.finish_reason = "stop"
        num_tokens = self.text_stream.num_tokens - before
        self.token_ids += output.token_ids[:num_tokens]
        self.logprobs += (output.logprobs or [])[:num_tokens]
        self.text += shown
        return shown

    def take_offsets(self, tokens: Sequence[str]) -> list[int]:
        """
        Where tokens begin in the text.

        Args:
            tokens (`Sequence[str]`): The texts of those that follow the ones of the call before.
        """
        *offsets, self.text_offset = accumulate(map(len, tokens), initial=self.text_offset)
        return offsets
