"""Configuration of a MARS run."""

from dataclasses import dataclass, field

import torch
from trl import SFTConfig


__all__ = ["MARSConfig"]


@dataclass
class MARSConfig(SFTConfig):
    r"""
    Configuration class for the [`MARSTrainer`].

    It has the parameters of [`~trl.SFTConfig`] and those of the MARS method (sections 3.2 and 3.3 of the paper).

    Parameters:
        block_size (`int`, *optional*, defaults to `4`):
            Number of consecutive response tokens that are masked together (B): the most tokens that a forward pass of
            the trained model adds.
        ar_weight (`float`, *optional*, defaults to `1.0`):
            Weight of the autoregressive loss on the clean tokens beside the loss on the masks (equation 5).
        block_phase (`str`, *optional*, defaults to `"random"`):
            Where blocks begin. `"random"` draws the phase anew for each sequence, so that every offset is seen;
            `"fixed"` begins them at multiples of `block_size` from the sequence's first token.
        noisy_ratio (`float`, *optional*, defaults to `1.0`):
            Share of the blocks that are masked, drawn at random for each batch. Less is cheaper; the loss on the masks
            is scaled up, so that its expectation stays the same.
        eval_thresholds (`list[float]`, *optional*, defaults to `[0.95, 0.9, 0.7, 0.5]`):
            Thresholds for which an evaluation logs `expected_tokens_per_forward`. It takes `block_size` more forward
            passes over the evaluation data; an empty list turns it off.
        mask_token (`str`, *optional*):
            Name of the mask token. By default the tokenizer's own, else `<|mask|>`, which takes a spare embedding row.
            Where no row is spare, name a special token that the data never uses.
    """

    block_size: int = field(
        default=4,
        metadata={
            "help": "Number of consecutive response tokens that are masked together (B): the most tokens that a "
            "forward pass of the trained model adds."
        },
    )
    ar_weight: float = field(
        default=1.0,
        metadata={"help": "Weight of the autoregressive loss on the clean tokens beside the loss on the masks."},
    )
    block_phase: str = field(
        default="random",
        metadata={
            "help": "Where blocks begin. `'random'` draws the phase anew for each sequence, so that every offset is "
            "seen; `'fixed'` begins them at multiples of `block_size` from the sequence's first token.",
            "choices": ["random", "fixed"],
        },
    )
    noisy_ratio: float = field(
        default=1.0,
        metadata={"help": "Share of the blocks that are masked, drawn at random for each batch."},
    )
    eval_thresholds: list[float] = field(
        default_factory=lambda: [0.95, 0.9, 0.7, 0.5],
        metadata={
            "help": "Thresholds for which an evaluation logs `expected_tokens_per_forward`. It takes `block_size` "
            "more forward passes over the evaluation data; an empty list turns it off."
        },
    )
    mask_token: str | None = field(
        default=None,
        metadata={
            "help": "Name of the mask token. By default the tokenizer's own, else `<|mask|>`, which takes a spare "
            "embedding row. Where no row is spare, name a special token that the data never uses."
        },
    )

    def __post_init__(self):
        # TRL turns bf16 on where it is unset, and then refuses machines without an accelerator.
        if self.bf16 is None and not self.use_cpu and not torch.accelerator.is_available():
            self.bf16 = False
        super().__post_init__()
        if isinstance(self.block_size, bool) or not isinstance(self.block_size, int):
            raise TypeError(f"`block_size` must be an integer, got {self.block_size!r}.")
        if self.block_size < 2:
            raise ValueError(f"`block_size` must be at least 2, got {self.block_size}: 1 is autoregressive training.")
        if not self.ar_weight >= 0:
            raise ValueError(f"`ar_weight` must be at least 0, got {self.ar_weight}.")
        if not 0 < self.noisy_ratio <= 1:
            raise ValueError(f"`noisy_ratio` must be above 0 and at most 1, got {self.noisy_ratio}.")
        if not all(0 <= threshold <= 1 for threshold in self.eval_thresholds):
            raise ValueError(f"`eval_thresholds` must be between 0 and 1, got {self.eval_thresholds}.")
        if self.block_phase not in ("random", "fixed"):
            raise ValueError(f"`block_phase` must be 'random' or 'fixed', got {self.block_phase!r}.")
