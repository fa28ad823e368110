"""Keys and values of prompts that were read before, for the requests that begin like them."""

from collections import OrderedDict
from collections.abc import Sequence

from transformers import DynamicCache

from ..decoding.cache import MARSCache


__all__ = ["PrefixCache", "count_common"]

LEAST_LENGTH = 16  # tokens below which reading is as quick as looking up


class PrefixCache:
    """
    Remembers the keys and values of prompts, within bounds: the least recently used one goes first. A chat's next
    turn begins with its earlier prompts, and requests of one application often share a system prompt.

    Args:
        num_slots (`int`): Tokens to remember at most; 0 remembers nothing.
    """

    def __init__(self, num_slots: int):
        self.num_slots = num_slots
        self._entries: OrderedDict[tuple[int, ...], DynamicCache] = OrderedDict()

    @property
    def num_tokens(self) -> int:
        """Tokens that it remembers."""
        return sum(map(len, self._entries))

    def find(self, token_ids: list[int]) -> DynamicCache | None:
        """
        The keys and values of the longest beginning that is known, all but the last token at most: a forward must
        read something. `None` where it is too short to be worth it.
        """
        prompt, length = self._find_longest(token_ids[:-1])
        if length < LEAST_LENGTH:
            return None
        self._entries.move_to_end(prompt)
        return copy_row(self._entries[prompt].layers, 0, length)

    def will_know(self, token_ids: list[int], being_read: list[list[int]]) -> bool:
        """Whether most of a prompt will be known once others are read, and is not yet, so that it had better wait."""
        if not LEAST_LENGTH < len(token_ids) <= self.num_slots:
            return False
        shared = max((count_common(token_ids, other) for other in being_read), default=0)
        least = len(token_ids) / 2
        return shared > least and shared - self._find_longest(token_ids)[1] > least

    def add(self, token_ids: list[int], cache: MARSCache, row: int) -> None:
        """
        Remember a prompt, as far as one row of a cache has read it: all but the last token.

        Args:
            token_ids (`list[int]`): The prompt.
            cache ([`MARSCache`]): Where its keys and values are.
            row (`int`): In which row.
        """
        known = tuple(token_ids[:-1])
        if not LEAST_LENGTH <= len(known) <= self.num_slots or self._find_longest(known)[1] == len(known):
            return
        for prompt in [prompt for prompt in self._entries if known[: len(prompt)] == prompt]:
            del self._entries[prompt]  # the new one tells all that this one does
        while self.num_tokens + len(known) > self.num_slots:
            self._entries.popitem(last=False)
        self._entries[known] = copy_row(cache.layers, row, len(known))

    def _find_longest(self, token_ids: Sequence[int]) -> tuple[tuple[int, ...], int]:
        lengths = [(prompt, count_common(prompt, token_ids)) for prompt in self._entries]
        return max(lengths, key=lambda pair: pair[1], default=((), 0))


def copy_row(layers: list, row: int, length: int) -> DynamicCache:
    """The first slots of one row."""
    cache = DynamicCache()
    for index, layer in enumerate(layers):
        cache.update(layer.keys[row : row + 1, :, :length], layer.values[row : row + 1, :, :length], index)
    return cache


def count_common(left: Sequence[int], right: Sequence[int]) -> int:
    """How many tokens two sequences have in common at their beginning."""
    pairs = zip(left, right, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(left), len(right)))
