"""The front matter of a card: what is known is filled in, what a person wrote stays."""

import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, ModelCard, ModelCardData
from transformers.utils import logging

from .eval_results import is_of_sweep, replace_results
from .facts import CheckpointFacts
from .paths import hub_id, read_card


__all__ = ["first_of", "front_matter", "merge_front_matter", "update_front_matter"]

logger = logging.get_logger(__name__)

TAGS = ["mars", "custom_generate", "trl"]


def front_matter(card: ModelCard) -> ModelCardData:
    """What a model card says of itself, in its own type."""
    data: Any = card.data
    return data


def update_front_matter(
    data: ModelCardData, given: ModelCardData, facts: CheckpointFacts, repo_id: str | None
) -> None:
    """
    Bring the front matter of a card up to date.

    Args:
        data ([`~huggingface_hub.ModelCardData`]): The front matter, changed in place.
        given ([`~huggingface_hub.ModelCardData`]):
            Base model, data sets, license and tags that the caller names. Local paths are left out.
        facts ([`CheckpointFacts`]): What the checkpoint says of itself.
        repo_id (`str`, *optional*): Where the checkpoint is pushed to.
    """
    loaded_from = first_of(given.base_model) or facts.base_model
    base_model: str | list[str] | None = hub_id(loaded_from)
    if base_model in (None, repo_id):  # unknown, or this very repository, loaded and pushed again
        base_model = data.base_model
    inherited = {} if given.license or data.license else base_card_data(loaded_from or first_of(base_model))

    data.base_model = base_model
    relation = "adapter" if facts.is_adapter else "finetune"
    vars(data)["base_model_relation"] = None if base_model is None else relation
    data.datasets = union(as_list(data.datasets), map(hub_id, as_list(given.datasets)))
    data.library_name = data.library_name or ("peft" if facts.is_adapter else "transformers")
    data.license = given.license or data.license or inherited.get("license")
    for name in ("license_name", "license_link"):
        if inherited.get(name):
            setattr(data, name, inherited[name])
    data.pipeline_tag = data.pipeline_tag or "text-generation"
    data.tags = union(as_list(data.tags), TAGS, as_list(given.tags))
    if data.license is None:
        logger.warning_once(
            "The model card has no license, and none could be inherited from the base model: pass `license`."
        )


def merge_front_matter(data: ModelCardData, own: ModelCardData) -> None:
    """
    Add to the front matter of a repository's card what that of a checkpoint says.

    Args:
        data ([`~huggingface_hub.ModelCardData`]): Of the repository, changed in place.
        own ([`~huggingface_hub.ModelCardData`]): Of the checkpoint.
    """
    for name in ("base_model", "base_model_relation", "library_name", "license", "model_name"):
        is_a_persons = name in ("license", "library_name") and getattr(data, name, None)
        if getattr(own, name, None) and not is_a_persons:
            setattr(data, name, getattr(own, name))
    for name in ("datasets", "tags"):
        setattr(data, name, union(as_list(getattr(data, name)), as_list(getattr(own, name))))
    measured = [result for result in own.eval_results or [] if is_of_sweep(result)]
    if measured:
        replace_results(data, measured)


@functools.lru_cache
def base_card_data(name: str | None) -> dict[str, Any]:
    """Front matter of the card of a base model, on disk or on the Hub; empty where it cannot be read."""
    if not name:
        return {}
    try:
        if Path(name).is_dir():
            card = read_card(name)
            data = ModelCard(card).data if card else None
        else:
            data = HfApi().model_info(name, timeout=5).card_data
    except Exception as error:  # no network, a private base, a malformed card: none may cost the checkpoint
        logger.info(f"The card of {name} could not be read ({error}).")
        return {}
    return data.to_dict() if data else {}


def first_of(value: str | list[str] | None) -> str | None:
    """A card may name several base models, as that of a merge does: the first stands for them."""
    return next(iter(as_list(value)), None)


def as_list(value: str | list[str] | None) -> list[str]:
    return [value] if isinstance(value, str) else list(value or [])


def union(*parts: Iterable[str | None]) -> list[str] | None:
    """Every name once, in the order of appearance; `None` if there is none."""
    return list(dict.fromkeys(name for part in parts for name in part if name)) or None
