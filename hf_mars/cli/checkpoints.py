"""Loading what the commands measure."""

import argparse

import torch
from transformers import PreTrainedTokenizerBase

from ..generative_model import GenerativeModel
from ..loading import QUICKSTART_CHECKPOINT, load_with_tokenizer
from ..modeling import get_base_model
from ..native_dtype import choose_dtype


__all__ = ["add_checkpoint_arguments", "check_device", "load_checkpoint"]


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
    check_device(device)
    model, tokenizer = load_with_tokenizer(checkpoint, choose_dtype(dtype, device))
    return get_base_model(model).to(device).eval(), tokenizer


def check_device(device: str) -> None:
    """
    Raises:
        `ValueError`: If there is no such device, or none in this machine or build.
    """
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"`--device` {device!r} is not available: {str(error).splitlines()[0]}") from error
