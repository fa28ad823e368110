"""The bytes of a token, which may be a part of a character."""

import re

from transformers import PreTrainedTokenizerBase
from transformers.convert_slow_tokenizer import bytes_to_unicode


__all__ = ["token_bytes"]

BYTES = {character: byte for byte, character in bytes_to_unicode().items()}  # of byte-level tokenizers


def token_bytes(tokenizer: PreTrainedTokenizerBase, token_id: int) -> bytes:
    """
    The bytes of a token.

    Args:
        tokenizer ([`PreTrainedTokenizerBase`]): The tokenizer.
        token_id (`int`): The token.
    """
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
