"""Text that ends before a stop string: nothing is shown that one might still swallow."""

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from ...text_stream import TextStream


__all__ = ["StoppingTextStream"]


class StoppingTextStream:
    """
    The text of one answer, up to a stop string.

    Args:
        tokenizer ([`PreTrainedTokenizerBase`]): The tokenizer.
        stop (`Sequence[str]`): Strings before which the answer ends.

    Attributes:
        is_stopped (`bool`): Whether a stop string was met.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, stop: Sequence[str] = ()):
        self.tokenizer, self.stop, self.is_stopped = tokenizer, list(stop), False
        self._stream, self._held = TextStream(tokenizer), ""

    @property
    def num_tokens(self) -> int:
        """Tokens up to the one that completed the stop string, or all of them."""
        return len(self._stream.token_ids)

    def push(self, token_ids: Sequence[int]) -> str:
        """
        Add tokens.

        Args:
            token_ids (`Sequence[int]`): The next tokens; those behind a stop string are left out.

        Returns:
            `str`: Text that can be shown now.
        """
        shown = ""
        for token_id in token_ids:
            if self.is_stopped:
                break
            shown += self._add(self._stream.push([token_id]))
        return shown

    def finish(self) -> str:
        """The rest of the text, once no token follows: what was held back, and characters that stay incomplete."""
        if self.is_stopped:
            return ""
        shown = self._add(self._stream.finish())
        if not self.is_stopped:
            shown, self._held = shown + self._held, ""
        return shown

    def _add(self, text: str) -> str:
        self._held += text
        found = [place for place in map(self._held.find, self.stop) if place >= 0]
        if found:
            self.is_stopped = True
            shown, self._held = self._held[: min(found)], ""
            return shown
        length = len(self._held) - self._length_to_hold()
        shown, self._held = self._held[:length], self._held[length:]
        return shown

    def _length_to_hold(self) -> int:
        """Length of the longest end of the held text that a stop string begins with."""
        longest = max(map(len, self.stop), default=0) - 1
        for length in range(min(longest, len(self._held)), 0, -1):
            if any(stop.startswith(self._held[-length:]) for stop in self.stop):
                return length
        return 0
