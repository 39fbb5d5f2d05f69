"""C54: reader and writer live and die together, whichever of them fails, and the peer says so."""

from __future__ import annotations

from typing import Any

import pytest

from muxws_green import CloseReason, ConnectionLost
from tests.seeds.scripted import Wire, polite

pytestmark = [pytest.mark.case("C54"), pytest.mark.leaks]


def own_greenlets(link: Any) -> list[Any]:
    return [link._reader, link._writer, link.heartbeat.greenlet]


def fill_until_lost(peer: Any, stream: Any) -> None:
    while True:
        stream.send("x" * 500_000)


@pytest.mark.parametrize("end", ["reset", "vanishes"])
def test_the_writer_fails(clock, raw_server, dial, end) -> None:
    """The remote has gone away in the middle of what we send."""
    server = raw_server(lambda wire: wire.greet())
    server.scripts.append(polite)
    told: list[CloseReason] = []
    peer = dial(server.url, hello=1, on_close=told.append)
    link = peer._link
    stream = peer.open("bulk")
    clock.settle()
    greenlets = own_greenlets(link)
    if end == "reset":
        server.wires[0].reset()
    else:
        server.wires[0].sock.close()
    with clock.held():
        with pytest.raises(ConnectionLost):
            fill_until_lost(peer, stream)
        clock.settle()
    assert all(greenlet.dead for greenlet in greenlets)
    assert not peer.is_open
    assert len(told) == 1
    clock.advance(1.0)
    assert peer.is_open


@pytest.mark.parametrize("victim", ["_reader", "_writer", "heartbeat"])
def test_one_of_them_is_killed(clock, raw_server, dial, victim) -> None:
    server = raw_server(polite)
    told: list[CloseReason] = []
    peer = dial(server.url, hello=1, on_close=told.append)
    link = peer._link
    greenlets = own_greenlets(link)
    clock.settle()
    (link.heartbeat.greenlet if victim == "heartbeat" else getattr(link, victim)).kill(block=False)
    with clock.held():
        clock.settle()
    assert all(greenlet.dead for greenlet in greenlets)
    assert [(reason.code, reason.will_retry) for reason in told] == [(1011, True)]
    assert server.wires[0].close_code == 1011
    clock.advance(1.0)
    assert peer.is_open


@pytest.mark.parametrize("victim", ["receive", "send"])
def test_one_of_them_meets_a_fault_of_ours(clock, raw_server, dial, victim, caplog) -> None:
    server = raw_server(polite)
    told: list[CloseReason] = []
    peer = dial(server.url, hello=1, on_close=told.append)
    link = peer._link
    greenlets = own_greenlets(link)

    def fails(*arguments: Any) -> Any:
        raise ZeroDivisionError("a fault of ours")

    setattr(link.transport, victim, fails)
    peer.notify("wakes the writer, and the answer the reader")
    server.last.write("ping", nonce="wakes the reader")
    with clock.held():
        clock.settle()
    assert all(greenlet.dead for greenlet in greenlets)
    assert [reason.code for reason in told] == [1011]
    assert "a fault of ours" in caplog.text
    clock.advance(1.0)
    assert peer.is_open


def test_the_acceptor_too(clock, green_server, raw_client) -> None:
    server = green_server(lambda payload, stream: None, ping_interval=100.0)
    client: Wire = raw_client(server.url)
    clock.settle()
    peer = server.peer
    told: list[CloseReason] = []
    peer.on_close(told.append)
    link = peer._link
    peer.notify("starts the writer")
    clock.settle()
    link._writer.kill(block=False)
    clock.settle()
    assert [(reason.code, reason.will_retry) for reason in told] == [(1011, False)]
    assert client.close_code == 1011
    assert link.heartbeat.greenlet.dead
    assert server.app.peers == []
