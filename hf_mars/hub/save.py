"""Saving a checkpoint together with the code that decodes it."""

import dataclasses
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

from huggingface_hub.constants import REPOCARD_NAME
from peft import PeftModel
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import ADAPTER_CONFIG_NAME, GENERATION_CONFIG_NAME, logging

from .. import decoding
from ..evaluation import EVALUATION_FILE, Evaluation, load_evaluation
from .card import without_evaluation, write_card
from .eval_results import write_eval_results
from .paths import read_card, without_paths


__all__ = [
    "CheckpointFrame",
    "complete_checkpoint",
    "document_checkpoint",
    "save_pretrained",
]

logger = logging.get_logger(__name__)


def save_pretrained(
    model: PreTrainedModel | PeftModel,
    directory: str | Path,
    tokenizer: PreTrainedTokenizerBase | None = None,
    evaluation: Evaluation | dict[str, Any] | str | Path | None = None,
    license: str | None = None,
    base_model: str | None = None,
    datasets: list[str] | None = None,
    **kwargs,
) -> None:
    """
    Save a MARS model so that it decodes several tokens a forward also where hf_mars is not installed:

    ```python
    AutoModelForCausalLM.from_pretrained(directory, trust_remote_code=True).generate(**inputs, mars_threshold=0.9)
    ```

    It writes the weights, or the adapter; the tokenizer; `config.json` with its `mars` entry; a
    `generation_config.json` without `mars_*`; the decoding code in `custom_generate/`; and, last of all, the model
    card with `.eval_results/`. An error of the card is logged: by then the weights are safe.

    Args:
        model ([`PreTrainedModel`] or [`~peft.PeftModel`]):
            A model that [`~hf_mars.enable_mars`] or [`~hf_mars.MARSTrainer`] prepared.
        directory (`str` or `Path`): Where to write; created if missing. A card that is there is updated in place.
        tokenizer ([`PreTrainedTokenizerBase`], *optional*): Saved beside the weights.
        evaluation ([`Evaluation`], `dict`, `str` or `Path`, *optional*):
            A sweep measured on this model, or the file it is in, for the card.
        license (`str`, *optional*): License of the card. Defaults to that of the base model.
        base_model (`str`, *optional*): Hub id of the base model. Defaults to the one the model was loaded from.
        datasets (`list[str]`, *optional*): Hub ids of the training data, for the card.
        kwargs: As for [`~transformers.PreTrainedModel.save_pretrained`].

    Raises:
        `ValueError`: If the model has no `config.mars`.
    """
    if not getattr(model.config, "mars", None):
        raise ValueError("The model has no `config.mars`: train it with MARSTrainer, or call `enable_mars` first.")
    with CheckpointFrame(directory, model.config.mars) as frame:
        model.save_pretrained(directory, **kwargs)
        if tokenizer is not None:
            tokenizer.save_pretrained(directory)
    document_checkpoint(
        directory,
        frame.previous_card,
        evaluation=evaluation,
        license=license,
        base_model=base_model or model.config._name_or_path,
        datasets=datasets or (),
    )


class CheckpointFrame:
    """
    What goes before and after saving weights: it remembers the card that is there, adds what decoding needs, and takes
    away a sweep that was measured on other weights.

    Args:
        directory (`str` or `Path`): Where the weights are saved.
        mars (`dict[str, int]`): The model's `config.mars`.

    Attributes:
        previous_card (`str`, *optional*): The card that was there; without the sweep if that is not of these weights.
    """

    def __init__(self, directory: str | Path, mars: dict[str, int]):
        self.directory, self.mars = directory, mars

    def __enter__(self) -> "CheckpointFrame":
        self.previous_card, self.digest = read_card(self.directory), digest_if_measured(self.directory)
        return self

    def __exit__(self, kind, error, traceback) -> None:
        if error is None:
            complete_checkpoint(self.directory, self.mars)
            self.previous_card = forget_evaluation_of_others(self.directory, self.previous_card, self.digest)


def complete_checkpoint(directory: str | Path, mars: dict[str, int]) -> None:
    """
    Add to saved weights what decoding needs: `hf_mars/decoding` as it stands, as `custom_generate/`, and for an
    adapter, which is saved without the model's `config.json`, the `mars` entry in its `adapter_config.json`.
    """
    directory = Path(directory)
    destination = directory / "custom_generate"
    destination.mkdir(parents=True, exist_ok=True)
    source = Path(decoding.__file__).parent
    for path in (*source.glob("*.py"), source / "requirements.txt"):
        shutil.copyfile(path, destination / path.name)

    adapter_config = directory / ADAPTER_CONFIG_NAME
    if adapter_config.exists():
        rewrite_json(adapter_config, lambda values: {**values, "mars": mars})
    generation_config = directory / GENERATION_CONFIG_NAME
    if generation_config.exists():
        # A plain load would accept a `mars_threshold` from there, and silently decode one token a forward.
        rewrite_json(
            generation_config,
            lambda values: {name: value for name, value in values.items() if not name.startswith("mars_")},
        )


def document_checkpoint(
    directory: str | Path,
    previous: str | None,
    evaluation: Evaluation | dict[str, Any] | str | Path | None = None,
    **card_arguments,
) -> str | None:
    """
    Write the card and the evaluation of a checkpoint whose weights are there, as [`write_card`] does.

    Returns:
        `str`, *optional*: What went wrong; `None` if nothing did. It is logged too.
    """
    try:
        path = Path(directory) / REPOCARD_NAME  # by now PEFT may have written a card of its own, with local paths
        if previous is not None:
            path.write_text(previous, encoding="utf-8")
        else:
            path.unlink(missing_ok=True)
        if isinstance(evaluation, (str, Path)):
            evaluation = load_evaluation(evaluation)
        elif isinstance(evaluation, dict):
            evaluation = Evaluation.from_dict(evaluation)
        if evaluation is not None:
            command = evaluation.command and without_paths(evaluation.command)
            evaluation = dataclasses.replace(evaluation, command=command)
            write_eval_results(directory, evaluation)
        write_card(directory, previous, evaluation=evaluation, **card_arguments)
    except Exception as error:  # whatever it is, it may not cost the weights
        message = f"The model card of {Path(directory).name} was not written: {error}"
        logger.error(message)
        return message
    return None


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


def forget_evaluation_of_others(directory: str | Path, previous: str | None, digest: str | None) -> str | None:
    """
    Where other weights were saved over those with the given hash, take the sweep of the old ones away, and return the
    previous card without it.
    """
    if digest is None or digest == digest_if_measured(directory):
        return previous
    logger.warning(f"The sweep in {Path(directory).name} was measured on other weights, and is taken out of the card.")
    shutil.rmtree((Path(directory) / EVALUATION_FILE).parent)
    return None if previous is None else without_evaluation(previous)


def rewrite_json(path: Path, change) -> None:
    values = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(change(values), indent=2, sort_keys=True) + "\n", encoding="utf-8")
