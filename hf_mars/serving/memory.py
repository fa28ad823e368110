"""How many tokens' keys and values fit into memory."""

import math

import psutil
import torch
from transformers import PreTrainedModel

from ..decoding.cache import ROW_BLOCK, SLOT_BLOCK, round_up


__all__ = ["KVBudget"]

GIGABYTE = 1e9


class KVBudget:
    """
    Admission by memory. The cache of a batch is a rectangle: as many slots for each row as the longest one may need.
    Both sides grow by blocks.

    Args:
        model ([`PreTrainedModel`]): The model.
        gigabytes (`float`, *optional*):
            Memory for keys and values. By default 80 % of what is free on the accelerator, 25 % of it on a CPU.

    Raises:
        `ValueError`: If it is not a number that holds the smallest cache.
    """

    def __init__(self, model: PreTrainedModel, gigabytes: float | None = None):
        if gigabytes is not None and not 0 < gigabytes < math.inf:
            raise ValueError(f"`kv_memory` must be a positive number of gigabytes, got {gigabytes}.")
        config = model.config.get_text_config()
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        num_heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        self.bytes_per_slot = 2 * config.num_hidden_layers * num_heads * head_dim * model.dtype.itemsize
        available = free_bytes(model.device) if gigabytes is None else gigabytes * GIGABYTE
        self.num_slots = int(available / self.bytes_per_slot)
        if self.slots(1) > self.num_slots:
            needed = self.slots(1) * self.bytes_per_slot / GIGABYTE
            raise ValueError(f"`kv_memory` must be at least {needed:.2g} gigabytes for this model.")

    def set_aside(self, share: float) -> int:
        """Take a share of the slots out of the budget, for another use, and tell how many: none of too few."""
        num_slots = int(share * self.num_slots)
        if self.num_slots - num_slots < self.slots(1):
            return 0
        self.num_slots -= num_slots
        return num_slots

    def fits(self, num_rows: int, length: int) -> bool:
        """Whether that many rows of that length fit."""
        return self.use(num_rows, length) <= 1

    def use(self, num_rows: int, length: int) -> float:
        """The share that they take."""
        if num_rows > 1:
            num_rows = round_up(num_rows, ROW_BLOCK)
        return num_rows * self.slots(length) / self.num_slots

    def slots(self, length: int) -> int:
        """The slots that are allocated for a row of that length."""
        return round_up(length, SLOT_BLOCK)


def free_bytes(device: torch.device) -> float:
    if device.type == "cuda":
        return 0.8 * torch.cuda.mem_get_info(device)[0]
    return 0.25 * psutil.virtual_memory().available
