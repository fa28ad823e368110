"""What a model card says of a training."""

import math
import re
from importlib.metadata import version
from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from .mars_trainer import MARSTrainer


__all__ = ["hub_datasets", "summarize_training"]

PARAMETERS = (
    "block_size",
    "ar_weight",
    "block_phase",
    "noisy_ratio",
    "mask_gated",
    "mask_loss",
    "mask_phases",
    "mask_decay",
    "learning_rate",
    "lr_scheduler_type",
    "warmup_steps",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "max_length",
    "packing",
    "optim",
    "weight_decay",
    "max_grad_norm",
    "seed",
)
# What has no meaning in the other kind of training, by whether it is gated.
OTHER_KIND = {True: ("ar_weight", "block_phase"), False: ("mask_gated", "mask_loss", "mask_phases", "mask_decay")}
METRICS = ("ar_loss", "mask_loss", "mask_accuracy", "mask_overlap")
METRICS += tuple(f"eval_{name}" for name in METRICS)


def summarize_training(trainer: "MARSTrainer") -> dict[str, dict[str, Any]]:
    """Parameters, last metrics and versions of a training, as far as it has come."""
    args = trainer.args
    parameters = {name: getattr(args, name) for name in PARAMETERS}
    for name in OTHER_KIND[args.mask_gated]:
        del parameters[name]
    parameters["lr_scheduler_type"] = getattr(args.lr_scheduler_type, "value", args.lr_scheduler_type)
    parameters["optim"] = getattr(args.optim, "value", args.optim)
    parameters["processes"] = args.world_size
    parameters["steps"] = trainer.state.global_step
    parameters["epochs"] = round(trainer.state.epoch or 0, 2)
    parameters["precision"] = "bf16" if args.bf16 else "fp16" if args.fp16 else str(trainer.model.dtype).split(".")[-1]
    peft_config = getattr(trainer.model, "active_peft_config", None)
    if peft_config is not None:
        sizes = {"r": getattr(peft_config, "r", None), "alpha": getattr(peft_config, "lora_alpha", None)}
        parts = [peft_config.peft_type.value, *(f"{name} {size}" for name, size in sizes.items() if size is not None)]
        parameters["peft"] = ", ".join(parts)

    metrics = {}
    for entry in trainer.state.log_history:
        for name, value in entry.items():
            if (name in METRICS or name.startswith("eval_expected_tokens_per_forward")) and math.isfinite(value):
                metrics[name] = round(value, 4)
    versions = {name: version(name) for name in ("hf-mars", "trl", "transformers", "torch", "datasets")}
    return {"parameters": parameters, "metrics": metrics, "versions": versions}


def hub_datasets(dataset: Any) -> list[str]:
    """Hub ids of the files that a data set was built from, as far as it remembers them."""
    checksums = getattr(getattr(dataset, "info", None), "download_checksums", None) or {}
    found = (re.match(r"hf://datasets/([\w.-]+/[\w.-]+)@", str(source)) for source in checksums)
    return list(dict.fromkeys(match.group(1) for match in found if match))
