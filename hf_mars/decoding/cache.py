"""Block-level key/value storage whose rows advance independently."""

from typing import Any

import torch
from transformers import Cache
from transformers.cache_utils import CacheLayerMixin, DynamicLayer, DynamicSlidingWindowLayer


__all__ = ["ROW_BLOCK", "SLOT_BLOCK", "MARSCache", "MARSCacheLayer", "round_up"]

ROW_BLOCK = 4  # rows by which the storage grows when others join
SLOT_BLOCK = 256  # slots by which it grows as rows get longer


def round_up(number: int, block: int) -> int:
    """The smallest multiple of `block` that is not below `number`."""
    return -(-number // block) * block


class MARSCacheLayer(CacheLayerMixin):
    """
    Keys and values of one layer, written to given slots of each row and never moved.

    Storage has the shape `(rows, heads, capacity, head_dim)` and grows by whole blocks, so that a decoding step
    neither concatenates nor copies what is already there. The rows in use are its first ones: when others leave, the
    last ones move into the gaps. Sliding-window layers store every slot too; the attention mask hides what lies
    outside the window.

    Args:
        block_length (`int`, *optional*, defaults to 256):
            Number of slots by which the storage grows.
        capacity (`int`, *optional*):
            Allocate this many slots at once, and return all of them from every update: static shapes, for
            `torch.compile`.
    """

    # Unlike the parent's these are read only once they are set.
    keys: torch.Tensor  # pyrefly: ignore[bad-override-mutable-attribute]
    values: torch.Tensor  # pyrefly: ignore[bad-override-mutable-attribute]

    def __init__(self, block_length: int = SLOT_BLOCK, capacity: int | None = None):
        super().__init__()
        self.block_length, self.capacity = block_length, capacity
        self.is_compileable = capacity is not None
        self.length = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.dtype, self.device = key_states.dtype, key_states.device
        length = self.capacity or 0
        # Zeros, not uninitialised memory: a slot that is masked out still meets the attention weights, and 0 * NaN
        # would be NaN.
        self.keys = key_states.new_zeros(*key_states.shape[:2], length, key_states.shape[-1])
        self.values = value_states.new_zeros(*value_states.shape[:2], length, value_states.shape[-1])
        self.is_initialized = True

    def reserve(self, length: int) -> None:
        """Grow the storage, by whole blocks, until it holds at least `length` slots a row."""
        missing = length - self.keys.shape[2]
        if missing > 0:
            growth = round_up(missing, self.block_length)
            self.keys = torch.nn.functional.pad(self.keys, (0, 0, 0, growth))
            self.values = torch.nn.functional.pad(self.values, (0, 0, 0, growth))

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, slots: torch.Tensor, length: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """
        Write the states of one window and return a view of every slot that its queries may attend to.

        Args:
            key_states (`torch.Tensor` of shape `(rows, heads, width, head_dim)`): Keys of the window.
            value_states (`torch.Tensor` of shape `(rows, heads, width, head_dim)`): Values of the window.
            slots (`torch.LongTensor` of shape `(rows, width)`): Slot of each column, distinct within a row.
            length (`int`): Number of slots to return, above every slot written.
        """
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        if self.capacity is None:
            self.reserve(length)
        else:
            length = self.capacity
        # The storage as one list of vectors: copying whole ones is several times as fast as scattering numbers.
        num_rows, num_heads = key_states.shape[:2]
        capacity = self.keys.shape[2]
        starts = torch.arange(0, num_rows * num_heads * capacity, capacity, device=key_states.device)
        places = (starts.view(num_rows, num_heads, 1) + slots.to(key_states.device)[:, None]).flatten()
        self.keys.view(-1, self.keys.shape[-1]).index_copy_(0, places, key_states.flatten(0, 2))
        self.values.view(-1, self.values.shape[-1]).index_copy_(0, places, value_states.flatten(0, 2))
        return self.keys[:num_rows, :, :length], self.values[:num_rows, :, :length]

    def get_seq_length(self) -> int:
        """Number of committed slots of the longest row."""
        return self.length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """`(kv_length, kv_offset)` of a forward over `query_length` columns."""
        return self.capacity or self.length + query_length, 0

    def get_max_length(self) -> int:
        """The capacity, or -1 where the storage grows as needed."""
        return self.capacity or -1

    def reset(self) -> None:
        super().reset()
        self.length = 0

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep the given rows, in the given order; those that stay in place are not copied."""
        if not self.is_initialized:
            return
        moved = (indices != torch.arange(len(indices), device=indices.device)).nonzero().squeeze(1)
        if len(moved) > 0:
            self.reserve_rows(len(indices))
            self.keys[moved.to(self.keys.device)] = self.keys[indices[moved].to(self.keys.device)]
            self.values[moved.to(self.values.device)] = self.values[indices[moved].to(self.values.device)]

    def reserve_rows(self, num_rows: int) -> None:
        """Grow the storage, by whole blocks of rows, until it holds at least `num_rows`."""
        missing = num_rows - len(self.keys)
        if missing > 0:
            growth = round_up(num_rows, ROW_BLOCK) - len(self.keys)
            self.keys = torch.nn.functional.pad(self.keys, (0, 0, 0, 0, 0, 0, 0, growth))
            self.values = torch.nn.functional.pad(self.values, (0, 0, 0, 0, 0, 0, 0, growth))

    def trim(self, num_rows: int) -> None:
        """Give back the storage beyond the first `num_rows` rows and the block that the longest has reached."""
        if self.is_initialized:
            length = round_up(max(self.length, 1), self.block_length)
            self.keys, self.values = (states[:num_rows, :, :length].clone() for states in (self.keys, self.values))

    def join(self, other: "MARSCacheLayer", num_rows: int, num_joining: int) -> None:
        """Write the rows of another layer after the `num_rows` of this one."""
        if not other.is_initialized:  # a prompt of one token has nothing to bring
            if self.is_initialized:
                self.reserve_rows(num_rows + num_joining)
            return
        if not self.is_initialized:
            self.lazy_initialization(
                *(states[:1].expand(num_rows, -1, -1, -1) for states in (other.keys, other.values))
            )
        self.reserve_rows(num_rows + num_joining)
        self.reserve(other.length)
        joining = slice(num_rows, num_rows + num_joining)
        for states, source in ((self.keys, other.keys), (self.values, other.values)):
            states[joining, :, : other.length] = source[:num_joining, :, : other.length]
            states[joining, :, other.length :] = 0  # a NaN of the row that was there before would be seen


class MARSCache(Cache):
    """
    A [`~transformers.Cache`] with one cursor a row (the independent rows that section 4.5 of the paper leaves open).

    A row's cursor is the number of its slots that hold the states of real tokens. Each forward writes a window of
    columns at and after the cursor; afterwards [`~MARSCache.commit`] moves the cursor over the real tokens alone. What
    was written for a mask stays where it is: no query sees it, and the next window overwrites it.

    Args:
        num_layers (`int`):
            Number of attention layers of the model.
        num_rows (`int`):
            Batch size.
        device (`torch.device`, *optional*):
            Device of the cursors.
        capacity (`int`, *optional*):
            Slots to allocate at once, see [`MARSCacheLayer`].
    """

    layers: list[MARSCacheLayer]  # pyrefly: ignore[bad-override]  # no other kind is ever added

    def __init__(
        self, num_layers: int, num_rows: int, device: torch.device | None = None, capacity: int | None = None
    ):
        super().__init__(layers=[MARSCacheLayer(capacity=capacity) for _ in range(num_layers)])
        self.cursors = torch.zeros(num_rows, dtype=torch.long, device=device)
        self._slots: torch.Tensor | None = None

    def open_window(self, slots: torch.Tensor) -> None:
        """Say where the next forward writes: `slots` is a `torch.LongTensor` of shape `(rows, width)`."""
        self._slots = slots

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args, **kwargs
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if self._slots is None:
            raise RuntimeError("A MARSCache is written through windows: call `open_window(slots)` before the forward.")
        layer = self.layers[layer_idx]
        return layer.update(key_states, value_states, self._slots, layer.length + key_states.shape[2])

    def commit(self, counts: torch.Tensor, length: int) -> None:
        """
        Move every cursor over the real tokens of the window that was just forwarded.

        Args:
            counts (`torch.LongTensor` of shape `(rows,)`): Number of slots to add to each cursor.
            length (`int`): The largest cursor afterwards, known to the caller without asking the device.
        """
        self.cursors = self.cursors + counts
        self._slots = None
        self.set_length(length)

    def set_length(self, length: int) -> None:
        """Tell the largest cursor, also when the row that had a larger one has left."""
        for layer in self.layers:
            layer.length = length

    @property
    def storage_shape(self) -> tuple[int, int]:
        """Rows and slots for which there is storage."""
        layer = self.layers[0]
        return (len(layer.keys), layer.keys.shape[2]) if layer.is_initialized else (0, 0)

    def trim(self) -> None:
        """Give back storage that earlier rows have left."""
        for layer in self.layers:
            layer.trim(len(self.cursors))

    def load(self, past: Cache) -> None:
        """
        Take over the states of an earlier turn, all rows of the same length.

        Args:
            past ([`DynamicCache`]): As `generate` returns it. Of a sliding-window layer it holds the window alone; the
                slots before it stay empty, and no query sees them.

        Raises:
            `ValueError`: If it is another kind of cache, or has another number of rows.
        """
        length = past.get_seq_length()
        # A cache that was created without a configuration gets its layers with the first forward.
        for layer, source in zip(self.layers, past.layers, strict=bool(past.layers)):
            if not isinstance(source, DynamicLayer) or type(source) not in (DynamicLayer, DynamicSlidingWindowLayer):
                raise ValueError(f"`cache` must be a DynamicCache with `mars_threshold`, got layers of {source!r}.")
            if source.keys is None or source.values is None:
                continue
            if len(source.keys) != len(self.cursors):
                raise ValueError(f"`cache` has {len(source.keys)} rows, but the batch has {len(self.cursors)}.")
            layer.lazy_initialization(source.keys, source.values)
            layer.reserve(length)
            start = length - source.keys.shape[2]
            layer.keys[:, :, start:length] = source.keys
            layer.values[:, :, start:length] = source.values
        self.commit(torch.full_like(self.cursors, length), length)

    def store(self, past: Cache, max_length: int) -> None:
        """
        Write the slots that every row has committed into a [`DynamicCache`], in place.

        Args:
            past ([`DynamicCache`]): Where to write.
            max_length (`int`): Slots to write at most: like `generate`, leave the last token for the next forward.
        """
        length = min(int(self.cursors.min()), max_length)
        while past.layer_class_to_replicate is not None and len(past.layers) < len(self.layers):
            past.layers.append(past.layer_class_to_replicate())
        targets: list[Any] = past.layers  # of the class `DynamicLayer`, sliding or not
        for layer, target in zip(self.layers, targets, strict=True):
            first = max(0, length - target.sliding_window + 1) if target.is_sliding else 0
            if not target.is_initialized:
                target.lazy_initialization(layer.keys, layer.values)
            num_rows = len(self.cursors)
            target.keys = layer.keys[:num_rows, :, first:length]
            target.values = layer.values[:num_rows, :, first:length]
            if target.is_sliding:
                target.cumulative_length = length

    def reset(self) -> None:
        super().reset()
        self.cursors.zero_()

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """
        Keep the given rows, in the given order.

        Args:
            indices (`torch.LongTensor` of shape `(rows,)`): Rows to keep; without a wait if they lie on the host.
        """
        super().batch_select_indices(indices)
        self.cursors = self.cursors[indices.to(self.cursors.device)]

    def join(self, other: "MARSCache") -> None:
        """Take in the rows of another cache, after the rows that are there, which stay where they are."""
        for layer, joining in zip(self.layers, other.layers, strict=True):
            layer.join(joining, num_rows=len(self.cursors), num_joining=len(other.cursors))
        self.cursors = torch.cat([self.cursors, other.cursors])

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        self.batch_select_indices(beam_idx)
