"""Loading what the commands measure."""

import argparse
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerBase

from ..generative_model import GenerativeModel
from ..loading import load_with_tokenizer
from ..modeling import get_base_model
from ..native_dtype import choose_dtype


__all__ = ["add_checkpoint_arguments", "load_checkpoint"]

QUICKSTART_CHECKPOINT = "runs/quickstart/checkpoint"


def add_checkpoint_arguments(parser: argparse.ArgumentParser) -> None:
    """The checkpoint, and how it is loaded."""
    parser.add_argument(
        "checkpoint", nargs="?", default=QUICKSTART_CHECKPOINT, help="local path or Hub id of a MARS checkpoint"
    )
    parser.add_argument(
        "--dtype",
        default="auto",
        help="dtype of the weights: float32, bfloat16, float16, or auto: bfloat16 where the device has it natively",
    )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", default=device, help="where to run it")


def load_checkpoint(checkpoint: str, dtype: str, device: str) -> tuple[GenerativeModel, PreTrainedTokenizerBase]:
    """
    The model, in evaluation mode, and its tokenizer.

    Raises:
        `ValueError`: If the checkpoint is not there, or no MARS checkpoint, or the dtype or device is not.
    """
    if checkpoint == QUICKSTART_CHECKPOINT and not Path(checkpoint).is_dir():
        raise ValueError(f"{checkpoint} is not there: run `make quickstart`, or name a checkpoint.")
    try:
        weights = choose_dtype(dtype, device)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # an unknown name, or nothing of the kind in this machine or build
        raise ValueError(f"`--device` {device!r} is not available: {str(error).splitlines()[0]}") from error
    model, tokenizer = load_with_tokenizer(checkpoint, weights)
    return get_base_model(model).to(device).eval(), tokenizer
