"""A checkpoint with its tokenizer, or one line that says why not."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from .generative_model import GenerativeModel
from .missing_paths import check_model_path
from .modeling import AutoMARSModelForCausalLM, MissingEntryError
from .one_line import one_line


if TYPE_CHECKING:  # PEFT takes seconds to import, and only adapters need it
    from peft import PeftModel


__all__ = ["QUICKSTART_CHECKPOINT", "check_chat_template", "load_with_tokenizer"]

QUICKSTART_CHECKPOINT = "runs/quickstart/checkpoint"  # where `make quickstart` saves, and what is taken by default


def load_with_tokenizer(
    checkpoint: str, dtype: torch.dtype
) -> tuple["GenerativeModel | PeftModel", PreTrainedTokenizerBase]:
    """
    Load a MARS checkpoint that a user named.

    Args:
        checkpoint (`str`): Directory or Hub id.
        dtype (`torch.dtype`): Of the weights.

    Raises:
        `ValueError`: If it cannot be loaded; the message names it.
    """
    if checkpoint == QUICKSTART_CHECKPOINT and not Path(checkpoint).is_dir():
        raise ValueError(f"{checkpoint} is not there: run `make quickstart`, or name a checkpoint.")
    check_model_path(checkpoint, "checkpoint")
    try:
        model = AutoMARSModelForCausalLM.from_pretrained(checkpoint, dtype=dtype)
        tokenizer: Any = AutoTokenizer.from_pretrained(checkpoint)
        return model, tokenizer
    except MissingEntryError as error:
        raise ValueError(
            f"{checkpoint!r} is no MARS checkpoint: its configuration has no `mars` entry. Train it first, as "
            "`hf-mars sft` and `hf-mars quickstart` do."
        ) from error
    except Exception as error:  # files that are damaged end in all kinds, some of them bare
        raise ValueError(f"The checkpoint {checkpoint!r} could not be loaded: {one_line(error)}") from error


def check_chat_template(tokenizer: PreTrainedTokenizerBase, checkpoint: str) -> None:
    """
    Raises:
        `ValueError`: If the tokenizer of that checkpoint cannot tell a conversation.
    """
    if tokenizer.chat_template is None:
        raise ValueError(f"The tokenizer of {checkpoint!r} has no chat template, which conversations need.")
