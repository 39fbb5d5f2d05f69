"""What `docs/serving.md` shows of the servers is what is in them, and its other snippets compile."""

from __future__ import annotations

import ast
import re
from textwrap import dedent

import pytest

from tests.shared import ROOT

PAGE = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")

#: A snippet and the file that is named last before it; after a snippet of another kind there is none.
_PIECES = re.compile(r"[Ff]rom `(?P<file>servers/\w+\.py)`:|^```python\n(?P<code>.*?)^```", re.MULTILINE | re.DOTALL)


def snippets() -> list[tuple[str | None, str]]:
    found: list[tuple[str | None, str]] = []
    file = None
    for piece in _PIECES.finditer(PAGE):
        if piece["file"]:
            file = piece["file"]
        else:
            found.append((file, piece["code"]))
            # A second one may follow at once.
            if not PAGE[piece.end() :].startswith("\n\n```python"):
                file = None
    return found


def bare(code: str) -> list[str]:
    """The lines without what a formatter changes where a snippet stands by itself: its indentation and empty lines."""
    return [line.strip() for line in code.splitlines() if line.strip()]


SNIPPETS = snippets()


def test_there_are_both_kinds() -> None:
    assert len([code for file, code in SNIPPETS if file]) >= 6
    assert len([code for file, code in SNIPPETS if not file]) >= 4


@pytest.mark.parametrize("file,code", [(file, code) for file, code in SNIPPETS if file])
def test_what_is_shown_of_a_server_is_in_it(file: str, code: str) -> None:
    shown, source = bare(code), bare((ROOT / file).read_text(encoding="utf-8"))
    assert any(source[start : start + len(shown)] == shown for start in range(len(source)))


@pytest.mark.parametrize("code", [code for file, code in SNIPPETS if not file])
def test_other_snippets_are_python(code: str) -> None:
    ast.parse(dedent(code))


@pytest.mark.parametrize("name", sorted(set(re.findall(r"servers/(\w+\.py)", PAGE))))
def test_the_servers_that_it_names_are_there(name: str) -> None:
    assert (ROOT / "servers" / name).is_file()
