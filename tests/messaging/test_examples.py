"""Programs under `examples/` print what they say, and those that come from document B what B shows, times aside."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import gevent
import pytest

from tests.layers import package_dir
from tests.shared import ROOT, shared_dir

pytestmark = [pytest.mark.slow, pytest.mark.watchdog(90)]

#: Each program, and the texts between which and the next empty line its output stands in document B.
PROGRAMS = {
    "heartbeat_death": ("\nTry It\n", "\nOutput:\n\n"),
    "heartbeat_demo": ("\nFor a demo that shows the pongs", "examples/heartbeat_demo.py\n\n"),
    "redialling": ("\nTry It: Redialling\n", "\nOutput:\n\n"),
}


def without_times(text: str) -> str:
    return re.sub(r"\d+\.\d+s", "<time>", text)


@pytest.mark.seed("B: closed after 0.3s, heartbeat death: True")
@pytest.mark.seed("B: For a demo that shows the pongs and then a server that freezes")
@pytest.mark.seed("B: The server turns up late, then restarts on the same port")
@pytest.mark.seed("B: The last disconnected comes from stop()")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_of_document_b_says_what_b_shows(name: str) -> None:
    document = shared_dir("seeds", "003_940c83de6acc5a60.txt").read_text()
    section, label = PROGRAMS[name]
    assert document.count(section) == 1
    shown = document.partition(section)[2].partition(label)[2].partition("\n\n")[0] + "\n"
    assert announced(name) == shown


@pytest.mark.seed("B: closed after 0.3s, heartbeat death: True")
@pytest.mark.seed("B: For a demo that shows the pongs and then a server that freezes")
@pytest.mark.seed("B: The server turns up late, then restarts on the same port")
@pytest.mark.seed("B: The last disconnected comes from stop()")
@pytest.mark.parametrize("name", [*PROGRAMS, "named_calls"])
def test_a_program_prints_what_it_says(name: str) -> None:
    command = [sys.executable, str(ROOT / "examples" / f"{name}.py")]
    environment = {**os.environ, "PYTHONPATH": str(package_dir().parent)}
    run = gevent.get_hub().threadpool.apply(
        subprocess.run, (command,), {"capture_output": True, "text": True, "timeout": 60, "env": environment}
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert without_times(run.stdout) == without_times(announced(name))


def announced(name: str) -> str:
    """What a program says that it prints."""
    said = re.search(r"^Prints:\n\n((?: {4}.*\n)+)", (ROOT / "examples" / f"{name}.py").read_text(), re.MULTILINE)
    assert said is not None
    return re.sub("^    ", "", said[1], flags=re.MULTILINE)
