"""What saved weights need around them: the code that decodes them, and a card that is about them."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers.utils import ADAPTER_CONFIG_NAME, CONFIG_NAME, GENERATION_CONFIG_NAME, logging

from .. import decoding
from ..evaluation import EVALUATION_FILE
from .card import CheckpointCard
from .former_files import remove_former_files


__all__ = ["CheckpointFrame", "complete_checkpoint", "rewrite_json"]

logger = logging.get_logger(__name__)
PEFT_REQUIREMENT = "peft>=0.21.2"  # gates adapters by columns


class CheckpointFrame:
    """
    What goes before and after saving weights: it remembers the card that is there, adds what decoding needs, and takes
    away a sweep that was measured on other weights.

    Args:
        directory (`str` or `Path`): Where the weights are saved.
        mars (`dict[str, int]`): The model's `config.mars`.

    Attributes:
        card ([`CheckpointCard`]): The card that was there; without the sweep if that is not of these weights.
    """

    def __init__(self, directory: str | Path, mars: dict[str, int]):
        self.directory, self.mars = Path(directory), mars

    def __enter__(self) -> "CheckpointFrame":
        self.card, self.digest = CheckpointCard.read(self.directory), digest_if_measured(self.directory)
        return self

    def __exit__(self, kind, error, traceback) -> None:
        if error is not None:
            return
        complete_checkpoint(self.directory, self.mars)
        if self.digest is not None and self.digest != digest_if_measured(self.directory):
            logger.warning(
                f"The sweep in {self.directory.name} was measured on other weights, and is taken out of the card."
            )
            shutil.rmtree((self.directory / EVALUATION_FILE).parent)
            self.card = self.card.without_evaluation()


def complete_checkpoint(directory: str | Path, mars: dict[str, int]) -> None:
    """
    Add to saved weights what decoding needs: `hf_mars/decoding` as it stands, as `custom_generate/`, without the files
    of earlier versions; in `config.json` the mask token once more, as `pard_token`, by which vLLM knows it in a
    parallel drafter; and for an adapter, which is saved without the model's `config.json`, the `mars` entry in its
    `adapter_config.json`, and PEFT among the requirements. In `generation_config.json`, `mars_*` fields that will be
    read again.
    """
    directory = Path(directory)
    destination = directory / "custom_generate"
    destination.mkdir(parents=True, exist_ok=True)
    source = Path(decoding.__file__).parent
    for path in (*source.glob("*.py"), source / "requirements.txt"):
        shutil.copyfile(path, destination / path.name)
    remove_former_files(destination)

    config = directory / CONFIG_NAME
    if config.exists():
        rewrite_json(config, lambda values: {**values, "pard_token": mars["mask_token_id"]})
    adapter_config = directory / ADAPTER_CONFIG_NAME
    if adapter_config.exists():
        rewrite_json(adapter_config, lambda values: {**values, "mars": mars})
        with (destination / "requirements.txt").open("a", encoding="utf-8") as requirements:
            requirements.write(f"{PEFT_REQUIREMENT}\n")
    generation_config = directory / GENERATION_CONFIG_NAME
    if generation_config.exists():
        rewrite_json(generation_config, keep_mars_fields)


def keep_mars_fields(values: dict[str, Any]) -> dict[str, Any]:
    """Of a file that says to come from the model's configuration, transformers reads no fields but its own."""
    if not any(name.startswith("mars_") for name in values):
        return values
    return {name: value for name, value in values.items() if name != "_from_model_config"}


def digest_if_measured(directory: str | Path) -> str | None:
    """A hash of the weights in a directory that holds a measured sweep, else `None`."""
    directory = Path(directory)
    if not (directory / EVALUATION_FILE).is_file():
        return None
    digest = hashlib.sha256()
    for path in sorted(directory.glob("*.safetensors")):
        with path.open("rb") as file:
            while chunk := file.read(2**24):
                digest.update(chunk)
    return digest.hexdigest()


def rewrite_json(path: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Change the values of a JSON file."""
    values = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(change(values), indent=2, sort_keys=True) + "\n", encoding="utf-8")
