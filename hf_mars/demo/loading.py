"""Which checkpoint the demo shows."""

import os

import torch
from transformers import PreTrainedTokenizerBase

from ..generation_fields import drop_mars_fields
from ..generative_model import GenerativeModel
from ..loading import QUICKSTART_CHECKPOINT, check_chat_template, load_with_tokenizer
from ..modeling import get_base_model
from ..native_dtype import choose_dtype


__all__ = ["load_model"]

AUTHORS_CHECKPOINT = "Xalphinions/MARS-Qwen2.5-0.5B-blk4"


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
        try:
            device = "cuda" if torch.cuda.is_available() else "cpu"
            model, tokenizer = load_with_tokenizer(candidate, choose_dtype("auto", device))
            check_chat_template(tokenizer, candidate)
            base_model = get_base_model(model)
            drop_mars_fields(base_model.generation_config)  # the page says how to decode
            return base_model.to(device).eval(), tokenizer, candidate
        except ValueError as error:
            problems.append(str(error).removesuffix("."))
    raise OSError(
        f"No checkpoint to show ({'; '.join(problems)}). Name one, or set MARS_MODEL to its Hub id or directory."
    )
