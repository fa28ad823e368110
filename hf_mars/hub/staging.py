"""The copy of a checkpoint that is pushed: what belongs into a repository, and nothing else."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from huggingface_hub.constants import REPOCARD_NAME
from transformers.utils import ADAPTER_CONFIG_NAME

from .facts import CheckpointFacts
from .frame import rewrite_json
from .paths import hub_id


__all__ = ["CARD_FILES", "check_folder", "list_files", "stage_folder"]

CARD_FILES = (REPOCARD_NAME, ".eval_results/*")
# What a trainer leaves beside a model, to resume with; `training_args.bin` holds paths of its machine.
TRAINER_FILES = ("checkpoint-*", "_*", "optimizer*", "scheduler.pt", "scaler.pt", "rng_state*", "trainer_state.json")
IGNORED_FILES = (*TRAINER_FILES, "training_args.bin", "runs", ".git", ".cache")
COPIED_SIZE = 10_000_000  # bytes; larger files are linked


def check_folder(folder: Path, base_model: str | None) -> None:
    """
    Check that others can use what is pushed.

    Args:
        folder (`Path`): Where the checkpoint is.
        base_model (`str`, *optional*): Hub id of the base model, as the user gave it.

    Raises:
        `ValueError`: If the folder is no MARS checkpoint, or an adapter whose base model others cannot load.
    """
    if not folder.is_dir():
        raise ValueError(f"`folder` is {str(folder)!r}, which is not a directory.")
    try:
        facts = CheckpointFacts.read(folder)
    except (OSError, KeyError, ValueError) as error:
        raise ValueError(
            f"`folder` is {str(folder)!r}, which is no MARS checkpoint: its config.json or adapter_config.json has no "
            "`mars` entry. Save it with `hf_mars.save_pretrained` or MARSTrainer."
        ) from error
    if base_model is not None and hub_id(base_model) != base_model:
        raise ValueError(f"`base_model` must be a Hub id such as 'org/name', got {base_model!r}.")
    is_path = hub_id(facts.base_model) != facts.base_model
    if facts.is_adapter and base_model is None and is_path:
        raise ValueError(
            f"The adapter's base model is {facts.base_model!r}, a path that nobody else can load: "
            "pass `base_model` with its Hub id."
            + ("" if facts.is_gated else " Or merge the adapter and push full weights.")
        )


def stage_folder(folder: Path, directory: str | Path, base_model: str | None) -> Path:
    """
    Copy a checkpoint, so that its card can be changed for the repository alone.

    Args:
        folder (`Path`): Where the checkpoint is.
        directory (`str` or `Path`): Where the copy is made, under the folder's own name.
        base_model (`str`, *optional*): What an adapter is to name as its base model.

    Returns:
        `Path`: The copy.
    """
    staging = Path(directory) / folder.resolve().name
    shutil.copytree(folder, staging, copy_function=link_or_copy, ignore=ignore_at_top(folder))
    if base_model is not None and (staging / ADAPTER_CONFIG_NAME).is_file():
        rewrite_json(staging / ADAPTER_CONFIG_NAME, lambda v: {**v, "base_model_name_or_path": base_model})
    return staging


def list_files(folder: Path, with_card: bool) -> list[str]:
    """Relative paths of all files, with or without the card and its evaluation."""
    paths = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return sorted(path for path in paths if with_card or not (path == REPOCARD_NAME or path.startswith(".eval_res")))


def ignore_at_top(folder: Path) -> Callable[[str, list[str]], set[str]]:
    """What is left out of the folder itself; its subfolders are taken as they are."""
    ignore = shutil.ignore_patterns(*IGNORED_FILES)
    return lambda directory, names: ignore(directory, names) if Path(directory) == folder else {"__pycache__"}


def link_or_copy(source: str, destination: str) -> None:
    """Weights are linked where the system allows it; small files are copied, as some are changed before the upload."""
    if os.path.getsize(source) > COPIED_SIZE:
        try:
            os.symlink(os.path.abspath(source), destination)
            return
        except OSError:
            pass
    shutil.copy2(source, destination)
