"""
Pages that are files of the repository too, such as README.md: their links lead to the same thing on the site.

A link to a file that is a page leads to the page, one to a module to its reference, one to another file to a copy of
it. Folders have no place on the site: of a link to one, the text remains. What does not exist warns.
"""

import os
import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx


DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "benchmarks/README.md": "benchmarks.md",
    "engines/vllm/README.md": "vllm.md",
    "hf_mars/serving/README.md": "serving.md",
}
FENCED = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(!?)\[([^\[\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
SOURCE = re.compile(r'src="([^"]+)"')


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("include-read", lambda app, path, docname, content: rewrite(content, (DOCS / path).resolve(), DOCS))
    app.connect("source-read", lambda app, docname, content: rewrite_page(app, docname, content))
    return {"parallel_read_safe": True}


def rewrite_page(app: Sphinx, docname: str, content: list[str]) -> None:
    path = Path(app.env.doc2path(docname))
    rewrite(content, path, path.parent)


def rewrite(content: list[str], path: Path, folder: Path) -> None:
    """
    Rewrite the links of a page, in place.

    Args:
        content (`list[str]`): One text.
        path (`Path`): The file that it was read from, to which its links are relative.
        folder (`Path`): The folder of the page that shows it.
    """

    def link(match: re.Match) -> str:
        is_image, text, target, anchor = match[1], match[2], match[3], match[4] or ""
        file = (path.parent / target).resolve()
        if ":" in target or not file.is_relative_to(ROOT):
            return match[0]
        name = file.relative_to(ROOT).as_posix()
        if file.is_dir():
            return text
        if name.startswith("hf_mars/") and name.endswith(".py"):
            module = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            return f"{{py:mod}}`{text.strip('`')} <{module}>`"
        page = DOCS / PAGES[name] if name in PAGES else file
        return f"{is_image}[{text}]({os.path.relpath(page, folder)}{anchor})"

    def source(match: re.Match) -> str:
        return f'src="{os.path.relpath((path.parent / match[1]).resolve(), folder)}"'

    parts = FENCED.split(content[0])
    parts[::2] = [SOURCE.sub(source, LINK.sub(link, prose)) for prose in parts[::2]]
    content[0] = "".join(parts)
