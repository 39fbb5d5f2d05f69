"""The tables of the page of performance are those of the data beside it."""

from __future__ import annotations

import json
import re
import subprocess
import sys

from tests.docs.pages import page
from tests.shared import ROOT

SCRIPT = ROOT / "docs" / "tools" / "performance_tables.py"
DATA = ROOT / "docs" / "data"


def test_the_tables_are_up_to_date() -> None:
    command = [sys.executable, str(SCRIPT), "--check"]
    child = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (child.returncode, child.stderr) == (0, "")


def test_every_floor_was_measured_in_nine_rounds_or_more() -> None:
    rounds: dict[tuple[str, str, str], set[int]] = {}
    for line in DATA.joinpath("benchmarks.jsonl").read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        rounds.setdefault((entry["workload"], entry["peer"], entry["variant"]), set()).add(entry["round"])
    for workload in ("W1", "W2", "W3", "W4", "W5", "W6", "W7"):
        for peer in ("ours", "reference"):
            for codec in ("json", "msgpack"):
                assert len(rounds[workload, peer, codec]) >= 9


def test_the_readme_says_what_the_page_says() -> None:
    """Each ratio that the README names is on the page, and rounded as there."""
    readme = ROOT.joinpath("README.md").read_text(encoding="utf-8")
    said = re.findall(r"\| (W\d) .*?\| ([\d.]+) × / ([\d.]+) × \|", readme)
    assert [workload for workload, *_ in said] == ["W1", "W2", "W3", "W4", "W5", "W6", "W7"]
    for workload, *ratios in said:
        for codec, ratio in zip(("json", "msgpack"), ratios, strict=True):
            (row,) = (line for line in page("performance").splitlines() if line.startswith(f"| {workload} {codec} |"))
            assert f"**{float(ratio):.2f}**" in row or f"**{ratio}" in row
