"""Which checkpoint the demo shows."""

import os
from pathlib import Path

import torch
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from ..modeling import AutoMARSModelForCausalLM


__all__ = ["load_model"]

AUTHORS_CHECKPOINT = "Xalphinions/MARS-Qwen2.5-0.5B-blk4"
QUICKSTART_CHECKPOINT = "runs/quickstart/checkpoint"


def load_model(source: str | None = None) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, str]:
    """
    Load the checkpoint of the demo: the one named, else the one that `MARS_MODEL` names, else the authors' 0.5B one,
    else, without a network, the quickstart's.

    Returns:
        `tuple`: Model, tokenizer, and where they came from.

    Raises:
        `OSError`: If none of them can be loaded; the message says how to get one.
    """
    named = source or os.environ.get("MARS_MODEL")
    candidates = [named] if named else [AUTHORS_CHECKPOINT, QUICKSTART_CHECKPOINT]
    problems = []
    for candidate in candidates:
        if candidate == QUICKSTART_CHECKPOINT and not Path(candidate).is_dir():
            problems.append(f"{candidate} is not there")
            continue
        try:
            device = "cuda" if torch.cuda.is_available() else "cpu"
            dtype = torch.float32 if device == "cpu" else torch.bfloat16
            model = AutoMARSModelForCausalLM.from_pretrained(candidate, dtype=dtype)
            return model.to(device).eval(), AutoTokenizer.from_pretrained(candidate), candidate
        except (OSError, ValueError) as error:
            problems.append(f"{candidate}: {str(error).splitlines()[0]}")
    raise OSError(
        f"No checkpoint to show ({'; '.join(problems)}). Set MARS_MODEL to the Hub id or directory of one, "
        "or run `make quickstart` to train one."
    )
