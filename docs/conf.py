"""How Sphinx builds these pages: `sphinx-build -W docs docs/_build`, with the `docs` extra installed."""

from __future__ import annotations

import tomllib
from pathlib import Path

_PROJECT = tomllib.loads(Path(__file__).parents[1].joinpath("pyproject.toml").read_text())["project"]

project = _PROJECT["name"]
release = _PROJECT["version"]
author = _PROJECT["authors"][0]["name"]
copyright = f"2026, {author}"

extensions = ["myst_parser"]
exclude_patterns = ["_build"]
html_theme = "alabaster"
