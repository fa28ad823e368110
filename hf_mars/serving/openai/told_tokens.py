"""Tokens as log-probabilities tell them: names and bytes that join to the text, and places in it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from transformers import PreTrainedTokenizerBase
from transformers.convert_slow_tokenizer import bytes_to_unicode

from ...text_stream import TextStream
from ..request import TokenLogprob


__all__ = ["NamedToken", "ToldToken", "TokenTeller"]

BYTES = {character: byte for byte, character in bytes_to_unicode().items()}  # of byte-level tokenizers
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True)
class NamedToken:
    """
    A token that was chosen, or might have been.

    Args:
        name (`str`): Its part of the text. A part of a character is named by its bytes, a special token by itself, and
            one whose name another token has by its number.
        data (`bytes`): Its bytes; those of a special token are none, as the text leaves it out.
        logprob (`float`): Its log-probability.
    """

    name: str
    data: bytes
    logprob: float


@dataclass(frozen=True)
class ToldToken:
    """
    A token of an answer.

    Args:
        chosen ([`NamedToken`]): The token.
        alternatives (`tuple[NamedToken]`): The most likely ones at its place.
        offset (`int`): Characters of the text before it.
    """

    chosen: NamedToken
    alternatives: tuple[NamedToken, ...]
    offset: int = 0


class TokenTeller:
    """
    Names the tokens of one answer while they come. A token is told once the character that it belongs to is complete.

    Args:
        tokenizer ([`PreTrainedTokenizerBase`]): The tokenizer.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase):
        self.tokenizer, self._special_ids = tokenizer, frozenset(tokenizer.all_special_ids)
        self._stream, self._offset = TextStream(tokenizer), 0
        self._incomplete: list[ToldToken] = []
        self._silent: list[int] = []  # tokens since the last text that add none, but may be the ones that are stripped

    def push(self, token_id: int, logprob: TokenLogprob) -> list[ToldToken]:
        """
        Add a token.

        Args:
            token_id (`int`): The token.
            logprob ([`TokenLogprob`]): Its log-probability, and those of others.

        Returns:
            `list[ToldToken]`: What can be told now.
        """
        names = {token_id: self._name(token_id, logprob.logprob)}
        for other, value in logprob.alternatives:
            if other not in names:
                named = self._name(other, value)
                is_taken = any(named.name == known.name for known in names.values())
                names[other] = replace(named, name=f"token_id:{other}") if is_taken else named
        alternatives = tuple(names[other] for other, _ in logprob.alternatives)
        self._incomplete.append(ToldToken(names[token_id], alternatives))
        if not any(token.chosen.data for token in self._incomplete):
            self._silent.append(token_id)
        text = self._stream.push([token_id])
        return self._place(text) if text else []

    def finish(self) -> list[ToldToken]:
        """The rest, once no token follows."""
        return self._place(self._stream.finish())

    def _name(self, token_id: int, logprob: float) -> NamedToken:
        if token_id in self._special_ids:
            return NamedToken(str(self.tokenizer.convert_ids_to_tokens(token_id)), b"", logprob)
        data = to_bytes(self.tokenizer, [*self._stream.context, *self._silent], token_id)
        try:
            name = data.decode()
        except UnicodeDecodeError:
            name = "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)
        return NamedToken(name, data, logprob)

    def _place(self, text: str) -> list[ToldToken]:
        """Give the tokens of a piece of the text their places in it."""
        placed, data = [], b""
        for token in self._incomplete:
            num_before = len(data.decode(errors="ignore"))
            placed.append(replace(token, offset=self._offset + min(num_before, len(text))))
            data += token.chosen.data
        self._offset += len(text)
        self._incomplete, self._silent = [], []
        return placed


def to_bytes(tokenizer: PreTrainedTokenizerBase, context: Sequence[int], token_id: int) -> bytes:
    """
    The bytes that a token adds to the text.

    Args:
        tokenizer ([`PreTrainedTokenizerBase`]): The tokenizer.
        context (`Sequence[int]`): The tokens before it, as decoders drop the space before the very first token.
        token_id (`int`): The token.
    """
    before, text = (
        str(tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))
        for ids in (list(context), [*context, token_id])
    )
    added = text[len(before) :]
    if REPLACEMENT not in added:
        return added.encode()
    token = str(tokenizer.convert_ids_to_tokens(token_id))
    fallback = re.fullmatch("<0x([0-9A-F]{2})>", token)
    if fallback:
        return bytes.fromhex(fallback.group(1))
    if all(character in BYTES for character in token):
        return bytes(BYTES[character] for character in token)
    return added.encode()
