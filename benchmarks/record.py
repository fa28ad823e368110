"""What a result says about how it was made."""

import argparse
import subprocess
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from hf_mars.evaluation import describe_environment


__all__ = ["describe_run", "recorded_options"]


def describe_run(options: argparse.Namespace, model: PreTrainedModel | None = None) -> dict[str, Any]:
    """
    Hardware, versions, commit and options of a benchmark, as its results file carries them.

    Args:
        options (`argparse.Namespace`): What was asked for.
        model ([`PreTrainedModel`], *optional*): What was measured, for its device and dtype.
    """
    device = torch.device("cpu") if model is None else model.device
    dtype = {} if model is None else {"dtype": str(model.dtype).removeprefix("torch.")}
    return {**describe_environment(device), **dtype, "commit": current_commit(), "options": recorded_options(options)}


def recorded_options(options: argparse.Namespace) -> dict[str, str]:
    """What was asked for, without the paths of one machine."""
    return {name: str(value) for name, value in vars(options).items() if not Path(str(value)).is_absolute()}


def current_commit() -> str:
    """Short name of the commit, with a `+` if files differ from it."""
    here = Path(__file__).parent
    command = ["git", "describe", "--always", "--exclude=*", "--dirty=+"]
    try:
        return subprocess.run(command, cwd=here, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
