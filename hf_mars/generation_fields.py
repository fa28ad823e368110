"""The `mars_*` fields of a generation configuration."""

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any

from transformers import GenerationConfig


__all__ = ["drop_mars_fields", "mars_fields", "set_aside"]


def mars_fields(config: GenerationConfig) -> dict[str, Any]:
    """Those that are there, by name."""
    return {name: value for name, value in vars(config).items() if name.startswith("mars_")}


def drop_mars_fields(config: GenerationConfig) -> None:
    """Take them out, for commands that say themselves how to decode."""
    for name in mars_fields(config):
        delattr(config, name)


@contextmanager
def set_aside(config: GenerationConfig, names: Iterable[str]) -> Generator[None]:
    """The configuration without some of its fields, for a while."""
    values = {name: vars(config).pop(name) for name in names}
    try:
        yield
    finally:
        vars(config).update(values)
