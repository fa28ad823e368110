"""Tokens to text that may be shown: whole characters, and nothing that a stop string might still swallow."""

import re
from collections.abc import Sequence

from tokenizers.decoders import DecodeStream
from transformers import PreTrainedTokenizerBase
from transformers.convert_slow_tokenizer import bytes_to_unicode


__all__ = ["TextStream", "token_bytes"]

BYTES = {character: byte for byte, character in bytes_to_unicode().items()}  # of byte-level tokenizers


class TextStream:
    """
    The text of one answer.

    Args:
        tokenizer ([`PreTrainedTokenizerBase`]): A fast tokenizer.
        stop (`Sequence[str]`): Strings before which the answer ends.

    Attributes:
        is_stopped (`bool`): Whether a stop string was met.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, stop: Sequence[str] = ()):
        self.backend, self.stop = tokenizer.backend_tokenizer, list(stop)
        self.stream = DecodeStream(skip_special_tokens=True)
        self.tokenizer, self.token_ids = tokenizer, []
        self.decoded, self.held = "", ""
        self.is_stopped = False

    @property
    def num_tokens(self) -> int:
        """Tokens up to the one that completed the stop string, or all of them."""
        return len(self.token_ids)

    def push(self, token_ids: Sequence[int]) -> str:
        """
        Add tokens.

        Returns:
            `str`: Text that can be shown now.
        """
        shown = ""
        for token_id in token_ids:
            if self.is_stopped:
                break
            self.token_ids.append(token_id)
            shown += self._add(self.stream.step(self.backend, token_id) or "")
        return shown

    def finish(self) -> str:
        """The rest of the text, once no token follows: what was held back, and characters that stay incomplete."""
        if self.is_stopped:
            return ""
        whole = self.tokenizer.decode(self.token_ids, skip_special_tokens=True)
        shown = self._add(whole[len(self.decoded) :])
        if not self.is_stopped:
            shown, self.held = shown + self.held, ""
        return shown

    def _add(self, text: str) -> str:
        self.decoded += text
        self.held += text
        found = [place for place in map(self.held.find, self.stop) if place >= 0]
        if found:
            self.is_stopped = True
            shown, self.held = self.held[: min(found)], ""
            return shown
        length = len(self.held) - self._length_to_hold()
        shown, self.held = self.held[:length], self.held[length:]
        return shown

    def _length_to_hold(self) -> int:
        """Length of the longest end of the held text that a stop string begins with."""
        longest = max(map(len, self.stop), default=0) - 1
        for length in range(min(longest, len(self.held)), 0, -1):
            if any(stop.startswith(self.held[-length:]) for stop in self.stop):
                return length
        return 0


def token_bytes(tokenizer: PreTrainedTokenizerBase, token_id: int) -> bytes:
    """The bytes of a token, which may be a part of a character."""
    text = tokenizer.decode([token_id])
    if "\N{REPLACEMENT CHARACTER}" not in text:
        return text.encode()
    token = tokenizer.convert_ids_to_tokens(token_id)
    fallback = re.fullmatch("<0x([0-9A-F]{2})>", token)
    if fallback:
        return bytes.fromhex(fallback.group(1))
    if all(character in BYTES for character in token):
        return bytes(BYTES[character] for character in token)
    return text.encode()
