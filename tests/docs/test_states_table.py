"""The table of states in docs/streams.md is the one of the code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from muxws_green.protocol.states import TABLE, Event, StreamState
from tests.docs.pages import page, rows
from tests.shared import ROOT

SCRIPT = ROOT / "docs" / "tools" / "states_table.py"


def test_every_cell_is_that_of_the_code() -> None:
    table = {row[0]: row[1:] for row in rows(page("streams"), "## The states of a stream")}
    assert list(table) == [event.value for event in Event]
    for event in Event:
        for state, cell in zip(StreamState, table[event.value], strict=True):
            outcome = TABLE[state][event]
            if outcome is state:
                assert cell == "stays"
            elif isinstance(outcome, StreamState):
                assert cell == f"→ `{outcome.value}`"
            else:
                assert cell == {"ignore": "ignored", "raise": "raises", "impossible": "–"}.get(
                    outcome.value, outcome.value
                )


def run(script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.slow
def test_the_page_is_up_to_date() -> None:
    checked = run(SCRIPT, "--check")
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.slow
def test_a_stale_page_is_told(tmp_path: Path) -> None:
    copy = tmp_path / "docs" / "tools" / SCRIPT.name
    copy.parent.mkdir(parents=True)
    copy.write_text(SCRIPT.read_text())
    (tmp_path / "muxws_green").symlink_to(ROOT / "muxws_green")
    stale = tmp_path / "docs" / "streams.md"
    stale.write_text(page("streams").replace("→ `closed`", "stays", 1))
    checked = run(copy, "--check")
    assert checked.returncode == 1
    assert "stale" in checked.stderr
    assert run(copy).returncode == 0
    assert stale.read_text() == page("streams")
