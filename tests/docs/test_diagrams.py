"""The diagrams are those that the code has now, and show what they say."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from muxws_green import CountingHeartbeat, IdleHeartbeat
from muxws_green.protocol.states import TABLE, StreamState
from tests.docs.pages import page
from tests.shared import ROOT

SCRIPT = ROOT / "docs" / "tools" / "diagrams.py"
FOLDER = ROOT / "docs" / "diagrams"


@pytest.fixture(scope="module")
def diagrams() -> ModuleType:
    spec = importlib.util.spec_from_file_location("diagrams", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_they_are_up_to_date(diagrams: ModuleType) -> None:
    files = {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.svg")}
    assert files == {name: str(draw()) for name, draw in diagrams.DIAGRAMS.items()}


def test_each_is_well_formed_and_on_a_page() -> None:
    shown = "".join(path.read_text(encoding="utf-8") for path in ROOT.joinpath("docs").glob("*.md"))
    for path in FOLDER.glob("*.svg"):
        ElementTree.parse(path)
        assert shown.count(f"](diagrams/{path.name})") == 1, path.name


def test_the_states_show_every_transition(diagrams: ModuleType) -> None:
    drawn = str(diagrams.states())
    for state, events in TABLE.items():
        leaving = [event for event, outcome in events.items() if isinstance(outcome, StreamState) and outcome != state]
        for event in leaving:
            assert event.value in drawn
    assert sum(map(len, diagrams.transitions().values())) == drawn.count("#0969da")


def test_the_heartbeats_are_those_of_the_policies(diagrams: ModuleType) -> None:
    assert diagrams.beats(IdleHeartbeat(20.0, 10.0), [], 0.0, 100.0) == ([20.0], 30.0)
    assert diagrams.beats(IdleHeartbeat(20.0, 10.0), [5.0], 30.0, 100.0) == ([25.0, 45.0], 55.0)
    assert diagrams.beats(CountingHeartbeat(5.0, 3), [], 0.0, 100.0) == ([0.0, 5.0, 10.0, 15.0], 20.0)


def test_a_ping_leaves_in_the_next_batch_and_a_small_call_one_fragment_later(diagrams: ModuleType) -> None:
    _, second, third, *_ = ([stream for stream, _ in batch] for batch in diagrams.batches())
    assert second == [0, 3]
    assert third[0] == 5


@pytest.mark.slow
def test_a_stale_one_is_told(tmp_path: Path) -> None:
    copy = tmp_path / "docs" / "tools" / SCRIPT.name
    copy.parent.mkdir(parents=True)
    shutil.copy(SCRIPT, copy)
    shutil.copytree(FOLDER, tmp_path / "docs" / "diagrams")
    (tmp_path / "muxws_green").symlink_to(ROOT / "muxws_green")
    assert run(copy, "--check").returncode == 0
    stale = tmp_path / "docs" / "diagrams" / "states.svg"
    stale.write_text(stale.read_text().replace("half_closed_local", "elsewhere"))
    checked = run(copy, "--check")
    assert checked.returncode == 1
    assert "states.svg" in checked.stderr
    assert run(copy).returncode == 0
    assert stale.read_text() == (FOLDER / "states.svg").read_text()


def test_the_pages_have_them_where_they_belong() -> None:
    for name, where in {
        "states": "streams",
        "backoff": "staying-connected",
        "heartbeats": "staying-connected",
        "lanes": "backpressure",
        "receiving": "backpressure",
    }.items():
        assert f"](diagrams/{name}.svg)" in page(where)
