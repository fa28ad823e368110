"""Saving a checkpoint together with the code that decodes it."""

import json
import shutil
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import ADAPTER_CONFIG_NAME

from .. import decoding


__all__ = ["record_in_adapter", "save_pretrained", "write_custom_generate"]


def save_pretrained(
    model: PreTrainedModel, directory: str | Path, tokenizer: PreTrainedTokenizerBase | None = None, **kwargs
) -> None:
    """
    Save a MARS model so that it decodes several tokens a forward also where hf_mars is not installed:

    ```python
    AutoModelForCausalLM.from_pretrained(directory, trust_remote_code=True).generate(**inputs, mars_threshold=0.9)
    ```

    Args:
        model ([`PreTrainedModel`]): A model that [`~hf_mars.enable_mars`] or [`~hf_mars.MARSTrainer`] prepared.
        directory (`str` or `Path`): Where to write; created if missing.
        tokenizer ([`PreTrainedTokenizerBase`], *optional*): Saved beside the weights.
        kwargs: As for [`~transformers.PreTrainedModel.save_pretrained`].

    Raises:
        `ValueError`: If the model has no `config.mars`.
    """
    if not getattr(model.config, "mars", None):
        raise ValueError("The model has no `config.mars`: train it with MARSTrainer, or call `enable_mars` first.")
    model.save_pretrained(directory, **kwargs)
    if tokenizer is not None:
        tokenizer.save_pretrained(directory)
    write_custom_generate(directory)
    record_in_adapter(directory, model.config.mars)


def write_custom_generate(directory: str | Path) -> None:
    """Copy `hf_mars/decoding` as it stands into the checkpoint's `custom_generate/`."""
    destination = Path(directory) / "custom_generate"
    destination.mkdir(parents=True, exist_ok=True)
    for source in Path(decoding.__file__).parent.glob("*.py"):
        shutil.copyfile(source, destination / source.name)


def record_in_adapter(directory: str | Path, mars: dict[str, int]) -> None:
    """An adapter is saved without the model's `config.json`: keep the `mars` entry in its `adapter_config.json`."""
    path = Path(directory) / ADAPTER_CONFIG_NAME
    if path.exists():
        config = json.loads(path.read_text())
        path.write_text(json.dumps({**config, "mars": mars}, indent=2, sort_keys=True) + "\n")
