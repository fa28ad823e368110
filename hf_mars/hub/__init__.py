"""Checkpoints that travel: saved with the code that decodes them, pushed with an honest card."""

from .paths import read_card
from .push import PushResult, push_folder, push_to_hub
from .save import CheckpointFrame, complete_checkpoint, document_checkpoint, save_pretrained


__all__ = [
    "CheckpointFrame",
    "PushResult",
    "complete_checkpoint",
    "document_checkpoint",
    "push_folder",
    "push_to_hub",
    "read_card",
    "save_pretrained",
]
