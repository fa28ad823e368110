"""Bounds of versions are stated in pyproject.toml; what is shipped with checkpoints repeats the lower ones."""

import tomllib
from itertools import chain
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

from hf_mars import decoding
from hf_mars.hub.frame import PEFT_REQUIREMENT


PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DEPENDENCIES = {each.name: each for each in map(Requirement, PROJECT["dependencies"])}
# They move monthly, and only what was tested is allowed.
CAPPED = ("accelerate", "datasets", "evaluate", "gguf", "peft", "transformers", "trl")


def test_checkpoints_ask_for_the_lower_bounds():
    """Without the upper ones: a checkpoint that is on the Hub should load for as long as it works."""
    shipped = (Path(decoding.__file__).parent / "requirements.txt").read_text(encoding="utf-8").split()
    for line in (*shipped, PEFT_REQUIREMENT):
        requirement = Requirement(line)
        lower = [each for each in DEPENDENCIES[requirement.name].specifier if each.operator == ">="]
        assert list(requirement.specifier) == lower, f"{line} is not the lower bound of pyproject.toml"


def test_ranges_end_where_they_were_tested():
    every = [*PROJECT["dependencies"], *chain(*PROJECT["optional-dependencies"].values())]
    for requirement in map(Requirement, every):
        bounds = {each.operator: Version(each.version) for each in requirement.specifier}
        if requirement.name == PROJECT["name"]:
            continue
        assert ">=" in bounds, f"{requirement} has no lower bound"
        if requirement.name in CAPPED:
            assert "<" in bounds, f"{requirement} has no upper bound"
