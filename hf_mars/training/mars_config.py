"""Configuration of a MARS run."""

from dataclasses import dataclass, field

import torch
from trl import SFTConfig

from .mask_losses import MASK_LOSSES


__all__ = ["MARSConfig"]

DEFAULT_GATED_LOSS = "reach"


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
        mask_gated (`bool`, *optional*, defaults to `False`):
            Whether to leave the model as it is, bit for bit, and train a LoRA adapter that acts on the masks alone,
            together with the mask token's embedding. The masks learn to say what the model itself would say.
        mask_loss (`str`, *optional*):
            What the masks learn. `"ce"` is the cross-entropy with the tokens of the data, and all there is without
            `mask_gated`. The others need `mask_gated`, and compare each mask's distribution q with the model's own p
            at the same place, temperature 1: `"kl"` is the divergence from p to q; `"tv"` the total variation, which
            is the probability that a token drafted from q is rejected (as in Uno, arXiv 2609.04010); `"lk"` the
            negative logarithm of the probability that it is accepted (LK losses, arXiv 2602.23881); `"reach"` a tenth
            of `"ce"` plus `"kl"`, weighted by the probability that all drafts before it are accepted (as in PARD-2).
            Defaults to `"ce"`, with `mask_gated` to `"reach"`.
        mask_phases (`int`, *optional*):
            With `mask_gated`, how many tilings of a batch into blocks are trained in one step, over one forward of the
            clean tokens. Defaults to 2.
        mask_decay (`float`, *optional*):
            With `mask_gated`, share of the blocks that go on after each of their masks, drawn at random for each
            batch: masks that decoding seldom reaches cost less, and weigh less. 1 trains all of them alike. Defaults
            to 0.6.
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
    mask_gated: bool = field(
        default=False,
        metadata={
            "help": "Whether to leave the model as it is, bit for bit, and train a LoRA adapter that acts on the "
            "masks alone, together with the mask token's embedding."
        },
    )
    mask_loss: str | None = field(
        default=None,
        metadata={
            "help": "What the masks learn: the tokens of the data (`'ce'`, the default), or with `mask_gated` the "
            "distributions of the model itself, by one of several distances; its default there is `'reach'`.",
            "choices": ["ce", "kl", "tv", "lk", "reach"],
        },
    )
    mask_phases: int | None = field(
        default=None,
        metadata={
            "help": "With `mask_gated`, how many tilings of a batch into blocks are trained in one step, over one "
            "forward of the clean tokens. Defaults to 2."
        },
    )
    mask_decay: float | None = field(
        default=None,
        metadata={
            "help": "With `mask_gated`, share of the blocks that go on after each of their masks, drawn at random for "
            "each batch: masks that decoding seldom reaches cost less, and weigh less. Defaults to 0.6."
        },
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
        if self.mask_loss is None:
            self.mask_loss = DEFAULT_GATED_LOSS if self.mask_gated else "ce"
        if self.mask_loss not in MASK_LOSSES:
            raise ValueError(f"`mask_loss` must be one of {', '.join(MASK_LOSSES)}, got {self.mask_loss!r}.")
        if self.mask_gated:
            self._check_gated()
        elif self.mask_loss != "ce":
            raise ValueError(
                f"`mask_loss={self.mask_loss!r}` compares the masks with a model that does not change: set "
                "`mask_gated=True`, or leave it out."
            )
        for name in ("mask_phases", "mask_decay"):
            if not self.mask_gated and getattr(self, name) is not None:
                raise ValueError(f"`{name}` is for `mask_gated=True`: leave it out.")

    def _check_gated(self) -> None:
        self.mask_phases = 2 if self.mask_phases is None else self.mask_phases
        self.mask_decay = 0.6 if self.mask_decay is None else self.mask_decay
        if isinstance(self.mask_phases, bool) or not isinstance(self.mask_phases, int):
            raise TypeError(f"`mask_phases` must be an integer, got {self.mask_phases!r}.")
        if not 1 <= self.mask_phases <= self.block_size:
            raise ValueError(
                f"`mask_phases` must be between 1 and `block_size` ({self.block_size}), got {self.mask_phases}: there "
                "are no more tilings."
            )
        if not 0 <= self.mask_decay <= 1:
            raise ValueError(f"`mask_decay` must be between 0 and 1, got {self.mask_decay}.")
        if self.ar_weight != 1.0:
            raise ValueError(
                "`ar_weight` has no meaning with `mask_gated`, where the model does not learn from its own tokens: "
                "leave it out."
            )
        if self.block_phase != "random":
            raise ValueError("`block_phase` is always 'random' with `mask_gated`: leave it out.")
