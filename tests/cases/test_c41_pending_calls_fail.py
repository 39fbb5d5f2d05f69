"""C41: whatever waits for something when the socket dies ends, with the right error, before `on_close` runs."""

from __future__ import annotations

from typing import Any

import pytest

from muxws_green import ConnectionClosed, ConnectionLost
from tests.seeds.scripted import Wire, outcome

pytestmark = [pytest.mark.case("C41"), pytest.mark.leaks]


def of_a_dialer(clock, raw_server, green_server, raw_client, dial) -> tuple[Any, Wire]:
    server = raw_server(lambda wire: wire.greet())
    peer = dial(server.url, hello=1, heartbeat=None)
    return peer, server.last


def of_an_acceptor(clock, raw_server, green_server, raw_client, dial) -> tuple[Any, Wire]:
    server = green_server(lambda payload, stream: None)
    client = raw_client(server.url)
    clock.settle()
    return server.peer, client


@pytest.mark.slow
@pytest.mark.parametrize("make", [of_a_dialer, of_an_acceptor])
@pytest.mark.parametrize("end", ["reset", "drop", "close"])
def test_every_shape_of_waiting(clock, raw_server, green_server, raw_client, dial, make, end) -> None:
    peer, wire = make(clock, raw_server, green_server, raw_client, dial)
    order: list[str] = []

    def note(name: str, wait) -> Any:
        def run() -> Any:
            try:
                return wait()
            finally:
                order.append(name)

        return outcome(run)

    streams = [peer.open(n) for n in range(5)]
    full = peer.open("a sender that waits for room")

    def send() -> None:
        while True:
            full.send("x" * 1_000_000)

    waits = {
        "result": note("result", streams[0].result),
        "iterate": note("iterate", lambda: list(streams[1])),
        "receive": note("receive", streams[2].receive),
        "request": note("request", lambda: peer.request("call")),
        "closed": note("closed", lambda: streams[3].closed.wait()),
        "reply headers": note("reply headers", lambda: streams[4].reply_headers_arrived.wait()),
        "ping": note("ping", lambda: peer.ping(timeout=3_600.0)),
    }
    if make is of_a_dialer:
        # The raw client reads all the time, so that no sender would have to wait.
        waits["send"] = note("send", send)
    peer.on_close(lambda reason: order.append("on_close"))
    clock.settle()
    if end == "close":
        wire.close(1001)
    else:
        getattr(wire, end)()
    with clock.held():
        # None of it takes any time.
        clock.settle()
    assert all(wait.dead for wait in waits.values())
    for name, wait in waits.items():
        if name in ("closed", "reply headers"):
            assert wait.value is True
        elif name == "ping":
            assert type(wait.value) is ConnectionClosed
        else:
            assert type(wait.value) is ConnectionLost, name
            assert wait.value.__cause__ is peer.close_cause
    assert sorted(order[:-1]) == sorted(waits)
    assert order[-1] == "on_close"


def test_a_peer_that_serves_returns(clock, green_server, raw_client) -> None:
    server = green_server(lambda payload, stream: None)
    client = raw_client(server.url)
    clock.settle()
    peer = server.peer
    serving = outcome(peer.serve)
    clock.settle()
    assert not serving.dead
    client.reset()
    clock.settle()
    assert serving.dead
    assert not isinstance(serving.value, BaseException)
