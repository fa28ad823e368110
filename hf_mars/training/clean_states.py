"""Keys and values of a clean stream that is not trained, for the masks that attend to them."""

import torch
from transformers import Cache
from transformers.cache_utils import CacheLayerMixin


__all__ = ["CleanStates"]


class CleanLayer(CacheLayerMixin):
    """Keys and values of one layer: the first forward stores its own, all others read them before their own."""

    # Unlike the parent's these are read only once they are set.
    keys: torch.Tensor  # pyrefly: ignore[bad-override-mutable-attribute]
    values: torch.Tensor  # pyrefly: ignore[bad-override-mutable-attribute]

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.dtype, self.device = key_states.dtype, key_states.device
        self.keys, self.values = key_states, value_states
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args, **kwargs
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            return key_states, value_states
        return torch.cat([self.keys, key_states], dim=2), torch.cat([self.values, value_states], dim=2)

    def get_seq_length(self) -> int:
        return self.keys.shape[2] if self.is_initialized else 0

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.get_seq_length() + query_length, 0

    def get_max_length(self) -> int:
        return -1


class CleanStates(Cache):
    """
    A [`~transformers.Cache`] that is written once and then only read, by forwards of masks that see it and never each
    other's: their own keys and values carry gradients and are not kept. Sliding-window layers keep every column; the
    attention mask hides what lies outside the window.

    Args:
        num_layers (`int`): Number of attention layers of the model.
    """

    def __init__(self, num_layers: int):
        super().__init__(layers=[CleanLayer() for _ in range(num_layers)])
