"""`bench`: percentiles that are right to one percent, and an end however it comes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muxws_green.cli.benching import Durations
from muxws_green.testing import RawConnection, RawServer
from tests.cli.programs import Program, cli
from tests.serving import Served, until


@given(st.lists(st.floats(1e-6, 100), min_size=1), st.sampled_from([50, 90, 99, 100]))
def test_percentiles(values: list[float], percent: int) -> None:
    durations = Durations()
    for value in values:
        durations.add(value)
    exact = sorted(values)[max(-(-len(values) * percent // 100) - 1, 0)]
    assert exact * 0.999 <= durations.percentile(percent) <= exact * 1.011
    assert durations.longest == max(values)


def test_without_any() -> None:
    assert Durations().percentile(99) == 0


@pytest.mark.slow
def test_a_measurement() -> None:
    got: list[Any] = []

    def handle(payload: Any, stream: Any) -> None:
        got.append(payload)
        stream.reply(payload)

    options = ["--connections", "2", "--concurrency", "3", "--seconds", "0.3", "--payload", '{"n": 1}']
    with Served(handle) as server:
        ran = cli("bench", server.url, *options)
        assert (ran.code, ran.err) == (0, "")
        assert "requests/s" in ran.lines[0]
        assert ran.lines[1].startswith("p50 ")
        assert len(server.peers) == 2
        (summary,) = cli("bench", server.url, *options, "--json").events
    assert {"event", "requests", "failed", "failures", "seconds", "per_second"} | {
        "p50_ms", "p90_ms", "p99_ms", "max_ms",
    } == summary.keys()  # fmt: skip
    assert summary["requests"] > 0
    assert summary["failed"] == 0
    assert all(payload == {"n": 1} for payload in got)
    assert summary["p50_ms"] <= summary["p99_ms"] <= summary["max_ms"]


@pytest.mark.slow
def test_failures_are_counted_by_kind() -> None:
    def fail(payload: Any, stream: Any) -> None:
        raise LookupError

    with Served(fail) as server:
        ran = cli("bench", server.url, "--seconds", "0.1")
    assert ran.code == 1
    assert "failed: " in ran.lines[-1]
    assert ran.lines[-1].endswith(" remote")
    assert "hint: " in ran.err


@pytest.mark.slow
def test_a_server_that_dies() -> None:
    def die(connection: RawConnection) -> None:
        connection.expect("open")
        connection.reset()

    with RawServer(die) as server:
        ran = cli("bench", server.url, "--json", "--concurrency", "2")
    assert ran.code == 5
    assert ran.events[0]["failures"] == {"lost": 2}


@pytest.mark.slow
def test_ctrl_c_prints_what_there_is() -> None:
    with Served() as server, Program("bench", server.url, "--seconds", "600") as program:
        until(lambda: server.peers and server.peer.stats.frames_sent > 20)
        program.interrupt()
        assert program.wait() == 130
    assert "requests/s" in program.out


@pytest.mark.slow
@pytest.mark.parametrize("columns", [100, 20, 5])
def test_progress_keeps_to_one_row(columns: int) -> None:
    with Served() as server:
        arguments = ("bench", server.url, "--seconds", "600")
        with Program(*arguments, terminal=True, size=(columns, 10)) as program:
            program.expect(r"\r\d[^\r]*\r\d")
            drawn = program.out.split("\r")
            program.enter("\x03")
            assert program.wait() == 130
    assert len(drawn) > 2
    assert all(len(line) < columns for line in drawn)
