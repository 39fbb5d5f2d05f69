"""A short run of each target: its seeds, its corpus, and some mutations, the same each time."""

from __future__ import annotations

import pytest

from tests.fuzz import targets
from tests.fuzz.fuzzer import run
from tests.fuzz.targets import TARGETS

RUNS = 1_500


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_target(target):
    outcome = run(target, seed=1, runs=RUNS)
    assert [(data, repr(error)) for data, error in outcome.failures] == []
    assert outcome.runs >= RUNS


def test_a_failure_is_found(monkeypatch):
    def broken(data: bytes) -> str:
        if b"\x88" in data:
            raise KeyError("a bug")
        return str(len(data) % 7)

    monkeypatch.setitem(targets.TARGETS, "server_bytes", broken)
    outcome = run("server_bytes", seed=1, runs=300)
    assert outcome.failures
    assert isinstance(outcome.failures[0][1], KeyError)
