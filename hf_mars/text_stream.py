"""Tokens to text while they come."""

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase


__all__ = ["TextStream"]


class TextStream:
    """
    The text of one answer, in whole characters.

    Args:
        tokenizer ([`PreTrainedTokenizerBase`]): The tokenizer.

    Attributes:
        token_ids (`list[int]`): All tokens so far.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase):
        self.tokenizer = tokenizer
        self.token_ids: list[int] = []
        self._window = self._num_shown = 0

    def push(self, token_ids: Sequence[int]) -> str:
        """
        Add tokens.

        Args:
            token_ids (`Sequence[int]`): The next tokens.

        Returns:
            `str`: Text that can be shown now: nothing while the last character is incomplete.
        """
        self.token_ids += token_ids
        text = self._new_text()
        if not text or text.endswith("\N{REPLACEMENT CHARACTER}"):
            return ""
        self._window, self._num_shown = self._num_shown, len(self.token_ids)
        return text

    def finish(self) -> str:
        """The rest of the text, once no token follows: a character that stays incomplete."""
        return self._new_text()

    @property
    def context(self) -> list[int]:
        """The tokens that were shown last: a decoder may drop the space before the first token that it gets."""
        return self.token_ids[self._window : self._num_shown]

    def _new_text(self) -> str:
        shown = self._decode(self.context)
        return self._decode(self.token_ids[self._window :])[len(shown) :]

    def _decode(self, token_ids: list[int]) -> str:
        # A clean-up would change text that was shown.
        return str(self.tokenizer.decode(token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))
