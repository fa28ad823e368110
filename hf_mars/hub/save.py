"""Saving a checkpoint together with the code that decodes it."""

import inspect
import json
from pathlib import Path
from types import MethodType
from typing import TYPE_CHECKING, Any

from huggingface_hub import ModelCardData
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from ..evaluation import Evaluation
from ..generation_fields import mars_fields, set_aside
from .frame import CheckpointFrame


if TYPE_CHECKING:  # PEFT takes seconds to import, and only adapters need it
    from peft import PeftModel


__all__ = ["save_completely", "save_pretrained"]

logger = logging.get_logger(__name__)


def save_pretrained(
    model: "PreTrainedModel | PeftModel",
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

    It writes the weights, or the adapter; the tokenizer; `config.json` with its `mars` entry, and with `pard_token`,
    so that vLLM takes the checkpoint as parallel drafter of a bigger model; `generation_config.json`, whose `mars_*`
    fields count wherever the decoding code is loaded, and are passed over where it is not; that code, in
    `custom_generate/`; and, last of all, the model card with `.eval_results/`. An error of the card is logged: by then
    the weights are safe.

    The `save_pretrained` of a model that [`~hf_mars.enable_mars`] prepared writes the same.

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
    left_out = [name for name, value in mars_fields(model.generation_config).items() if not is_json(value)]
    if left_out:
        logger.warning(f"{left_out} of the generation configuration are not saved: JSON has numbers and text alone.")
    with CheckpointFrame(directory, model.config.mars) as frame:
        with set_aside(model.generation_config, left_out):
            own_class: Any = type(model)  # the method of a model may be this function
            own_class.save_pretrained(model, str(directory), **kwargs)
        if tokenizer is not None:
            tokenizer.save_pretrained(directory)
    frame.card.write(
        ModelCardData(base_model=base_model or model.config.name_or_path, datasets=datasets, license=license),
        evaluation,
    )


def save_completely(save_directory: str | Path, *args, model: "PreTrainedModel | PeftModel", **kwargs) -> None:
    """
    What [`~hf_mars.enable_mars`] binds as `model.save_pretrained`: the arguments are those of the model's own, and the
    checkpoint is that of [`save_pretrained`].

    Args:
        save_directory (`str` or `Path`): Where to write.
        args, kwargs: As for [`~transformers.PreTrainedModel.save_pretrained`] or
            [`~peft.PeftModel.save_pretrained`].
        model ([`PreTrainedModel`] or [`~peft.PeftModel`]): The model.
    """
    usual = MethodType(type(model).save_pretrained, model)
    arguments = inspect.signature(usual).bind(save_directory, *args, **kwargs).arguments
    arguments = {**arguments.pop("kwargs", {}), **arguments}
    if not getattr(model.config, "mars", None) or not arguments.get("is_main_process", True):
        usual(**arguments)
        return
    save_pretrained(model, arguments.pop("save_directory"), **arguments)
    if arguments.get("push_to_hub"):
        logger.warning(
            "`push_to_hub=True` pushed the weights before `custom_generate/` and the model card were written: push "
            "them too with `hf_mars.push_to_hub(model, repo_id)`."
        )


def is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True
