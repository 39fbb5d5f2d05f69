"""How Sphinx builds these pages: `sphinx-build -W docs docs/_build`, with the `docs` extra installed."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_ROOT = Path(__file__).parents[1]
_PROJECT = tomllib.loads(_ROOT.joinpath("pyproject.toml").read_text())["project"]
sys.path.append(str(_ROOT / "docs" / "tools"))
# Behind what is installed.
sys.path.append(str(_ROOT))

project = _PROJECT["name"]
release = _PROJECT["version"]
author = _PROJECT["authors"][0]["name"]
copyright = f"2026, {author}"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "interface_pages"]
exclude_patterns = ["_build"]
html_theme = "alabaster"
html_theme_options = {"page_width": "1200px", "body_max_width": "960px"}
html_static_path = ["static"]
html_css_files = ["pages.css"]

# A word in single backquotes is code, in docstrings as on the pages.
default_role = "code"
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
# Signatures show names of types and the defaults as they are written.
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
add_module_names = False
# One parameter a line where there are many.
python_maximum_signature_line_length = 100
napoleon_google_docstring = True
napoleon_numpy_docstring = False
# `Args` of a class are those of its constructor, and `Attributes` need no entries of their own.
napoleon_use_ivar = True


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    # Before napoleon, which is at 500 and would take what stands before a colon for the type of a property.
    app.connect("autodoc-process-docstring", _keep_whole, priority=400)


def _keep_whole(_app: Sphinx, what: str, _name: str, _value: object, _options: object, lines: list[str]) -> None:
    if what in ("attribute", "data", "property"):
        # An empty comment.
        lines[:0] = ["..", ""]
