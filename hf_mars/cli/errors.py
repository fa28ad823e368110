"""What a command says when it cannot do what was asked: one line, and exit code 2."""

import argparse
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import NoReturn

from yaml import YAMLError

from ..one_line import one_line


__all__ = ["CommandError", "CommandParser", "OneLineErrors", "one_line_errors"]


class CommandError(SystemExit):
    """
    The end of a command that said why it cannot go on.

    Args:
        message (`str`): What it said.
    """

    def __init__(self, message: str):
        super().__init__(message)
        self.code = 2


@contextmanager
def one_line_errors(program: str) -> Generator[None]:
    """
    What fails here is told in one line instead of a traceback.

    Args:
        program (`str`): Whose line it is, such as `"hf-mars generate"`.

    Raises:
        [`CommandError`]: If something failed.
    """
    try:
        yield
    except (ImportError, OSError, RuntimeError, TypeError, ValueError, YAMLError) as error:
        end(program, one_line(error), error)


class OneLineErrors:
    """For a parser of arguments: the usage, which may be many lines, is left to `--help`."""

    prog: str

    def error(self, message: str) -> NoReturn:
        message = message.replace("ignored explicit argument", "takes no value, got")
        end(self.prog, f"{message.rstrip('.')}. `{self.prog} --help` lists the arguments.")


class CommandParser(OneLineErrors, argparse.ArgumentParser):
    """Arguments of `hf-mars` and of the commands that have no dataclass of options."""


def end(program: str, message: str, cause: Exception | None = None) -> NoReturn:
    message = f"{program}: error: {message}"
    print(message, file=sys.stderr)
    raise CommandError(message) from cause
