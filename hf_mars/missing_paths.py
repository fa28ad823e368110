"""Paths that a user mistyped, told from ids of the Hub."""

import re
from collections.abc import Collection
from pathlib import Path


__all__ = ["check_model_path", "check_path"]


def check_path(name: str, argument: str, suffixes: Collection[str] = ()) -> None:
    """
    Check that what can only be a path is there, before the Hub is asked for it.

    Args:
        name (`str`): A path or the id of a repository on the Hub.
        argument (`str`): The argument that holds it.
        suffixes (`Collection[str]`, *optional*): Endings of files, which no id has.

    Raises:
        `ValueError`: If it is not there.
    """
    path = Path(name)
    is_id = re.fullmatch(r"\w[\w.-]*(/[\w.-]+)?", name) and path.suffix not in suffixes
    if not is_id and not (name and path.exists()):
        raise ValueError(f"`{argument}` is {name!r}, and there is no such file or directory.")


def check_model_path(name: str, argument: str) -> None:
    """
    The same for a model, which is a directory or an id.

    Args:
        name (`str`): A directory or the id of a repository on the Hub.
        argument (`str`): The argument that holds it.

    Raises:
        `ValueError`: If it is not there, or a file.
    """
    check_path(name, argument)
    if Path(name).is_file():
        raise ValueError(f"`{argument}` is {name!r}, a file: name the directory that holds it.")
