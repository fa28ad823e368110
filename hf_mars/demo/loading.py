"""Which checkpoint the demo shows."""

import os
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerBase

from ..generative_model import GenerativeModel
from ..loading import check_chat_template, load_with_tokenizer
from ..modeling import get_base_model
from ..native_dtype import choose_dtype


__all__ = ["load_model"]

AUTHORS_CHECKPOINT = "Xalphinions/MARS-Qwen2.5-0.5B-blk4"
QUICKSTART_CHECKPOINT = "runs/quickstart/checkpoint"


def load_model(source: str | None = None) -> tuple[GenerativeModel, PreTrainedTokenizerBase, str]:
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
            model, tokenizer = load_with_tokenizer(candidate, choose_dtype("auto", device))
            check_chat_template(tokenizer, candidate)
            return get_base_model(model).to(device).eval(), tokenizer, candidate
        except ValueError as error:
            problems.append(str(error).removesuffix("."))
    raise OSError(
        f"No checkpoint to show ({'; '.join(problems)}). Set MARS_MODEL to the Hub id or directory of one, "
        "or run `make quickstart` to train one."
    )
