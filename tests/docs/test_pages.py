"""The pages hang together: each is in the table of contents, links lead somewhere, and tables have their columns."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import page
from tests.shared import ROOT

DOCS = ROOT / "docs"
TEXTS = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
_LINK = re.compile(r"\]\((?!https?://|#)([^)#\s]+)(#[\w-]+)?\)")
_CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.MULTILINE | re.DOTALL)


def without_code(path: Path) -> str:
    return _CODE.sub("", path.read_text(encoding="utf-8"))


def test_every_page_is_in_the_table_of_contents_once() -> None:
    contents = re.findall(r"```\{toctree\}\n(?::\w+:[^\n]*\n)+\n(.*?)```", page("index"), re.DOTALL)
    names = " ".join(contents).split()
    assert sorted(names) == sorted({path.stem for path in DOCS.glob("*.md")} - {"index"} | {"reference/index"})


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_links_lead_somewhere(path: Path) -> None:
    for target, _ in _LINK.findall(without_code(path)):
        assert (path.parent / target).exists(), target


def test_the_pages_that_the_readme_names_are_there() -> None:
    assert len(_LINK.findall(without_code(ROOT / "README.md"))) > 20


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_tables_have_their_columns(path: Path) -> None:
    columns = 0
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            columns = 0
            continue
        cells = len(re.findall(r"(?<!\\)\|", re.sub(r"`[^`]*`", "", line)))
        columns = columns or cells
        assert cells == columns, line


def test_the_changelog_is_included() -> None:
    assert "../CHANGELOG.md" in page("changelog")
