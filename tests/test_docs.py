"""What the site says of the code, where nothing else would notice that it no longer holds."""

import ast
import re
from pathlib import Path


ROOT = Path(__file__).parents[1]


def written(node: ast.AST) -> str:
    """A text as the code writes it, with … for what is filled in."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
    return written(node.left) + written(node.right) if isinstance(node, ast.BinOp) else "…"


def raised_messages() -> list[str]:
    trees = [ast.parse(path.read_text()) for path in (ROOT / "hf_mars").rglob("*.py")]
    errors = [node.exc for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Raise)]
    return [written(error.args[0]) for error in errors if isinstance(error, ast.Call) and error.args]


def test_the_page_of_errors_has_messages_that_are_raised():
    rows = re.findall(r"^\| (.+?) \| .+ \|$", (ROOT / "docs" / "errors.md").read_text(), re.MULTILINE)
    listed = [row for row in rows if row not in ("message", "---")]
    messages = raised_messages()
    assert len(listed) > 30
    assert [row for row in listed if not any(message.startswith(row) for message in messages)] == []


def test_the_reference_names_modules_that_are_there():
    pages = "".join(path.read_text() for path in (ROOT / "docs").rglob("*.md"))
    names = re.findall(r"automodule:: (\S+)", pages)
    paths = [ROOT / name.replace(".", "/") for name in names]
    assert len(names) > 50
    assert [str(path) for path in paths if not (path.with_suffix(".py").exists() or path.is_dir())] == []


def test_one_version_everywhere():
    assignment = r'__version__ = "(.+)"'
    places = {
        "hf_mars/__init__.py": assignment,
        "engines/vllm/hf_mars_vllm/__init__.py": assignment,
        "CITATION.cff": r"^version: (.+)$",
        "CHANGELOG.md": r"^## (\S+) - ",
    }
    versions = {re.search(form, (ROOT / name).read_text(), re.MULTILINE)[1] for name, form in places.items()}
    assert len(versions) == 1, versions
