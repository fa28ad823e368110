"""Checkpoints that travel: saved with the code that decodes them, pushed with an honest card."""

from .paths import read_card
from .push import PushResult, push_folder, push_to_hub
from .save import (
    complete_checkpoint,
    digest_if_measured,
    document_checkpoint,
    forget_evaluation_of_others,
    save_pretrained,
)


__all__ = [
    "PushResult",
    "complete_checkpoint",
    "digest_if_measured",
    "document_checkpoint",
    "forget_evaluation_of_others",
    "push_folder",
    "push_to_hub",
    "read_card",
    "save_pretrained",
]
