"""The model card: written from templates, updated in place, never claiming what was not measured."""

import functools
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jinja2
from huggingface_hub import EvalResult, HfApi, ModelCard, ModelCardData
from huggingface_hub.constants import REPOCARD_NAME
from transformers.utils import ADAPTER_CONFIG_NAME, CONFIG_NAME, logging

from ..evaluation import Evaluation, format_table
from .eval_results import PICTURE_FILE, is_of_sweep, model_index
from .paths import hub_id, read_card


__all__ = ["merge_cards", "read_checkpoint", "without_evaluation", "write_card"]

logger = logging.get_logger(__name__)

TEMPLATES = Path(__file__).parent / "templates"
TAGS = ["mars", "custom_generate", "trl"]
BLOCKS = ("facts", "usage", "training", "evaluation")


def write_card(
    directory: str | Path,
    previous: str | None = None,
    base_model: str | None = None,
    datasets: Iterable[str] = (),
    license: str | None = None,
    tags: Iterable[str] = (),
    training: dict[str, Any] | None = None,
    evaluation: Evaluation | None = None,
    repo_id: str | None = None,
    checkpoint: dict[str, Any] | None = None,
) -> ModelCard:
    """
    Write the card of a saved checkpoint, or bring a present one up to date.

    What the templates wrote stands between comments (`<!-- mars:usage -->` and so on) and is renewed; everything else
    is kept as a person left it, in the text and in the front matter.

    Args:
        directory (`str` or `Path`): Where the checkpoint was saved.
        previous (`str`, *optional*): Text of the card to update; a new one is written without it.
        base_model (`str`, *optional*): Hub id of the base model. Local paths are left out.
        datasets (`Iterable[str]`, *optional*): Hub ids of the training data. Local paths are left out.
        license (`str`, *optional*): Defaults to that of the previous card, else to that of the base model.
        tags (`Iterable[str]`, *optional*): Tags beside `mars`, `custom_generate` and `trl`.
        training (`dict`, *optional*): `parameters`, `metrics` and `versions` of the training.
        evaluation ([`Evaluation`], *optional*): A sweep measured on this checkpoint.
        repo_id (`str`, *optional*): Where the checkpoint is pushed to.
        checkpoint (`dict`, *optional*): What [`read_checkpoint`] returns, where no weights are written yet.

    Returns:
        [`~huggingface_hub.ModelCard`]: The card that was written.
    """
    directory = Path(directory)
    checkpoint = checkpoint or read_checkpoint(directory)
    card = ModelCard(previous) if previous else None
    data = card.data if card else ModelCardData()
    loaded_from = base_model or checkpoint["base_model"]
    base_model = hub_id(loaded_from)
    if base_model in (None, repo_id):  # unknown, or this very repository, loaded and pushed again
        base_model = getattr(data, "base_model", None)
    inherited = {} if license or data.license else base_card_data(loaded_from or base_model)
    datasets = [*as_list(data.datasets), *map(hub_id, datasets)]

    data.base_model = base_model
    data.base_model_relation = "adapter" if checkpoint["is_adapter"] else "finetune"
    if base_model is None:
        del data.base_model_relation
    data.datasets = list(dict.fromkeys(filter(None, datasets))) or None
    data.library_name = data.library_name or ("peft" if checkpoint["is_adapter"] else "transformers")
    data.license = license or data.license or inherited.get("license")
    for name in ("license_name", "license_link"):
        if inherited.get(name):
            setattr(data, name, inherited[name])
    data.pipeline_tag = data.pipeline_tag or "text-generation"
    data.tags = list(dict.fromkeys([*as_list(data.tags), *TAGS, *tags]))
    if evaluation is not None:
        name = (repo_id or data.model_name or directory.name).split("/")[-1]
        data.model_name = name
        data.eval_results = [*others_results(data), *model_index(evaluation)]
    if data.license is None:
        logger.warning_once(
            "The model card has no license, and none could be inherited from the base model: pass `license`."
        )

    values = {
        **checkpoint,
        "base_model": base_model,
        "datasets": data.datasets,
        "model_id": repo_id or "path/to/checkpoint",
    }
    blocks = {
        "facts": render("facts", **values),
        "usage": render("usage", **values) if repo_id or not card else None,
        "training": render("training", training=training) if training else None,
        "evaluation": describe(evaluation, directory) if evaluation else None,
    }
    if card is None:
        title = (repo_id or base_model or "MARS checkpoint").split("/")[-1]
        title = title if repo_id or not base_model else f"{title}, fine-tuned with MARS"
        marked = {name: marked_block(name, blocks[name] or "") for name in BLOCKS}
        card = ModelCard.from_template(
            data,
            template_path=str(TEMPLATES / "model_card.md"),
            title=title,
            block_size=checkpoint["block_size"],
            blocks=marked,
        )
        card.data = data
    else:
        for name, content in blocks.items():
            if content is not None:
                card.text = replace_block(card.text, name, content, append=name == "evaluation")
    card.save(directory / REPOCARD_NAME)
    return card


def merge_cards(remote: str | None, local: str | None) -> str | None:
    """The repository's card, with what this checkpoint's own card says in the blocks of the templates."""
    if remote is None or local is None:
        return local if remote is None else remote
    card, own = ModelCard(remote), ModelCard(local)
    for name in BLOCKS:
        content = read_block(own.text, name)
        if content:
            card.text = replace_block(card.text, name, content, append=name == "evaluation")
    for name in ("base_model", "base_model_relation", "library_name", "license", "model_name"):
        is_a_persons = name in ("license", "library_name") and getattr(card.data, name, None)
        if getattr(own.data, name, None) and not is_a_persons:
            setattr(card.data, name, getattr(own.data, name))
    for name in ("datasets", "tags"):
        both = [*as_list(getattr(card.data, name)), *as_list(getattr(own.data, name))]
        setattr(card.data, name, list(dict.fromkeys(both)) or None)
    measured = [result for result in own.data.eval_results or [] if is_of_sweep(result)]
    if measured:
        card.data.eval_results = [*others_results(card.data), *measured]
    return str(card)


def without_evaluation(text: str) -> str:
    """A card without what a sweep has put into it."""
    card = ModelCard(text)
    card.text = replace_block(card.text, "evaluation", "", append=False)
    card.data.eval_results = others_results(card.data) or None
    return str(card)


def others_results(data: ModelCardData) -> list[EvalResult]:
    """Results of the `model-index` that did not come from a sweep of ours."""
    return [result for result in data.eval_results or [] if not is_of_sweep(result)]


def as_list(value: str | list[str] | None) -> list[str]:
    return [value] if isinstance(value, str) else list(value or [])


def read_checkpoint(directory: Path) -> dict[str, Any]:
    """What a saved checkpoint says of itself."""
    is_adapter = (directory / ADAPTER_CONFIG_NAME).is_file()
    path = directory / (ADAPTER_CONFIG_NAME if is_adapter else CONFIG_NAME)
    config = json.loads(path.read_text(encoding="utf-8"))
    tokenizer_path = directory / "tokenizer_config.json"
    tokenizer = json.loads(tokenizer_path.read_text(encoding="utf-8")) if tokenizer_path.is_file() else {}
    mask_token = tokenizer.get("mask_token")
    return {
        "is_adapter": is_adapter,
        "base_model": config.get("base_model_name_or_path") or config.get("_name_or_path"),
        "mask_token": mask_token["content"] if isinstance(mask_token, dict) else mask_token,
        **config["mars"],
    }


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


def describe(evaluation: Evaluation, directory: Path) -> str:
    """The block of the measured sweep."""
    return render(
        "evaluation",
        table=format_table(evaluation.results),
        picture=PICTURE_FILE if (directory / PICTURE_FILE).is_file() else None,
        environment=evaluation.environment,
        notes=evaluation.notes,
        command=evaluation.command,
    )


def render(name: str, **values) -> str:
    """One block of the card."""
    template = jinja2.Template((TEMPLATES / f"{name}.md").read_text(encoding="utf-8"))
    return re.sub(r"\n{3,}", "\n\n", template.render(**values).strip())


def marked_block(name: str, content: str) -> str:
    return f"<!-- mars:{name} -->\n{content}\n<!-- /mars:{name} -->"


def read_block(text: str, name: str) -> str:
    match = re.search(rf"<!-- mars:{name} -->\n(.*?)<!-- /mars:{name} -->", text, re.DOTALL)
    return match.group(1).strip() if match else ""


def replace_block(text: str, name: str, content: str, append: bool) -> str:
    """Put new content between the block's comments, or at the end if they are missing and `append` is set."""
    pattern = re.compile(rf"<!-- mars:{name} -->.*?<!-- /mars:{name} -->", re.DOTALL)
    block = marked_block(name, content)
    if pattern.search(text):
        return pattern.sub(lambda match: block, text, count=1)
    return f"{text.rstrip()}\n\n{block}\n" if append else text
