"""Options that are fields of a dataclass: from the command line, and from a YAML file."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args, get_type_hints

import yaml
from trl import TrlParser

from ..one_line import one_line
from .errors import OneLineErrors


__all__ = ["ConfigParser"]


class ConfigParser(OneLineErrors, TrlParser):
    """TRL's parser, with errors of one line, also for a file that is not as it should be."""

    def parse_args_and_config(self, args: Iterable[str] | None = None, *others, **kwargs) -> tuple:
        """
        Raises:
            `ValueError`: If the file of `--config` is not there, or holds something else than options; or if an option
                is unknown.
        """
        # TRL looks for the two words.
        args = sys.argv[1:] if args is None else args
        args = [word for arg in args for word in (arg.split("=", 1) if arg.startswith("--config=") else [arg])]
        if "--config" in args:
            path = "".join(args[args.index("--config") + 1 :][:1])
            if not path or path.startswith("--"):
                raise ValueError("`--config` needs the path of a YAML file after it.")
            self._check(path)
        return super().parse_args_and_config(args, *others, **kwargs)

    def parse_args_into_dataclasses(self, args=None, return_remaining_strings=False, *others, **kwargs) -> tuple:
        *parsed, remaining = super().parse_args_into_dataclasses(args, True, *others, **kwargs)
        if remaining and not return_remaining_strings:
            self.error(f"unrecognized arguments: {' '.join(remaining)}")
        return (*parsed, remaining) if return_remaining_strings else (*parsed,)

    def _check(self, path: str) -> None:
        try:
            values = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ValueError(f"`--config` {path!r} could not be read: {one_line(error)}") from error
        if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
            raise ValueError(f"`--config` {path!r} must hold a YAML mapping from names of options to their values.")
        kinds = {name: kind for each in self.dataclass_types for name, kind in get_type_hints(each).items()}
        unknown = sorted(values.keys() - kinds.keys() - {"env"})
        if unknown:
            raise ValueError(f"`--config` {path!r} holds options that are not known: {', '.join(unknown)}.")
        for name, value in values.items():
            if is_number(kinds.get(name)) and isinstance(value, (bool, dict, list)):
                raise ValueError(f"`{name}` in {path!r} must be a number, got {value!r}.")


def is_number(kind: Any) -> bool:
    """Whether a field is one: argparse converts text from the file, but takes all else as it is."""
    return {*(get_args(kind) or (kind,))} - {type(None)} in ({int}, {float}, {int, float})
