"""Of a connection, and of a stream, every greenlet, descriptor and object is gone after it, however it ended."""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Callable

import gevent
import pytest

from muxws_green import Peer, StreamReset, connect
from muxws_green.protocol.streams import LiveStream
from muxws_green.runtime.link import Link
from muxws_green.runtime.stream import Stream
from muxws_green.testing import settle
from muxws_green.transports.socket import SocketTransport
from tests.alive import alive
from tests.serving import KINDS, PATIENCE, Served, client, until
from tests.transports.raw import client_context

OURS = (Peer, Link, Stream, LiveStream, SocketTransport, gevent.Greenlet)


def living() -> Counter[str]:
    """How many objects of each kind there are that a connection or a stream may leave behind."""
    settle()
    gc.collect()
    return Counter(type(each).__name__ for each in alive(*OURS))


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def handler(payload, stream):
    if payload == "wait":
        stream.closed.wait()
    elif payload == "fail":
        raise RuntimeError("as it was asked to")
    else:
        stream.reply(payload)


def closed(served: Served, **options) -> None:
    with connect(served.url, heartbeat=None, **options) as peer:
        assert peer.request(1, timeout=PATIENCE) == 1


def busy(served: Served, **options) -> None:
    peer = connect(served.url, **options)
    streams = [peer.open("wait") for _ in range(3)]
    waiting = gevent.spawn(_result, streams[0])
    peer.notify("x" * 200_000)
    settle()
    peer.close(drain=0.0)
    waiting.get(timeout=PATIENCE)


def _result(stream: Stream) -> object:
    try:
        return stream.result()
    except StreamReset as error:
        return type(error)


def dropped(served: Served, **_options) -> None:
    raw = client(served)
    raw.send({"type": "open", "stream": 1, "payload": "wait"})
    raw.send({"type": "open", "stream": 3, "fragment": "never whole", "more": True})
    raw.close()


def was_reset(served: Served, **_options) -> None:
    raw = client(served)
    raw.send({"type": "open", "stream": 1, "payload": "wait"})
    raw.reset()


def violated(served: Served, **_options) -> None:
    with client(served) as raw:
        raw.send_frame(1, b"no message")
        raw.expect_close(1002, skip=("goaway",))


def parted(served: Served, **_options) -> None:
    with client(served) as raw:
        raw.send_close()
        raw.expect_close(1000)


WAYS: dict[str, Callable[..., None]] = {
    "closed": closed,
    "busy": busy,
    "dropped": dropped,
    "reset": was_reset,
    "violated": violated,
    "parted": parted,
}


@pytest.mark.slow
@pytest.mark.leaks
@pytest.mark.parametrize("kind", KINDS)
def test_five_hundred_connections_leave_no_trace(kind):
    rounds = {"tcp": 84, "tls": 10, "unix": 20}[kind]
    options = {"ssl_context": client_context()} if kind == "tls" else {}

    def cycle(served: Served, times: int) -> None:
        for _ in range(times):
            for way in WAYS.values():
                way(served, **options)
        until(lambda: not served.app.peers)
        served.peers.clear()

    with Served(handler, kind) as served:
        cycle(served, 2)
        before, open_before = living(), descriptors()
        cycle(served, rounds)
        until(lambda: descriptors() <= open_before)
        after = living()
        assert not after - before, after - before


STREAMS: dict[str, Callable[[Peer], object]] = {
    "call": lambda peer: peer.request(1),
    "notify": lambda peer: peer.notify(1),
    "cancelled": lambda peer: peer.open("wait").cancel(),
    "failed": lambda peer: _result(peer.open("fail")),
    "left": lambda peer: [row for row, _ in zip(peer.open("echo", end=True), range(1), strict=False)],
    "ended": lambda peer: peer.open("wait", headers={"h": 1}).end(trailers={"t": 1}),
    "forgotten": lambda peer: peer.open("echo", end=True),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_fifty_thousand_streams_on_one_connection_leave_no_trace(kind, caplog):
    """A million of them are a command (`python -m tests.soak.million_streams`)."""
    caplog.set_level(100, "muxws.peer")
    streams = {"tcp": 50_000, "tls": 5_000, "unix": 5_000}[kind]
    options = {"ssl_context": client_context()} if kind == "tls" else {}
    done = []

    def waiting(payload, stream):
        if payload == "wait":
            # Until its remote has ended or reset it.
            for _ in stream:
                pass
        else:
            handler(payload, stream)

    with Served(waiting, kind) as served, connect(served.url, heartbeat=None, **options) as peer:

        def work(count: int) -> None:
            ways = list(STREAMS.values())
            for number in range(count):
                ways[number % len(ways)](peer)
                done.append(None)
                if not number % 20:
                    # Lets those end that nobody waits for.
                    peer.ping(PATIENCE)
            until(lambda: not peer.streams and not served.peer.streams)

        def all_of(count: int) -> None:
            done.clear()
            gevent.joinall([gevent.spawn(work, count // 4) for _ in range(4)], raise_error=True, timeout=50)
            assert len(done) == count // 4 * 4

        all_of(1_000)
        before = living()
        all_of(streams)
        after = living()
        assert not after - before, after - before
        assert peer.stats.queued_bytes == served.peer.stats.queued_bytes == 0
        assert peer.stats.held_bytes == served.peer.stats.held_bytes == 0
        assert peer.stats.streams_opened == served.peer.stats.streams_accepted
