"""Checks of options, which name the one at fault."""

import json
import math
from contextlib import suppress
from types import NoneType
from typing import Any, get_args, get_type_hints


__all__ = ["check_positive", "check_types", "read_origins"]

IN_WORDS = {str: "text", int: "an integer", float: "a number", bool: "true or false"}


def check_types(config: Any) -> None:
    """
    Check the options of a dataclass against its annotations: a file of options may hold anything.

    Raises:
        `TypeError`: If one of them is of another type.
    """
    for name, kind in get_type_hints(type(config)).items():
        value = getattr(config, name)
        accepted = get_args(kind) or (kind,)
        fits = isinstance(value, accepted) or (float in accepted and isinstance(value, int))
        if not fits or (isinstance(value, bool) and bool not in accepted):
            words = " or ".join(IN_WORDS[each] for each in accepted if each is not NoneType)
            raise TypeError(f"`{name}` must be {words}, got {value!r}.")


def check_positive(config: Any, *names: str) -> None:
    """
    Raises:
        `ValueError`: If one of these options is set, and no number above 0.
    """
    for name in names:
        value = getattr(config, name)
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"`{name}` must be a positive number, got {value}.")


def read_origins(text: str) -> list[str]:
    """
    The origins of pages that `allowed_origins` names.

    Args:
        text (`str`): With commas between them, or a JSON list, as vLLM's command line takes it.

    Raises:
        `ValueError`: If one is none: browsers send a scheme, a host and perhaps a port, and nothing else would match.
    """
    origins = [origin.strip() for origin in text.split(",") if origin.strip()]
    with suppress(json.JSONDecodeError):
        origins = json.loads(text) if text.startswith("[") else origins
    for origin in origins:
        host = origin.partition("://")[2] if isinstance(origin, str) else ""
        if origin != "*" and (not host or "/" in host):
            raise ValueError(
                "`allowed_origins` must be *, or origins such as https://example.org, with commas between them or as "
                f"a JSON list, got {origin!r}."
            )
    return origins
