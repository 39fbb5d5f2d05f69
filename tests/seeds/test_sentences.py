"""The list of sentences is complete and quotes what the documents say; the page made of it is up to date."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.shared import ROOT

SCRIPT = ROOT / "docs" / "tools" / "seeds_page.py"


@pytest.fixture(scope="module")
def page() -> ModuleType:
    spec = importlib.util.spec_from_file_location("seeds_page", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def prose(document: str, page: ModuleType) -> Iterator[str]:
    """The sentences of a document, without its code and its pictures."""
    for line in document.splitlines():
        line = line.strip()
        code = re.match(
            r"(async|await|from|import|def|print\(|class|return|try:|while|if|for|except|finally|//|#|@)", line
        )
        if code or not ("\t" in line or line[-1:] in tuple(".:?") or line.startswith("•")):
            continue
        for sentence in page.split_sentences(line):
            if len(sentence.split()) >= 3:
                yield sentence


def every_entry(page: ModuleType) -> dict[str, list[str]]:
    return {
        document: [words for kind in kinds.values() for words in kind]
        for document, kinds in page.load_sentences().items()
    }


def test_the_entries_quote_the_documents(page) -> None:
    texts = page.documents_at_hand()
    assert texts.keys() == {"A", "B", "decided"}
    for document, entries in every_entry(page).items():
        text = page.normalized(texts[document])
        assert [words for words in entries if words not in text] == []


@pytest.mark.parametrize("document", ["A", "B"])
def test_no_sentence_is_left_out(page, document) -> None:
    entries = every_entry(page)[document]
    sentences = list(prose(page.documents_at_hand()[document], page))
    assert len(sentences) > 90
    left_out = [each for each in sentences if not any(words in each or each in words for words in entries)]
    assert left_out == []


@pytest.mark.slow
def test_the_page_is_up_to_date_and_every_promise_has_a_test() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--check"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


# The script itself

LISTED = {"A": {"promises": {"one thing": "1", "another": "2"}, "to_come": {"later": "3"}, "background": {"why": "-"}}}


def test_marks_find_their_entries(page) -> None:
    document = {"A": "There is one thing here, and more. This is another."}
    marks = {
        "A: one thing": ["exact"],
        "A: is another.": ["longer"],
        "A: and more": ["same sentence"],
        "A": ["the document as a whole"],
    }
    assert page.assign(LISTED, marks, document)["A"] == {
        "one thing": ["exact", "same sentence"],
        "another": ["longer"],
        "later": [],
        "why": [],
    }


@pytest.mark.parametrize("mark", ["A: a third", "B: one thing", "one thing", "A: more."])
def test_a_mark_that_names_nothing_is_an_error(page, mark) -> None:
    with pytest.raises(ValueError, match="name no sentence"):
        page.assign(LISTED, {mark: ["test"]}, {"A": "There is one thing here."})


def test_what_is_wrong_with_entries(page) -> None:
    tests = page.assign(LISTED, {"A: one thing": ["test"], "A: later": ["test"]})
    assert page.shortcomings(LISTED, tests) == [
        "A: 'another' has no test",
        "A: 'later' has tests; it is to be moved to the promises",
    ]


def test_tests_that_did_not_run(page, tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(
        """<testsuites><testsuite>
        <testcase classname="tests.seeds.test_x" name="test_passed"/>
        <testcase classname="tests.seeds.test_x" name="test_varied[1]"/>
        <testcase classname="tests.seeds.test_x" name="test_varied[2]"><failure/></testcase>
        <testcase classname="tests.seeds.test_x" name="test_skipped"><skipped/></testcase>
        </testsuite></testsuites>"""
    )
    named = [f"tests/seeds/test_x.py::test_{each}" for each in ("passed", "varied", "skipped", "absent")]
    tests = {"A": {"one thing": named}}
    assert page.did_not_run(tests, report) == sorted(named[1:])


def test_cells_are_safe_in_a_table(page) -> None:
    sentences = {"A": {"promises": {"a | b <codec> *": "x"}}, "B": {"promises": {}}, "decided": {"promises": {}}}
    text = page.render(sentences, {"A": {"a | b <codec> *": ["t.py::t"]}, "B": {}, "decided": {}})
    assert r"| a \| b \<codec\> \* | x | `t.py::t` |" in text
