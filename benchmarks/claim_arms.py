"""The models that [`claims.py`](claims.py) compares: the same steps on the same batches, trained in different ways."""

import argparse
from dataclasses import dataclass
from pathlib import Path

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, PreTrainedModel
from trl import SFTConfig, SFTTrainer

from hf_mars import AutoMARSModelForCausalLM, MARSConfig, MARSTrainer
from hf_mars.cli.smollm2 import load_smollm2
from hf_mars.native_dtype import choose_dtype, has_native_bfloat16


__all__ = ["ARMS", "Arm", "find_base", "load_arm", "train_arm"]

DEVICE = torch.accelerator.current_accelerator() or torch.device("cpu")


@dataclass(frozen=True)
class Arm:
    """
    One way to train.

    Args:
        name (`str`): As tables show it.
        block_size (`int`, *optional*): Of MARS; `None` for AR SFT.
        ar_weight (`float`, *optional*, defaults to 1.0): Weight of the AR loss beside that of the masks.
    """

    name: str
    block_size: int | None = None
    ar_weight: float = 1.0

    def folder(self, parent: Path, seed: int) -> Path:
        """Where its model of this seed is kept."""
        return parent / f"{self.name.replace(', ', ' ').replace(' ', '-').lower()}-seed-{seed}"


ARMS = [
    Arm("AR SFT"),
    Arm("MARS, B 4", 4),
    Arm("MARS, B 8", 8),
    Arm("MARS without the AR loss, B 4", 4, ar_weight=0.0),
    Arm("MARS without the AR loss, B 8", 8, ar_weight=0.0),
]


def find_base(options: argparse.Namespace) -> str:
    """Path or Hub id of the model that every arm begins with."""
    return options.model or str(load_smollm2())


def train_arm(arm: Arm, seed: int, data: Dataset, options: argparse.Namespace) -> None:
    """Train and save, unless that was done before."""
    folder = arm.folder(options.output_dir, seed)
    if (folder / "config.json").is_file():
        return
    print(f"training {folder.name}", flush=True)
    shared = {
        "output_dir": str(folder),
        "per_device_train_batch_size": options.batch_size,
        "max_length": 512,
        "max_steps": options.steps,
        "learning_rate": options.learning_rate,
        "lr_scheduler_type": "cosine",
        "warmup_steps": min(10, options.steps),
        "bf16": has_native_bfloat16(DEVICE),
        "use_cpu": DEVICE.type == "cpu",
        "gradient_checkpointing": False,
        "logging_steps": 10,
        "save_strategy": "no",
        "report_to": "none",
        "seed": seed,
        "model_init_kwargs": {"dtype": "float32"},
    }
    if arm.block_size is None:
        trainer = SFTTrainer(find_base(options), SFTConfig(**shared, completion_only_loss=True), train_dataset=data)
    else:
        mars = {"block_size": arm.block_size, "ar_weight": arm.ar_weight, "mask_token": options.mask_token}
        trainer = MARSTrainer(find_base(options), MARSConfig(**shared, **mars), train_dataset=data)
    trainer.train()
    trainer.save_model(str(folder))


def load_arm(arm: Arm, seed: int, options: argparse.Namespace) -> PreTrainedModel:
    """What [`train_arm`] saved."""
    kind = AutoModelForCausalLM if arm.block_size is None else AutoMARSModelForCausalLM
    dtype = choose_dtype(options.dtype, DEVICE)
    return kind.from_pretrained(arm.folder(options.output_dir, seed), dtype=dtype).to(DEVICE).eval()
