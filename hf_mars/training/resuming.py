"""Which checkpoint a run that was killed goes on from."""

import json
from pathlib import Path

from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR


__all__ = ["get_last_complete_checkpoint"]


def get_last_complete_checkpoint(output_dir: str | Path) -> str:
    """
    The latest checkpoint of a run that was written to its end: the trainer's state is the last of its files, so a run
    killed while it saved leaves a directory without one, or with half of one.

    Raises:
        `ValueError`: If `output_dir` holds no such checkpoint.
    """
    checkpoints = {}
    for path in Path(output_dir).glob(f"{PREFIX_CHECKPOINT_DIR}-*"):
        step = path.name.removeprefix(f"{PREFIX_CHECKPOINT_DIR}-")
        if step.isdigit() and is_complete(path):
            checkpoints[int(step)] = path
    if not checkpoints:
        raise ValueError(f"`resume_from_checkpoint=True`, but {output_dir} holds no complete checkpoint: start anew.")
    return str(checkpoints[max(checkpoints)])


def is_complete(checkpoint: Path) -> bool:
    try:
        json.loads((checkpoint / TRAINER_STATE_NAME).read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        return False
    return True
