"""Saving a checkpoint together with the code that decodes it."""

import json
import shutil
from pathlib import Path
from typing import Any

from peft import PeftModel
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import ADAPTER_CONFIG_NAME, GENERATION_CONFIG_NAME, logging

from .. import decoding
from ..evaluation import Evaluation, load_evaluation
from .card import read_card, write_card
from .eval_results import write_eval_results


__all__ = ["complete_checkpoint", "document_checkpoint", "save_pretrained"]

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
    previous = read_card(directory)
    model.save_pretrained(directory, **kwargs)
    if tokenizer is not None:
        tokenizer.save_pretrained(directory)
    complete_checkpoint(directory, model.config.mars)
    document_checkpoint(
        directory,
        previous,
        evaluation=evaluation,
        license=license,
        base_model=base_model or model.config._name_or_path,
        datasets=datasets or (),
    )


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
        if previous is not None:  # PEFT writes a card of its own beside an adapter
            (Path(directory) / "README.md").write_text(previous, encoding="utf-8")
        if isinstance(evaluation, (str, Path)):
            evaluation = load_evaluation(evaluation)
        elif isinstance(evaluation, dict):
            evaluation = Evaluation.from_dict(evaluation)
        if evaluation is not None:
            write_eval_results(directory, evaluation)
        write_card(directory, previous, evaluation=evaluation, **card_arguments)
    except Exception as error:  # whatever it is, it may not cost the weights
        message = f"The model card of {Path(directory).name} was not written: {error}"
        logger.error(message)
        return message
    return None


def rewrite_json(path: Path, change) -> None:
    values = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(change(values), indent=2, sort_keys=True) + "\n", encoding="utf-8")
