"""A directive `command-help`: what `hf-mars COMMAND --help` prints, made as the site is built."""

import contextlib
import io
import os
from typing import Any
from unittest.mock import patch

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from hf_mars.cli import main


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("command-help", CommandHelp)
    return {"parallel_read_safe": True}


class CommandHelp(SphinxDirective):
    has_content = False
    required_arguments = 0
    optional_arguments = 2

    def run(self) -> list[nodes.Node]:
        text = io.StringIO()
        # argparse folds lines to the width of the terminal, which must not show on the page.
        with patch.dict(os.environ, COLUMNS="100"), contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
            main([*self.arguments, "--help"])
        return [nodes.literal_block(text.getvalue(), text.getvalue().strip(), language="text")]
