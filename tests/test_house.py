"""Rules of the house that no linter knows."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.layers import package_dir

SOURCE = package_dir()

_BROAD = re.compile(r"^\s*except(\s+\(?.*\b(Base)?Exception\b.*)?:")


def unexplained(source: str) -> Iterator[int]:
    """The lines of broad `except` clauses that neither say why, nor raise again, nor log the traceback.

    The reason stands on the line itself or right below it.
    """
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ExceptHandler) and _BROAD.match(lines[node.lineno - 1]):
            says_why = "#" in lines[node.lineno - 1] or lines[node.lineno].lstrip().startswith("#")
            if not says_why and not any(map(_tells, ast.walk(node))):
                yield node.lineno


def _tells(node: ast.AST) -> bool:
    if isinstance(node, ast.Raise):
        return node.exc is None
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "exception"


@pytest.mark.parametrize(
    "path", [pytest.param(path, id=path.relative_to(SOURCE).as_posix()) for path in sorted(SOURCE.rglob("*.py"))]
)
def test_a_broad_except_says_why(path: Path) -> None:
    assert list(unexplained(path.read_text())) == []


@pytest.mark.parametrize(
    "clause,found",
    [
        ("except:", True),
        ("except Exception:", True),
        ("except BaseException as error:", True),
        ("except (ValueError, Exception):", True),
        ("except Exception:  # whatever the application raises is its stream's affair", False),
        ("except ValueError:", False),
        ("except MyException:", False),
    ],
)
def test_what_counts_as_broad(clause: str, found: bool) -> None:
    assert list(unexplained(f"try:\n    f()\n{clause}\n    g()\n")) == ([3] if found else [])


@pytest.mark.parametrize("body", ["g(); raise", "if g():\n        raise", "logger.exception('f')", "# so\n    g()"])
def test_one_that_tells_needs_no_reason(body: str) -> None:
    assert list(unexplained(f"try:\n    f()\nexcept BaseException as error:\n    {body}\n")) == []


def test_raising_something_else_tells_nothing() -> None:
    assert list(unexplained("try:\n    f()\nexcept Exception:\n    raise ValueError() from None\n")) == [3]
