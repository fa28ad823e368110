"""Names that others can use, and paths that they cannot."""

import re
import shlex
from pathlib import Path

from huggingface_hub import ModelCard
from huggingface_hub.constants import REPOCARD_NAME
from yaml import YAMLError


__all__ = ["hub_id", "read_card", "without_paths", "write_card"]


def read_card(directory: str | Path) -> str | None:
    """The text of a directory's model card, or `None`. Bytes that are not UTF-8 come as surrogates."""
    path = Path(directory) / REPOCARD_NAME
    return path.read_text(encoding="utf-8", errors="surrogateescape") if path.is_file() else None


def write_card(directory: str | Path, text: str) -> None:
    """Write the text of a directory's model card, with the bytes that [`read_card`] found."""
    (Path(directory) / REPOCARD_NAME).write_text(text, encoding="utf-8", errors="surrogateescape")


def hub_id(name: str | None) -> str | None:
    """
    The Hub id that a model or data set goes by: the name itself, that of the base in the card of a local directory, or
    `None` for any other path.
    """
    if not name:
        return None
    if Path(name).exists():
        previous = read_card(name) if Path(name).is_dir() else None
        try:
            named = ModelCard(previous, ignore_metadata_errors=True).data.get("base_model") if previous else None
        except (TypeError, ValueError, YAMLError):  # front matter that a person has broken names nothing
            return None
        return named if isinstance(named, str) else None
    return name if re.fullmatch(r"[A-Za-z0-9][\w.-]*/[\w.-]+", name) else None


def without_paths(command: str) -> str:
    """A command line in which every local path is its last part alone."""
    words = []
    for word in shlex.split(command):
        option, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
        is_path = "/" in value and hub_id(value) != value
        words.append(option + equals + (Path(value).name if is_path else value))
    return shlex.join(words)
