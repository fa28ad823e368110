"""Blocks of a card: rendered from templates, and kept between comments so that they can be renewed in place."""

import re
from pathlib import Path

import jinja2
from huggingface_hub import ModelCard, ModelCardData

from ..paper import PAPER


__all__ = ["BLOCKS", "new_card", "read_block", "render_block", "replace_block"]

TEMPLATES = Path(__file__).parent / "templates"
BLOCKS = ("facts", "usage", "training", "evaluation")


def render_block(name: str, **values) -> str:
    """The text of one block."""
    template = jinja2.Template((TEMPLATES / f"{name}.md").read_text(encoding="utf-8"))
    return re.sub(r"\n{3,}", "\n\n", template.render(**values).strip())


def new_card(data: ModelCardData, title: str, block_size: int, blocks: dict[str, str | None]) -> ModelCard:
    """A card of all blocks; those without text are there as comments, to be filled later."""
    card = ModelCard.from_template(
        data,
        template_path=str(TEMPLATES / "model_card.md"),
        title=title,
        block_size=block_size,
        citation=PAPER["citation"],
        blocks={name: marked_block(name, blocks[name] or "") for name in BLOCKS},
    )
    card.data = data
    return card


def read_block(text: str, name: str) -> str:
    """What stands between the block's comments; empty where they are missing."""
    match = re.search(rf"<!-- mars:{name} -->\n(.*?)<!-- /mars:{name} -->", text, re.DOTALL)
    return match.group(1).strip() if match else ""


def replace_block(text: str, name: str, content: str) -> str:
    """
    Put new content between the block's comments. Where they are missing, a measured sweep goes to the end of the text,
    and other blocks are left out: a person took them away.
    """
    pattern = re.compile(rf"<!-- mars:{name} -->.*?<!-- /mars:{name} -->", re.DOTALL)
    block = marked_block(name, content)
    if pattern.search(text):
        return pattern.sub(lambda match: block, text, count=1)
    return f"{text.rstrip()}\n\n{block}\n" if name == "evaluation" and content else text


def marked_block(name: str, content: str) -> str:
    return f"<!-- mars:{name} -->\n{content}\n<!-- /mars:{name} -->"
