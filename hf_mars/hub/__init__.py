"""Checkpoints that travel: saved with the code that decodes them, pushed with an honest card."""

from .card import CheckpointCard
from .facts import CheckpointFacts
from .frame import CheckpointFrame, complete_checkpoint
from .push import PushResult, push_folder, push_to_hub
from .save import save_pretrained


__all__ = [
    "CheckpointCard",
    "CheckpointFacts",
    "CheckpointFrame",
    "PushResult",
    "complete_checkpoint",
    "push_folder",
    "push_to_hub",
    "save_pretrained",
]
