"""The code blocks of documents, and how each kind of them is run."""

import importlib
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace


__all__ = ["ROOT", "Block", "Shell", "read_blocks"]

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A block between fences: its language, its text, and the place for error messages."""

    language: str
    text: str
    place: str


def read_blocks(path: Path) -> list[Block]:
    """The blocks of a document, or of a script's docstring."""
    text = path.read_text()
    return [
        Block(match[1], match[2], f"{path.relative_to(ROOT)}, line {text[: match.start()].count(chr(10)) + 1}")
        for match in FENCE.finditer(text)
    ]


class Shell:
    """
    Runs command lines in this process, in the current directory.

    Every line goes to the parser that the real command has. What is cheap is run; `parsed_only` are commands of
    `hf-mars` that would take minutes.

    Args:
        read_output (`Callable[[], str]`): What was printed since it was last called.
        replace (`Callable`): `monkeypatch.setattr`.
    """

    parsed_only = ("quickstart", "bench", "tune", "demo")

    def __init__(self, read_output: Callable[[], str], replace: Callable):
        self.read_output, self.replace = read_output, replace
        self.printed = ""

    def run(self, text: str) -> None:
        for line in text.replace("\\\n", " ").splitlines():
            command, *arguments = shlex.split(line, comments=True) or [""]
            if command:
                getattr(self, f"run_{command.replace('-', '_')}")(arguments)
                self.printed = self.read_output()

    def run_make(self, arguments: list[str]) -> None:
        subprocess.run(["make", "--dry-run", "--directory", str(ROOT), *arguments], check=True, capture_output=True)

    def run_pip(self, arguments: list[str]) -> None:
        command, *options = arguments
        assert command == "install"
        if options[0] == "-e":
            extras = re.fullmatch(r"\.\[([\w,-]+)\]", options[1])[1].split(",")
            project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
            assert set(extras) <= project["optional-dependencies"].keys()
        else:
            assert (ROOT / options[0] / "pyproject.toml").is_file()

    def run_hf_mars(self, arguments: list[str]) -> None:
        from hf_mars import cli

        if arguments[0] in self.parsed_only:
            self.replace(importlib.import_module(f"hf_mars.cli.{arguments[0]}"), "run", lambda options: None)
        cli.main(arguments)

    def run_python(self, arguments: list[str]) -> None:
        from hf_mars import demo

        if arguments[0].endswith("screenshots.py"):  # as far as it needs no browser
            self.replace(demo, "load_model", stop)
        self.replace(sys, "argv", arguments)
        try:
            runpy.run_path(str(ROOT / arguments[0]), run_name="__main__")
        except Stopped:
            pass

    def run_accelerate(self, arguments: list[str]) -> None:
        from accelerate.commands.launch import launch_command_parser
        from trl import DatasetMixtureConfig, ModelConfig, ScriptArguments

        from hf_mars import MARSConfig
        from hf_mars.cli.config_file import ConfigParser

        assert arguments[0] == "launch"
        options = launch_command_parser().parse_args(arguments[1:])
        assert (ROOT / options.config_file).is_file() and (ROOT / options.training_script).is_file()
        parser = ConfigParser((ScriptArguments, MARSConfig, ModelConfig, DatasetMixtureConfig))
        parser.parse_args_and_config(options.training_script_args)

    def run_vllm(self, arguments: list[str]) -> None:
        """The line before printed this one."""
        assert shlex.split(self.printed) == ["vllm", *arguments]

    def run_serve(self, arguments: list[str]) -> None:
        """Ray's own command: it calls a function with the options, all of them text."""
        from hf_mars.serving.ray.config import RayServingConfig

        command, function, *options = arguments
        module, _, name = function.partition(":")
        assert command == "run" and f"def {name}(" in (ROOT / f"{module.replace('.', '/')}.py").read_text()
        RayServingConfig(**dict(option.split("=", 1) for option in options))

    def run_transformers(self, arguments: list[str]) -> None:
        from transformers.cli.transformers import app

        app(arguments, standalone_mode=False)

    def run_hf(self, arguments: list[str]) -> None:
        from huggingface_hub import HfApi
        from huggingface_hub.cli.hf import app

        uploads = []
        self.replace(HfApi, "create_repo", lambda api, repo_id, **kwargs: SimpleNamespace(repo_id=repo_id))
        self.replace(HfApi, "upload_folder", lambda api, folder_path, **kwargs: uploads.append(folder_path))
        app(arguments, standalone_mode=False)
        assert [Path(folder).is_dir() for folder in uploads] == [True]


class Stopped(Exception):
    """A script has come as far as it should."""


def stop(*args, **kwargs):
    raise Stopped
