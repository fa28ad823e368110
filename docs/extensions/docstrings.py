"""
Docstrings in the style of Hugging Face, for Sphinx: Markdown inside of Google's sections.

Napoleon reads the sections. What is left is Markdown: code in single backticks, blocks between fences, and names such
as [`Planner`], which link to where the site documents them. A name that nothing has is a warning, and so an error.
"""

import ast
import importlib
import re
from functools import cache
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.nodes import make_refnode

import hf_mars


COLON = "\N{RATIO}"  # stands in for a colon
PACKAGE = Path(hf_mars.__file__).parent
# Whose names docstrings may use without a link; the site is built without a network.
LIBRARIES = (
    "datasets",
    "huggingface_hub",
    "peft",
    "torch",
    "transformers",
    "transformers.generation",
    "transformers.generation.utils",
    "trl",
)
FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
RAISED = re.compile(r"^( *:raises )\[`~?([\w.]+)`\]:", re.MULTILINE)
NAME = re.compile(r"\[`(~?)([\w.]+)`\]")
CODE = re.compile(r"(?<![`:\w])`([^`]+)`(?!`)")


def setup(app: Sphinx) -> dict[str, Any]:
    before, after = 400, 600  # Napoleon's priority is 500
    app.connect("autodoc-process-docstring", prepare, priority=before)
    app.connect("autodoc-process-docstring", translate, priority=after)
    app.connect("autodoc-skip-member", skip_elsewhere)
    app.connect("missing-reference", find_name)
    return {"parallel_read_safe": True}


def prepare(app, what, name, obj, options, lines: list[str]) -> None:
    """Take out what Napoleon would misread: headings between parameters, and a colon in the line of a property."""
    lines[:] = [line for line in lines if not line.lstrip().startswith("> ")]
    if what in ("attribute", "data", "property"):
        lines[:] = [line.replace(":", COLON) for line in lines]


def translate(app, what, name, obj, options, lines: list[str]) -> None:
    """Turn the lines from Markdown into reStructuredText, in place."""
    parts = re.split(r"(^ *```\w*\n.*?^ *```$)", "\n".join(lines), flags=re.DOTALL | re.MULTILINE)
    text = "".join(FENCED.sub(to_block, part) if FENCED.fullmatch(part) else translate_prose(part) for part in parts)
    lines[:] = text.replace(COLON, ":").split("\n")


def to_block(match: re.Match) -> str:
    indent, language, code = match.groups()
    return f"{indent}.. code-block:: {language or 'text'}\n\n{re.sub('^', '   ', code, flags=re.MULTILINE)}\n"


def translate_prose(text: str) -> str:
    text = RAISED.sub(r"\1\2:", text)
    parts = re.split(r"(\[`~?[\w.]+`\])", text)
    return "".join(NAME.sub(to_role, part) if NAME.fullmatch(part) else CODE.sub(r"``\1``", part) for part in parts)


def to_role(match: re.Match) -> str:
    is_short, name = match.groups()
    return rf"\ :py:obj:`{name.split('.')[-1] if is_short else name} <{name}>`\ "


def skip_elsewhere(app, what, name, obj, skip, options) -> bool | None:
    """What users import from `hf_mars` itself is documented as that, and not a second time in its module."""
    return True if name in hf_mars.__all__ and getattr(hf_mars, name) is obj else None


def find_name(app: Sphinx, env, node: nodes.Element, contnode: nodes.Element) -> nodes.Node | None:
    """Where a name is documented, or its text alone if it exists elsewhere; `None`, which warns, if nothing has it."""
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"].removeprefix("hf_mars.")
    objects = env.domains.python_domain.objects
    found = [name for name in objects if name == target or name.endswith(f".{target}")]
    if found:
        best = min(found, key=len)
        return make_refnode(app.builder, node["refdoc"], objects[best].docname, objects[best].node_id, contnode, best)
    return contnode if target in names_of_package() or is_of_library(node["reftarget"]) else None


@cache
def names_of_package() -> frozenset[str]:
    """Names that the modules of the package define: modules, classes with their methods, functions and constants."""
    names = set()
    for path in PACKAGE.rglob("*.py"):
        names.add(".".join(path.relative_to(PACKAGE).with_suffix("").parts))
        for item in ast.parse(path.read_text()).body:
            if isinstance(item, ast.Assign | ast.AnnAssign):
                targets = item.targets if isinstance(item, ast.Assign) else [item.target]
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
            elif isinstance(item, ast.FunctionDef | ast.ClassDef):
                names |= {item.name, *(f"{item.name}.{part.name}" for part in item.body if hasattr(part, "name"))}
    return frozenset(names)


@cache
def is_of_library(name: str) -> bool:
    """Whether an installed library has it, given with its module or without."""
    return any(has(f"{prefix}{name}") for prefix in ("", *(f"{library}." for library in LIBRARIES)))


def has(path: str) -> bool:
    module, *attributes = path.split(".")
    try:
        value = importlib.import_module(module)
        for depth, attribute in enumerate(attributes):
            if not hasattr(value, attribute):
                importlib.import_module(".".join([module, *attributes[: depth + 1]]))
            value = getattr(value, attribute)
    except (ImportError, AttributeError):
        return False
    return bool(attributes)
