"""What the pages under `docs/` show, taken apart."""

from __future__ import annotations

import re
from typing import NamedTuple

from tests.shared import ROOT

#: A file, its code and, where it has one, its output.
_EXAMPLE = re.compile(
    r"^`(?P<path>examples/docs/\w+\.py)`:\n\n```python\n(?P<code>.*?)^```\n"
    r"(?:\nIt prints:\n\n```text\n(?P<output>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
_CONNECTION = re.compile(r"\b[0-9a-f]{3}-\d+\b")


class Example(NamedTuple):
    """One example as a page shows it; `output` is None where it shows none."""

    page: str
    path: str
    code: str
    output: str | None


def page(name: str) -> str:
    """The text of `docs/<name>.md`."""
    return ROOT.joinpath("docs", f"{name}.md").read_text(encoding="utf-8")


def examples() -> list[Example]:
    """Every example on every page."""
    return [
        Example(path.stem, found["path"], found["code"], found["output"])
        for path in sorted(ROOT.joinpath("docs").glob("*.md"))
        for found in _EXAMPLE.finditer(page(path.stem))
    ]


def rows(text: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its head.

    Raises:
        ValueError: There is no such heading.
    """
    lines = iter(text[text.index(f"\n{heading}\n") :].splitlines())
    table = []
    for line in lines:
        if line.startswith("|"):
            table.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
        elif table:
            break
    return table[2:]


def same_ids(output: str) -> str:
    """The output with the ids of connections, which no two runs share, numbered in the order of their appearance."""
    names: dict[str, str] = {}
    return _CONNECTION.sub(lambda found: names.setdefault(found[0], f"id-{len(names)}"), output)
