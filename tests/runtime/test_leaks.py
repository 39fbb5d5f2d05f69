"""After a connection nothing is left of it: no greenlet, no descriptor, no object that something still holds (C16)."""

from __future__ import annotations

import gc
import logging
import os
import weakref
from typing import Any

import gevent
import pytest
from gevent.event import Event
from gevent.pywsgi import WSGIServer

from muxws_green import (
    ConnectionClosed,
    ConnectionLost,
    IdleHeartbeat,
    JsonCodec,
    Peer,
    RemoteError,
    Server,
    StreamReset,
    WSGIApp,
    connect,
)
from muxws_green.runtime.link import Link
from muxws_green.runtime.options import Options
from muxws_green.runtime.stream import Stream
from muxws_green.testing import peer_pair, settle
from muxws_green.transports.memory import MemoryTransport
from muxws_green.transports.socket import SocketTransport
from tests.alive import alive
from tests.guards.leaks import JOBS
from tests.runtime.ends import PATIENCE, Gate, MemoryDialer, dialled, echo, outcome

KINDS = (Peer, Link, Stream, MemoryTransport, SocketTransport)


def living() -> list[object]:
    """Everything of a connection that is in memory."""
    gc.collect()
    return alive(*KINDS)


@pytest.fixture(autouse=True)
def running():
    """Fails a test of which something is left; gives it the greenlets of others. What lived before is not its own."""
    before, running = set(map(id, living())), our_greenlets()
    # pytest keeps the records of logs, and with them the frames of what they tell of.
    logging.disable(logging.CRITICAL)
    yield running
    logging.disable(logging.NOTSET)
    # What is ending may take a moment over real sockets.
    left: list[object] = []
    for _ in range(20):
        left = [found for found in living() if id(found) not in before]
        if not left:
            return
        gevent.sleep(0.05)
    found = left[0]
    holders = [holder for holder in gc.get_referrers(found) if holder is not left]
    pytest.fail(f"left: {left}; {found!r} is held by {[type(holder) for holder in holders]}")


def our_greenlets() -> set[str]:
    """The names of those that have not ended."""
    jobs = (*JOBS, "parting ", "closer ", "retiring ")
    return {found.name for found in alive(gevent.Greenlet) if not found.dead and found.name.startswith(jobs)}


def use(near: Peer, far: Peer) -> None:
    """Everything that can be done on a connection, done once."""

    def handle(payload: Any, stream: Stream) -> Any:
        if payload == "fail":
            raise ValueError("so")
        if payload == "rows":
            for number in range(5):
                stream.send(number)
        elif payload == "wait":
            Event().wait()
        else:
            stream.reply(payload, headers={"h": 1})

    for peer in (near, far):
        peer.on_stream(handle)
        peer.on_close(lambda reason: None)
        peer.on_frame(lambda direction, frame, size: None)
        peer.intercept_incoming_headers(lambda headers, stream: None)
    for peer in (near, far):
        assert peer.request("x" * 100_000) == "x" * 100_000
        assert list(peer.open("rows")) == list(range(5))
        for _ in peer.open("rows"):
            break
        with pytest.raises(RemoteError):
            peer.request("fail")
        peer.notify("rows")
        peer.ping()
        with peer.open("wait"):
            pass
        peer.open("wait").cancel()
        stream = peer.open("wait")
        assert not stream.closed.is_set()
        assert gevent.wait([stream, peer], timeout=0) == []
        with gevent.Timeout(0.001, False):  # type: ignore[arg-type]
            peer.request("wait")


END = {
    "near closes": lambda near, far, line: near.close(drain=0.0),
    "far closes": lambda near, far, line: far.close(drain=0.0),
    "lost": lambda near, far, line: line.drop(),
    "violation": lambda near, far, line: line.inject("{"),
    "reader killed": lambda near, far, line: near._link._reader.kill(),
    "writer killed": lambda near, far, line: near._link._writer.kill(),
}


@pytest.mark.parametrize("end", END)
def test_nothing_of_a_connection_is_left_however_it_ends(running, end):
    pair = peer_pair(heartbeat=IdleHeartbeat(60.0, 5.0))
    near, far = pair
    use(near, far)
    watched = [
        weakref.ref(thing)
        for peer in pair
        for thing in (peer, peer._link, peer._link.transport, peer._link.core, *peer.streams.values())
    ]
    assert len(watched) > 8
    END[end](near, far, pair.dialer_transport)
    with gevent.Timeout(PATIENCE):
        while not (near.is_closed and far.is_closed):
            gevent.sleep(0.001)
    settle()
    assert our_greenlets() <= running
    del near, far, pair
    gc.collect()
    assert [ref() for ref in watched if ref() is not None] == []


@pytest.mark.slow
def test_two_hundred_connections_in_memory(running):
    ids = set()
    for _ in range(200):
        with peer_pair(heartbeat=IdleHeartbeat(60.0, 5.0)) as (near, far):
            far.on_stream(echo)
            assert near.request(1) == 1
            stream = near.open()
            near.close(drain=0.0)
            assert stream.state.value == "closed"
            ids.add(near.id)
        settle_quickly()
    assert len(ids) == 200
    del near, far, stream
    gc.collect()
    assert our_greenlets() <= running


def settle_quickly() -> None:
    for _ in range(5):
        gevent.sleep(0)


def test_a_closed_peer_that_somebody_keeps_holds_nothing_else():
    kept = []
    for _ in range(3):
        pair = peer_pair()
        near, far = pair
        use(near, far)
        link, transport = weakref.ref(near._link), weakref.ref(near._link.transport)
        pair.drop()
        settle()
        kept.append(near)
        del near, far, pair
        gc.collect()
        assert link() is None
        assert transport() is None
    assert [peer.close_cause.code for peer in kept] == [1006] * 3


def test_a_stream_that_somebody_keeps_holds_no_handler():
    with peer_pair() as (near, far):
        gate = Gate()
        handler = weakref.ref(gate)
        far.on_stream(gate)
        stream = near.open()
        far_stream = gate.reached()
        run = weakref.ref(far_stream._handler)
        stream.cancel()
        settle()
        far.on_stream(echo)
        del gate
        gc.collect()
        assert run() is None
        assert handler() is None
        assert far_stream.state.value == "closed"
    settle()


def test_sockets_of_a_dialer_that_stays(clock):
    far = MemoryDialer(Options(codec=JsonCodec(), clock=clock), lambda peer: peer.on_stream(echo))
    peer = dialled(far)
    links = []
    for number in range(20):
        assert peer.request(number) == number
        links.append(weakref.ref(peer._link))
        far.dials[-1][0].drop()
        far.dials.clear()
        clock.advance(60.0)
    gc.collect()
    assert [ref() for ref in links if ref() is not None] == []
    assert peer.stats.reconnects == 20
    peer.close()
    settle()
    assert peer.supervisor.greenlet.dead


def test_a_first_dial_that_fails_leaves_nothing(running, clock):
    far = MemoryDialer(Options(codec=JsonCodec(), clock=clock))
    far.error = OSError("down")
    with pytest.raises(OSError, match="down") as caught:
        dialled(far)
    del caught
    settle()
    assert our_greenlets() <= running


def test_errors_that_somebody_keeps_hold_no_connection():
    pair = peer_pair()
    near, far = pair
    far.on_stream(Gate())
    link = weakref.ref(near._link)
    waiting = outcome(near.request)
    settle()
    pair.drop()
    errors: list[BaseException] = [waiting.get(timeout=PATIENCE)]
    for call in (near.open, near.ping):
        try:
            call()
        except (ConnectionLost, ConnectionClosed) as error:
            errors.append(error.with_traceback(None))
    settle()
    errors[0].__traceback__ = None
    del near, far, pair, waiting
    gc.collect()
    assert link() is None
    assert all(error.__cause__ is not None for error in errors)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.slow
@pytest.mark.parametrize("host", ["pywsgi", "Server"])
@pytest.mark.case("C16")
def test_fifty_connections_over_tcp(running, host):
    accepted: list[weakref.ref[Peer]] = []

    def handle(payload: Any, stream: Stream) -> None:
        if payload == "wait":
            Event().wait()
        stream.reply(payload)

    app = WSGIApp(handle, on_connect=lambda peer: accepted.append(weakref.ref(peer)))
    server: Any = (
        WSGIServer(("127.0.0.1", 0), app, log=None) if host == "pywsgi" else Server(("127.0.0.1", 0), app, log=None)
    )
    server.start()
    url = f"ws://127.0.0.1:{server.server_port}/"
    try:
        one_connection(url, 0)
        gevent.sleep(0.05)
        gc.collect()
        before = descriptors()
        for number in range(50):
            one_connection(url, number)
        with gevent.Timeout(PATIENCE):
            while app.peers or descriptors() > before:
                gevent.sleep(0.005)
        gc.collect()
        assert [ref() for ref in accepted if ref() is not None] == []
        assert our_greenlets() <= running
    finally:
        server.stop(timeout=0)


def one_connection(url: str, number: int) -> None:
    """One connection, which ends in one of four ways."""
    peer: Any = connect(url, hello={"agent": number})
    assert peer.request(number) == number
    stream = peer.open("wait")
    if number % 4 == 0:
        peer.close(drain=0.0)
    elif number % 4 == 1:
        with peer:
            pass
    elif number % 4 == 2:
        peer.supervisor.stop()
        peer._link.transport.abort()
        stream.closed.wait(PATIENCE)
        peer.close()
    else:
        peer.close(drain=0.05)
    with pytest.raises(StreamReset):
        stream.result()
