"""The page of limits names every bound of the code, with the value that it has."""

from __future__ import annotations

import ast
import importlib
import re
from dataclasses import fields
from pathlib import Path

import pytest

from muxws_green.runtime.options import Options

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "muxws_green"
BOUND = re.compile(r"_?(?:[A-Z]+_)*(?:MAX_[A-Z_]+|[A-Z_]*_BYTES|[A-Z_]*_SECONDS)$")
#: Numbers of the tools for tests are described where they are; nobody serves strangers with them.
TOOLS = "testing"


def constants(source: str) -> list[str]:
    """The names of bounds that a module assigns."""
    found = []
    for node in ast.parse(source).body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        found += [target.id for target in targets if isinstance(target, ast.Name) and BOUND.match(target.id)]
    return found


def all_constants() -> list[str]:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        if not module.startswith(TOOLS):
            found += [f"{module}.{name}" for name in constants(path.read_text())]
    return found


def rows() -> dict[str, str]:
    """The second column of the page's tables by what the first one names."""
    page = (ROOT / "docs" / "limits.md").read_text()
    return dict(re.findall(r"^\| `([\w.]+)`[^|]*\| ([^|]*) \|", page, re.MULTILINE))


def shown(value: float) -> str:
    return f"{value:,}"


def test_a_bound_is_known_by_its_name():
    source = "MAX_A = 1\nB_BYTES: Final = 2\n_C_SECONDS = 0.5\nD = 4\nE_FACTOR = 3\n"
    assert constants(source) == ["MAX_A", "B_BYTES", "_C_SECONDS"]
    assert len(all_constants()) > 30


@pytest.mark.parametrize("name", all_constants())
def test_every_bound_is_on_the_page_with_its_value(name):
    module, _, constant = name.rpartition(".")
    value = getattr(importlib.import_module(f"muxws_green.{module}"), constant)
    said = rows().get(name)
    assert said is not None, f"docs/limits.md does not mention `{name}`: say what it stops and what happens past it"
    assert said == shown(value) or name == "transports.urls._MAX_SOCKET_PATH_BYTES"


def test_the_page_names_nothing_that_is_not_there():
    for name in rows():
        module, dot, constant = name.rpartition(".")
        if dot:
            assert hasattr(importlib.import_module(f"muxws_green.{module}"), constant), name


def test_the_options_have_the_defaults_of_the_page():
    said = rows()
    numbers = {
        field.name: field.default
        for field in fields(Options)
        if isinstance(field.default, (int, float)) and not isinstance(field.default, bool)
    }
    assert len(numbers) == 6
    for name, default in numbers.items():
        assert said[name].startswith(shown(default)), name
