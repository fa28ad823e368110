"""What MARS training does not do, refused by name before any step."""

from collections.abc import Callable, Sized
from typing import Any

from trl import SFTTrainer

from .mars_config import MARSConfig


__all__ = ["check_prepared", "check_supported"]


def check_supported(args: MARSConfig, compute_loss_func: Callable | None) -> None:
    """
    Check the arguments of [`MARSTrainer`].

    Raises:
        `ValueError`: If one of them asks for what the two streams do not allow; the message names it.
    """
    if args.loss_type != "nll":
        raise ValueError(f"`loss_type={args.loss_type!r}` is not supported by MARSTrainer: use 'nll'.")
    if args.label_smoothing_factor:
        raise ValueError("`label_smoothing_factor` is not supported by MARSTrainer: leave it 0.")
    if compute_loss_func is not None:
        raise ValueError("`compute_loss_func` is not supported by MARSTrainer, whose loss is its own: leave it out.")


def check_prepared(trainer: SFTTrainer) -> None:
    """
    Check a trainer once TRL has prepared its data and processes.

    Raises:
        `ValueError`: If there is nothing to learn from, if the processes split what the two streams need whole, or if
            the mask token is in force as another one: TRL sets `eos_token` and `pad_token` late.
    """
    tokenizer: Any = trainer.processing_class
    for name in ("eos_token", "pad_token"):
        if getattr(tokenizer, name) == tokenizer.mask_token:
            raise ValueError(
                f"`mask_token` and `{name}` are both {tokenizer.mask_token!r}, and the mask token is never generated: "
                "name another `mask_token`."
            )
    parallelism = trainer.accelerator.parallelism_config
    if parallelism is not None and (parallelism.cp_enabled or parallelism.sp_enabled):
        raise ValueError(
            "`parallelism_config` with context or sequence parallelism is not supported by MARSTrainer: it splits "
            "rows that the two streams need whole."
        )
    if isinstance(trainer.train_dataset, Sized) and len(trainer.train_dataset) == 0:
        raise ValueError(
            "`train_dataset` has no example with a supervised token: check its columns, `completion_only_loss`, "
            "`assistant_only_loss`, and that `max_length` leaves room for the responses."
        )
