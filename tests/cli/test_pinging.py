"""`ping`: each round trip, and the sum in the end however that comes."""

from __future__ import annotations

import re

import pytest

from muxws_green.cli.output import Output
from muxws_green.cli.pinging import Tally
from muxws_green.protocol.frames import Frame
from muxws_green.testing import RawConnection, RawServer
from tests.cli.programs import Program, cli
from tests.serving import Served


def test_the_sum() -> None:
    shown: list[str] = []
    out = Output()
    out.show = shown.append
    tally = Tally()
    tally.show(out, "ws://h/")
    for seconds in (0.001, 0.002, 0.006):
        tally.sent += 1
        tally.add(seconds)
    tally.sent += 1
    tally.show(out, "ws://h/")
    assert shown == [
        "--- ws://h/: 0 sent, 0 received, 0% lost",
        "--- ws://h/: 4 sent, 3 received, 25% lost; round trip min/avg/max = 1.000/3.000/6.000 ms",
    ]


@pytest.mark.slow
def test_a_number_of_pings() -> None:
    with Served() as server:
        ran = cli("ping", server.url, "--count", "3", "--interval", "0")
        url = re.escape(server.url)
        assert ran.code == 0
        assert [bool(re.fullmatch(rf"pong from {url}: seq=\d time=\d+\.\d{{3}} ms", line)) for line in ran.lines] == [
            *(True, True, True),
            False,
        ]
        times = r"round trip min/avg/max = [\d.]+/[\d.]+/[\d.]+ ms"
        assert re.fullmatch(rf"--- {url}: 3 sent, 3 received, 0% lost; {times}", ran.lines[-1])


@pytest.mark.slow
def test_for_programs() -> None:
    with Served() as server:
        pong, summary = cli("ping", server.url, "--count", "1", "--json").events
    assert pong.keys() == {"event", "seq", "ms"}
    assert summary.keys() == {"event", "sent", "received", "loss_percent", "min_ms", "avg_ms", "max_ms"}
    assert (summary["sent"], summary["received"], summary["loss_percent"]) == (1, 1, 0)
    assert summary["min_ms"] == summary["avg_ms"] == summary["max_ms"] == pong["ms"]


@pytest.mark.slow
def test_ctrl_c_sums_up() -> None:
    with Served() as server, Program("ping", server.url, "--interval", "60") as program:
        program.expect("seq=1 time=")
        program.interrupt()
        assert program.wait() == 0
    assert "1 sent, 1 received" in program.out


@pytest.mark.slow
def test_lost_ones() -> None:
    def answer_the_second(connection: RawConnection) -> None:
        connection.expect("ping")
        connection.send(Frame("pong", nonce=connection.expect("ping").nonce))

    with RawServer(answer_the_second) as server:
        ran = cli("ping", server.url, "--count", "2", "--interval", "0", "--timeout", "0.5", "--json")
        assert ran.code == 0
        assert [event["event"] for event in ran.events] == ["lost", "pong", "summary"]
        assert ran.events[-1]["loss_percent"] == 50
    with RawServer(lambda connection: connection.expect("ping")) as server:
        ran = cli("ping", server.url, "--count", "1", "--timeout", "0.2")
        assert ran.code == 1
        assert "no pong within 0.2 s: seq=1" in ran.out


@pytest.mark.slow
def test_a_server_that_dies() -> None:
    def die(connection: RawConnection) -> None:
        connection.expect("ping")
        connection.reset()

    with RawServer(die) as server:
        ran = cli("ping", server.url)
    assert ran.code == 5
    assert "1 sent, 0 received, 100% lost" in ran.out
    assert "hint: " in ran.err
