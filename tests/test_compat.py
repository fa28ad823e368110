"""Names that other libraries may take away: all of them are listed, still there, and used in one place."""

import ast
import importlib
import inspect
import pkgutil
from pathlib import Path

import pytest

import hf_mars
from hf_mars.compat import PRIVATE_NAMES


PACKAGE = Path(hf_mars.__file__).parent
COMPAT = (PACKAGE / "compat.py", PACKAGE / "decoding/compat.py")
LISTED = {entry.name for entry in PRIVATE_NAMES}
SOURCES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


@pytest.mark.parametrize("entry", PRIVATE_NAMES, ids=lambda entry: f"{entry.owner}.{entry.name}")
def test_a_private_name_is_as_we_use_it(entry):
    root = entry.owner.split(".")[0]
    version = importlib.import_module(root).__version__
    advice = "See where hf_mars uses it, and adapt that or narrow the range in pyproject.toml."
    try:
        owner = pkgutil.resolve_name(entry.owner)
    except (ImportError, AttributeError):
        pytest.fail(f"`{entry.owner}` is gone in {root} {version}. {advice}")
    # What is set on instances alone shows in the source of the class.
    is_there = hasattr(owner, entry.name) or entry.name in inspect.getsource(owner)
    assert is_there, f"`{entry.name}` of `{entry.owner}` is gone in {root} {version}. {advice}"
    if entry.parameters:
        parameters = inspect.signature(getattr(owner, entry.name)).parameters
        missing = [name for name in entry.parameters if name not in parameters]
        assert not missing, f"`{entry.owner}.{entry.name}` takes no {missing} in {root} {version}. {advice}"


def defined_privately(tree):
    """Private names that a module gives its own classes and their instances."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_own(node.value):
            yield node.attr
        elif isinstance(node, ast.ClassDef):
            targets = [target for each in node.body if isinstance(each, ast.Assign) for target in each.targets]
            targets += [each.target for each in node.body if isinstance(each, ast.AnnAssign)]
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def is_own(value):
    """Whether the owner of an attribute is `self`, `cls` or `super()`."""
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id == "super"
    return isinstance(value, ast.Name) and value.id in ("self", "cls")


def used_privately(tree):
    """Each private name that a module reads or imports: its node, the name, and whether it is the class's own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            yield node, node.attr, is_own(node.value)
        elif isinstance(node, ast.ImportFrom):
            parts = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            yield from ((node, name, False) for name in parts if is_private(name))
        elif isinstance(node, ast.Import):
            parts = [part for alias in node.names for part in alias.name.split(".")]
            yield from ((node, name, False) for name in parts if is_private(name))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) > 1:
            if node.func.id in ("getattr", "setattr", "hasattr", "delattr") and isinstance(node.args[1], ast.Constant):
                if is_private(str(node.args[1].value)):
                    yield node, node.args[1].value, is_own(node.args[0])


def test_private_names_of_others_are_used_in_compat_alone():
    own = {name for tree in SOURCES.values() for name in defined_privately(tree)}
    for path, tree in SOURCES.items():
        for node, name, is_of_class in used_privately(tree):
            place = f"{path.relative_to(PACKAGE.parent)}:{node.lineno} uses `{name}`"
            if path in COMPAT:
                assert name in LISTED, f"{place}, which is missing in PRIVATE_NAMES of hf_mars/compat.py."
            else:
                assert is_of_class, f"{place} of another object: use what is public, or put it into a compat.py."
                assert name in own | LISTED, f"{place} of a parent, which is missing in PRIVATE_NAMES."


def test_what_hides_a_private_name_of_a_parent_is_listed():
    """A method that happens to have the name of a parent's own would break it."""
    for path, tree in SOURCES.items():
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        for node in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.bases):
            own = {name for name in defined_privately(node) if is_private(name)} - LISTED
            if own:
                parents = getattr(importlib.import_module(module), node.name).__mro__[1:]
                others = [parent for parent in parents if not parent.__module__.startswith("hf_mars")]
                hidden = {name for name in own if any(hasattr(parent, name) for parent in others)}
                assert not hidden, f"{node.name} has {hidden}, as a parent has: rename, or list in PRIVATE_NAMES."


def test_no_name_is_listed_that_nothing_uses():
    texts = [path.read_text(encoding="utf-8") for path in SOURCES if path != COMPAT[0]]
    here = ast.unparse([node for node in SOURCES[COMPAT[0]].body if isinstance(node, ast.FunctionDef)])
    unused = [entry.name for entry in PRIVATE_NAMES if not any(entry.name in text for text in [*texts, here])]
    assert not unused, f"PRIVATE_NAMES lists {unused}, which nothing uses."
