"""What things cost in calls of Python functions, both ends together, over real sockets.

No clock is read, so that no machine is too slow for it. A count that has grown past `SLACK` is red; one that has shrunk
as much is red too, since then the number here says nothing any more. It changes with a reason in the commit.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gevent
import pytest
from gevent.event import Event
from gevent.pywsgi import WSGIServer

import muxws_green as m
from muxws_green.codecs import MsgpackCodec
from muxws_green.testing import settle

#: By workload and codec: calls for one of what is counted.
COUNTS: dict[tuple[str, str], float] = {
    ("a call", "json"): 183,
    ("a call", "msgpack"): 181,
    ("a call of many at once", "json"): 114,
    ("a call of many at once", "msgpack"): 112,
    ("a row of a stream", "json"): 22,
    ("a row of a stream", "msgpack"): 20,
    ("a mebibyte there and back", "json"): 2_340,
    ("a mebibyte there and back", "msgpack"): 2_290,
    ("a connection made and closed", "json"): 790,
    ("a connection made and closed", "msgpack"): 790,
    # Objects, not calls.
    ("objects of an idle connection", "json"): 72,
    ("objects of an idle connection", "msgpack"): 72,
    ("a push", "json"): 77,
    ("a push", "msgpack"): 76,
}

SLACK = 1.3
SMALL = {"id": 12345, "name": "abcdefghijklmnopqrst", "ok": True, "n": 7.25}
CODECS = {"json": m.JsonCodec, "msgpack": MsgpackCodec}


class Site:
    """A server and one connection to it, in this process."""

    def __init__(self, url: str, codec: m.Codec, registry: m.PeerRegistry) -> None:
        self.url = url
        self.codec = codec
        self.registry = registry
        self.peer = m.connect(url, codec=codec)

    def call(self, count: int) -> None:
        for _ in range(count):
            assert self.peer.request(SMALL) == SMALL

    def callers(self, count: int) -> None:
        gevent.joinall([gevent.spawn(self.call, count // 64) for _ in range(64)], raise_error=True)

    def rows(self, count: int) -> None:
        assert sum(1 for _ in self.peer.open({"rows": count}, end=True)) == count

    def mebibytes(self, count: int) -> None:
        payload: Any = (b"x" if self.codec.binary else "x") * 1_048_576
        for _ in range(count):
            assert self.peer.request(payload) == payload

    def connections(self, count: int) -> None:
        for _ in range(count):
            m.connect(self.url, codec=self.codec).close()

    def pushes(self, count: int) -> None:
        arrived, seen = Event(), []

        def push(payload: Any, stream: m.Stream) -> None:
            seen.append(payload)
            if len(seen) == count:
                arrived.set()

        for other in self.registry.peers_for():
            self.registry.deregister(other)
        peers = [m.connect(self.url, codec=self.codec, on_stream=push) for _ in range(10)]
        settle()
        with counted() as calls:
            for _ in range(count // len(self.registry)):
                self.registry.notify_all(SMALL)
            arrived.wait(20)
        self.pushed = calls[0]
        for peer in peers:
            peer.close()


@contextmanager
def counted() -> Iterator[list[int]]:
    """How many Python functions are called meanwhile, in all greenlets."""
    calls = [0]

    def note(_frame: object, event: str, _argument: object) -> None:
        if event == "call":
            calls[0] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(before)


@pytest.fixture(params=CODECS)
def site(request):
    codec, registry = CODECS[request.param](), m.PeerRegistry()

    def handle(payload: Any, stream: m.Stream) -> None:
        if isinstance(payload, dict) and "rows" in payload:
            for _ in range(payload["rows"]):
                stream.send(SMALL)
        else:
            stream.reply(payload)

    app = m.WSGIApp(handle, codec=codec, on_connect=registry.register)
    server = WSGIServer(("127.0.0.1", 0), app, log=None)
    server.start()
    made = Site(f"ws://127.0.0.1:{server.server_port}/", codec, registry)
    made.call(5)
    yield made
    made.peer.close()
    server.stop()


WORKLOADS: dict[str, tuple[Callable[[Site, int], None], int]] = {
    "a call": (Site.call, 100),
    "a call of many at once": (Site.callers, 640),
    "a row of a stream": (Site.rows, 2_000),
    "a mebibyte there and back": (Site.mebibytes, 4),
    "a connection made and closed": (Site.connections, 10),
}


@pytest.mark.parametrize("workload", WORKLOADS)
def test_it_costs_what_it_did(site, workload):
    work, count = WORKLOADS[workload]
    work(site, count)
    with counted() as calls:
        work(site, count)
    judge(workload, site.codec.name, calls[0] / count)


def test_a_push_costs_what_it_did(site):
    count = 200
    site.pushes(count)
    judge("a push", site.codec.name, site.pushed / count)


def test_to_tell_all_at_once_costs_less_than_one_by_one(site):
    """At the server alone: what the receivers do is the same."""
    peers = [m.connect(site.url, codec=site.codec, on_stream=lambda payload, stream: None) for _ in range(20)]
    settle()
    served = site.registry.peers_for()
    for _ in range(2):
        with counted() as together:
            site.registry.notify_all(SMALL)
        settle()
        with counted() as one_by_one:
            for peer in served:
                peer.notify(SMALL, wait=False)
        settle()
    assert together[0] < one_by_one[0]
    for peer in peers:
        peer.close()


def test_an_idle_connection_leaves_few_objects(site):
    """Both ends together; each one is looked at by the garbage collector again and again."""
    # Past what is made once.
    peers = [m.connect(site.url, codec=site.codec) for _ in range(5)]
    settle()
    gc.collect()
    before = len(gc.get_objects())
    peers += [m.connect(site.url, codec=site.codec) for _ in range(20)]
    settle()
    gc.collect()
    judge("objects of an idle connection", site.codec.name, (len(gc.get_objects()) - before) / 20)
    for peer in peers:
        peer.close()


def judge(workload: str, codec: str, cost: float) -> None:
    noted = COUNTS[workload, codec]
    assert noted / SLACK <= cost <= noted * SLACK, f"{workload} under {codec} costs {cost:.1f}, and not {noted}"
