"""Saving a checkpoint together with the code that decodes it."""

from pathlib import Path
from typing import Any

from huggingface_hub import ModelCardData
from peft import PeftModel
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..evaluation import Evaluation
from .frame import CheckpointFrame


__all__ = ["save_pretrained"]


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

    It writes the weights, or the adapter; the tokenizer; `config.json` with its `mars` entry, and with `pard_token`,
    so that vLLM takes the checkpoint as parallel drafter of a bigger model; a `generation_config.json` without
    `mars_*`; the decoding code in `custom_generate/`; and, last of all, the model card with `.eval_results/`. An error
    of the card is logged: by then the weights are safe.

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
        model.save_pretrained(str(directory), **kwargs)
        if tokenizer is not None:
            tokenizer.save_pretrained(directory)
    frame.card.write(
        ModelCardData(base_model=base_model or model.config._name_or_path, datasets=datasets, license=license),
        evaluation,
    )
