"""Interceptors of one end, as the other end sees their work over sockets, in both roles."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import gevent
import pytest

from muxws_green import Peer, RemoteError, Server, WSGIApp, connect
from tests.cases.green import until
from tests.transports.raw import PATIENCE

pytestmark = pytest.mark.leaks


class Ends:
    """Two peers over TCP; `near` has the interceptors, `far` sees what comes of them."""

    def __init__(self, near_dials: bool) -> None:
        self.accepted: list[Peer] = []
        self.server = Server(("127.0.0.1", 0), WSGIApp(None, on_connect=self._take, heartbeat=None), log=None)
        self.server.start()
        self.seen: list[tuple[Any, Any]] = []
        self.dialled = connect(f"ws://127.0.0.1:{self.server.server_port}/", heartbeat=None, on_stream=self._answer)
        until(lambda: self.accepted)
        self.near, self.far = (self.dialled, self.accepted[0])[:: 1 if near_dials else -1]

    def _take(self, peer: Peer) -> None:
        peer.on_stream(self._answer)
        self.accepted.append(peer)

    def _answer(self, payload: Any, stream: Any) -> None:
        self.seen.append((payload, stream.headers))
        stream.reply(payload, headers={"own": True} if payload == "with headers" else None)

    def end(self) -> None:
        self.dialled.close(drain=0.0)
        self.server.stop(timeout=0)


@pytest.fixture(params=["dialer", "acceptor"])
def ends(request: pytest.FixtureRequest) -> Iterator[Ends]:
    made = Ends(near_dials=request.param == "dialer")
    yield made
    made.end()


def test_outgoing_headers_of_opens(ends: Ends) -> None:
    def trace(headers: dict[str, Any], payload: Any) -> None:
        headers["trace"] = f"for {payload}"

    remove = ends.near.intercept_open(trace)
    assert ends.near.request("a", timeout=PATIENCE) == "a"
    assert ends.near.request("b", headers={"mine": 1}, timeout=PATIENCE) == "b"
    ends.near.notify("c")
    until(lambda: len(ends.seen) == 3)
    # The other end's calls are not its business.
    assert ends.far.request("d", timeout=PATIENCE) == "d"
    remove()
    assert ends.near.request("e", timeout=PATIENCE) == "e"
    assert ends.seen == [
        ("a", {"trace": "for a"}),
        ("b", {"mine": 1, "trace": "for b"}),
        ("c", {"trace": "for c"}),
        ("d", {}),
        ("e", {}),
    ]


def test_outgoing_headers_of_answers(ends: Ends) -> None:
    def sign(headers: dict[str, Any], stream: Any) -> None:
        headers["signed"] = stream.payload

    remove = ends.near.intercept_reply_headers(sign)
    for payload, expected in (("a", {"signed": "a"}), ("with headers", {"own": True, "signed": "with headers"})):
        stream = ends.far.open(payload, end=True)
        assert stream.result(timeout=PATIENCE) == payload
        assert stream.reply_headers == expected
    remove()
    stream = ends.far.open("b", end=True)
    assert stream.result(timeout=PATIENCE) == "b"
    assert not stream.reply_headers


def test_incoming_headers(ends: Ends) -> None:
    incoming: list[tuple[dict[str, Any], bool]] = []

    def look(headers: Mapping[str, Any], stream: Any) -> None:
        incoming.append((dict(headers), stream.local))
        with pytest.raises(TypeError):
            headers["more"] = 1  # type: ignore[index]

    remove = ends.near.intercept_incoming_headers(look)
    assert ends.far.request("a", headers={"x": 1}, timeout=PATIENCE) == "a"
    assert ends.far.request("b", timeout=PATIENCE) == "b"
    assert ends.near.request("with headers", timeout=PATIENCE) == "with headers"
    remove()
    assert ends.far.request("c", headers={"x": 2}, timeout=PATIENCE) == "c"
    assert incoming == [({"x": 1}, False), ({}, False), ({"own": True}, True)]


def test_an_outgoing_one_that_raises_fails_its_call_and_no_other(ends: Ends) -> None:
    def forbid(headers: dict[str, Any], about: Any) -> None:
        payload = about if isinstance(about, str) else about.payload
        if payload == "forbidden":
            raise PermissionError(payload)

    ends.near.intercept_open(forbid)
    for call in (ends.near.open, ends.near.notify, ends.near.request):
        with pytest.raises(PermissionError):
            call("forbidden")
    assert ends.near.streams == {}
    assert ends.near.request("allowed", timeout=PATIENCE) == "allowed"
    # Nothing of the others has been on the wire, and no id has been used up.
    assert [payload for payload, _ in ends.seen] == ["allowed"]
    assert ends.near.stats.streams_opened == 1
    ends.near.intercept_reply_headers(forbid)
    with pytest.raises(RemoteError) as error:
        ends.far.request("forbidden", timeout=PATIENCE)
    assert error.value.payload == {"type": "PermissionError", "message": "forbidden"}
    assert ends.far.request("allowed", timeout=PATIENCE) == "allowed"


def test_an_incoming_one_that_raises_is_logged_only(ends: Ends, caplog: pytest.LogCaptureFixture) -> None:
    def stumble(headers: Mapping[str, Any], stream: Any) -> None:
        raise LookupError("stumbled")

    ends.near.intercept_incoming_headers(stumble)
    assert ends.far.request("a", headers={"x": 1}, timeout=PATIENCE) == "a"
    assert ends.near.request("b", timeout=PATIENCE) == "b"
    records = [record for record in caplog.records if record.exc_info]
    assert len(records) == 2
    assert all(record.levelno == logging.ERROR and "stumbled" in str(record.exc_info) for record in records)


def test_they_may_be_given_beforehand() -> None:
    """So that they see the very first stream, which may come with the handshake."""
    seen: list[Any] = []
    options: dict[str, Any] = {
        "open_interceptors": [lambda headers, payload: headers.update(of="open")],
        "reply_headers_interceptors": [lambda headers, stream: headers.update(of="reply")],
        "incoming_headers_interceptors": [lambda headers, stream: seen.append(dict(headers))],
    }

    def push(peer: Peer) -> None:
        gevent.spawn(peer.request, "pushed")

    def answer(payload: Any, stream: Any) -> None:
        stream.reply(payload)

    server = Server(("127.0.0.1", 0), WSGIApp(answer, on_connect=push, heartbeat=None, **options), log=None)
    server.start()
    peer = connect(f"ws://127.0.0.1:{server.server_port}/", heartbeat=None, on_stream=answer, **options)
    try:
        until(lambda: len(seen) == 2)
        assert seen == [{"of": "open"}, {"of": "reply"}]
    finally:
        peer.close(drain=0.0)
        server.stop(timeout=0)
