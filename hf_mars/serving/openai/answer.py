"""One choice of an answer as it grows."""

from dataclasses import dataclass, field
from typing import Literal

from ...decoding import AcceptanceCounts
from ..request import RequestOutput
from .stop_strings import StoppingTextStream
from .told_tokens import TokenTeller, ToldToken


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
    finish_reason: Literal["stop", "length"] | None = None
    thresholds: list[float] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    teller: TokenTeller | None = None  # where log-probabilities are wanted
    tokens: list[ToldToken] = field(default_factory=list)
    counts: AcceptanceCounts = field(default_factory=AcceptanceCounts)

    def add(self, output: RequestOutput) -> str:
        """Take in what a forward added, and return the text that can be shown now."""
        self.num_forward_passes += 1
        if output.threshold is not None:
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
        self._name_tokens(output, num_tokens)
        self.text += shown
        return shown

    @property
    def told(self) -> list[ToldToken] | None:
        """The tokens to tell log-probabilities of: those of the text so far, and at the end also what is no text."""
        if self.teller is None:
            return None
        is_whole = self.finish_reason is not None and not self.text_stream.is_stopped
        return [token for token in self.tokens if is_whole or token.offset < len(self.text)]

    def _name_tokens(self, output: RequestOutput, num_tokens: int) -> None:
        if output.logprobs is None:
            return
        if self.teller is None:
            self.teller = TokenTeller(self.text_stream.tokenizer)
        for token_id, logprob in zip(output.token_ids[:num_tokens], output.logprobs, strict=False):
            self.tokens += self.teller.push(token_id, logprob)
        if self.finish_reason is not None:
            self.tokens += self.teller.finish()
