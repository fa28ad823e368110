"""The site, built by `make docs`: pages in Markdown (MyST), the reference from docstrings, a warning is an error."""

import os
import sys
from pathlib import Path


HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE / "extensions")]
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import hf_mars  # noqa: E402  after the path that leads to it


project = "hf_mars"
author = copyright = "The hf_mars authors"
version = release = hf_mars.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "docstrings", "repository", "commands"]
nitpicky = True

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_title = f"hf_mars {release}"

myst_enable_extensions = ["html_image"]
myst_heading_anchors = 3

autodoc_default_options = {"exclude-members": "model_config"}  # pydantic's own
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings say types, shapes and defaults
napoleon_numpy_docstring = False
