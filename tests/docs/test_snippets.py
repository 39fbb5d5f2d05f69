"""Every piece of Python on a page is of a file that the tests run, an example or a server, as a whole or in part."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.shared import ROOT

PAGES = sorted(ROOT.joinpath("docs").glob("*.md"))
FILES = {
    path.relative_to(ROOT).as_posix(): path
    for folder in ("examples", "servers")
    for path in sorted(ROOT.joinpath(folder).rglob("*"))
    if path.is_file() and path.suffix != ".pyc"
}
#: A snippet and, where its page says so right before it, the file that it is from.
_SNIPPET = re.compile(
    r"(?:[Ff]rom `(?P<file>[\w./]+)`[^`\n]*:\n\n)?^```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)
_NAMED = re.compile(r"`((?:servers|examples)/[\w./]+)`")


def bare(code: str) -> list[str]:
    """The lines without what a formatter changes where a snippet stands by itself: its indentation and empty lines."""
    return [line.strip() for line in code.splitlines() if line.strip()]


SOURCES = {name: bare(path.read_text(encoding="utf-8")) for name, path in FILES.items()}
SNIPPETS = [
    pytest.param(found["file"], found["code"], id=f"{path.stem}-{number}")
    for path in PAGES
    for number, found in enumerate(_SNIPPET.finditer(path.read_text(encoding="utf-8")))
]


def is_part(shown: list[str], source: list[str]) -> bool:
    return any(source[start : start + len(shown)] == shown for start in range(len(source)))


@pytest.mark.parametrize("file,code", SNIPPETS)
def test_what_is_shown_is_in_a_file(file: str | None, code: str) -> None:
    sources = SOURCES.values() if file is None else [SOURCES[file]]
    assert any(is_part(bare(code), source) for source in sources)


def test_there_are_some_of_servers_and_of_examples() -> None:
    assert len(SNIPPETS) > 40
    assert len([each for each in SNIPPETS if str(each.values[0]).startswith("servers/")]) > 6


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_the_files_that_a_page_names_are_there(path: Path) -> None:
    for name in _NAMED.findall(path.read_text(encoding="utf-8")):
        assert (ROOT / name).exists(), name
