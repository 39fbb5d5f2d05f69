"""Writes docs/seeds.md: each sentence of the requirement documents, and the tests that show that it holds.

The sentences are in `tests/seeds/sentences.toml`; the tests name them by `pytest.mark.seed("A: some of its words")`.

    python docs/tools/seeds_page.py                   writes the page
    python docs/tools/seeds_page.py --check           fails where it would be another, or a promise has no test
    python docs/tools/seeds_page.py --ran report.xml  fails where a test on it did not run and pass in that pytest run,
                                                      or those, where there are several reports
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
# Behind what is installed: the package, where it is not, and the tests.
sys.path.append(str(ROOT))
PAGE = ROOT / "docs" / "seeds.md"
SENTENCES = ROOT / "tests" / "seeds" / "sentences.toml"

TITLES = {
    "A": "Document A: reconnecting, the hello, the idle heartbeat",
    "B": "Document B: the counted heartbeat, the reconnecting client",
    "decided": "Where both cannot hold at once",
}

HEAD = """\
# Promises and their tests

Two documents say what a connection that stays has to do. Each of their sentences stands here with a few of its own
words, with what it comes to in this library, and with the tests that show it. Sentences that give reasons or advice are
left out. The page is made by `docs/tools/seeds_page.py` from `tests/seeds/sentences.toml` and the marks on the tests.
"""

#: document -> kind (promises, to_come, background) -> words of the document -> ours
Sentences = Mapping[str, Mapping[str, Mapping[str, str]]]

#: "A: some words" -> the tests that are marked with it
Marks = Mapping[str, Iterable[str]]


def load_sentences() -> Sentences:
    """What `sentences.toml` says."""
    return tomllib.loads(SENTENCES.read_text(encoding="utf-8"))


class _Collector:
    """Notes the marks of every test that pytest finds."""

    def __init__(self) -> None:
        self.marks: dict[str, dict[str, None]] = defaultdict(dict)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            for mark in item.iter_markers("seed"):
                self.marks[mark.args[0]][item.nodeid.partition("[")[0]] = None


def collect_marks() -> Marks:
    """The marks on the tests, as pytest finds them.

    Raises:
        RuntimeError: A test file cannot be imported.
    """
    files = [path for path in sorted(ROOT.joinpath("tests").rglob("test_*.py")) if "seed(" in path.read_text()]
    collector = _Collector()
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        code = pytest.main(
            [
                "--collect-only",
                "-q",
                "-p",
                "no:cacheprovider",
                "--rootdir",
                str(ROOT),
                "-c",
                str(ROOT / "pyproject.toml"),
            ]
            + [str(path) for path in files],
            plugins=[collector],
        )
    if code != pytest.ExitCode.OK:
        raise RuntimeError(f"pytest could not collect the tests:\n{output.getvalue()}")
    return collector.marks


def normalized(text: str) -> str:
    """The same words with one space between them."""
    return " ".join(text.split())


def split_sentences(document: str) -> list[str]:
    """The sentences of a document, normalized; a line ends one too."""
    return [
        normalized(sentence)
        for line in document.splitlines()
        for sentence in re.split(r"(?<=[.!?:])\s+(?=[A-Z`•\"“(])", line.strip())
        if sentence.strip()
    ]


def assign(
    sentences: Sentences, marks: Marks, documents: Mapping[str, str] | None = None
) -> dict[str, dict[str, list[str]]]:
    """document -> words of the entry -> its tests, in a stable order.

    A mark belongs to the entry of the same words; else to those whose words it contains or that contain it; else, where
    the documents are at hand, to those of the same sentence.

    Raises:
        ValueError: A mark names no entry.
    """
    found: dict[str, dict[str, set[str]]] = {
        document: {words: set() for kind in kinds.values() for words in kind} for document, kinds in sentences.items()
    }
    strangers = []
    for mark, tests in marks.items():
        document, separator, words = mark.partition(": ")
        if not separator and document in found:
            # The whole document is meant.
            continue
        entries = _entries_for(normalized(words), found.get(document, {}), (documents or {}).get(document, ""))
        if not entries:
            strangers.append(mark)
        for entry in entries:
            found[document][entry].update(tests)
    if strangers:
        raise ValueError(f"these marks name no sentence of {SENTENCES.name}: {strangers}")
    return {document: {words: sorted(tests) for words, tests in entries.items()} for document, entries in found.items()}


def _entries_for(words: str, entries: Iterable[str], document: str) -> list[str]:
    if words in entries:
        return [words]
    related = [entry for entry in entries if entry in words or words in entry]
    if related:
        return related
    same = [sentence for sentence in split_sentences(document) if words in sentence]
    return [entry for entry in entries if any(entry in sentence for sentence in same)]


def shortcomings(sentences: Sentences, tests: Mapping[str, Mapping[str, list[str]]]) -> list[str]:
    """What is wrong with the entries: promises that no test shows, and tests for what is said to be still to come."""
    return [
        *(
            f"{document}: {words!r} has no test"
            for document, kinds in sentences.items()
            for words in kinds["promises"]
            if not tests[document][words]
        ),
        *(
            f"{document}: {words!r} has tests; it is to be moved to the promises"
            for document, kinds in sentences.items()
            for words in kinds.get("to_come", {})
            if tests[document][words]
        ),
    ]


def render(sentences: Sentences, tests: Mapping[str, Mapping[str, list[str]]]) -> str:
    """The page."""
    parts = [HEAD]
    for document, title in TITLES.items():
        parts.append(f"\n## {title}\n\n| the document's words | here | tests |\n|---|---|---|\n")
        kinds = sentences[document]
        for words, ours in {**kinds["promises"], **kinds.get("to_come", {})}.items():
            shown = "<br>".join(f"`{test}`" for test in tests[document][words]) or "*to come*"
            parts.append(f"| {_cell(words)} | {_cell(ours)} | {shown} |\n")
    return "".join(parts)


def _cell(text: str) -> str:
    return re.sub(r"([|<>*\\])", r"\\\1", text)


def did_not_run(tests: Mapping[str, Mapping[str, list[str]]], *reports: Path) -> list[str]:
    """The tests on the page that JUnit reports do not show as passed, in none of their variants."""
    passed: set[str] = set()
    failed: set[str] = set()
    for case in (case for report in reports for case in ElementTree.parse(report).getroot().iter("testcase")):
        path = case.get("classname", "").replace(".", "/")
        test = f"{path}.py::{case.get('name', '').partition('[')[0]}"
        (
            failed if list(case.iter("failure")) or list(case.iter("error")) or list(case.iter("skipped")) else passed
        ).add(test)
    named = {test for entries in tests.values() for shown in entries.values() for test in shown}
    return sorted(named - passed | named & failed)


def documents_at_hand() -> dict[str, str]:
    """The texts of the documents, where they lie beside the repository (see `tests/shared.py`)."""
    from tests.shared import shared_dir

    texts = {}
    for document, parts in {
        "A": ("seeds", "000_d7d79c0110cfe08b.txt"),
        "B": ("seeds", "003_940c83de6acc5a60.txt"),
        "decided": ("DESIGN.md",),
    }.items():
        with contextlib.suppress(FileNotFoundError):
            texts[document] = shared_dir(*parts).read_text(encoding="utf-8")
    return texts


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--ran", type=Path, nargs="+", metavar="REPORT")
    options = parser.parse_args(arguments)
    sentences = load_sentences()
    tests = assign(sentences, collect_marks(), documents_at_hand())
    if options.ran is not None:
        missing = did_not_run(tests, *options.ran)
        if missing:
            print("on the page, and not passed in this run:", *missing, sep="\n  ", file=sys.stderr)
        return 1 if missing else 0
    page = render(sentences, tests)
    if options.check:
        wrong = shortcomings(sentences, tests)
        if wrong:
            print(*wrong, sep="\n", file=sys.stderr)
            return 1
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page:
            print(f"{PAGE.relative_to(ROOT)} is stale; run python docs/tools/seeds_page.py", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
