"""Payloads that arrive in fragments, at both ends and under both codecs: what is joined, and what a fault costs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from muxws_green.errors import ResetCode, StreamReset
from muxws_green.protocol.frames import Frame
from muxws_green.protocol.states import StreamState
from muxws_green.testing import FakeClock, settle
from tests.conformance.runner import CODECS, Lone

pytestmark = pytest.mark.leaks

PAYLOAD = ["äöü", {"n": 1}, None, "x" * 40]


class Feed:
    """A peer, and a remote that sends it fragments."""

    def __init__(self, codec_name: str, clock: FakeClock, *, dialer: bool, **options: Any) -> None:
        self.lone = Lone(codec_name, clock, dialer=dialer, **options)
        #: The remote's own ids.
        self.id, self.next_id = (2, 4) if dialer else (1, 3)

    def pieces(self, count: int, payload: Any = PAYLOAD) -> list[str | bytes]:
        """An encoded payload in so many pieces, of which one is empty where there is more than one."""
        encoded = self.lone.codec.encode_payload(payload)
        if count == 1:
            return [encoded]
        cuts = [len(encoded) * n // (count - 1) for n in range(count)]
        return [encoded[a:b] for a, b in pairwise(cuts)] + [encoded[:0]]

    def get(self, kind: str, stream: int | None = None, **fields: Any) -> None:
        frame = Frame(kind, stream=self.id if stream is None else stream, **fields)
        self.lone.transport.inject(self.lone.codec.encode(frame))
        settle()

    def get_pieces(self, kind: str, pieces: list[str | bytes], *, last: bool = True, **closing: Any) -> None:
        """Receive them; without `last` more are to come."""
        for number, piece in enumerate(pieces, 1):
            closes = last and number == len(pieces)
            self.get(kind, fragment=piece, more=not closes, **(closing if closes else {}))

    def sent(self) -> list[tuple[str, int | None, int | None]]:
        return [(frame.type, frame.stream, frame.code) for frame in self.lone.end.frames()]


@pytest.fixture(params=[(name, role) for name in CODECS for role in ("dialer", "acceptor")], ids="-".join)
def make(request: pytest.FixtureRequest) -> Iterator[Any]:
    feeds: list[Feed] = []

    def make(**options: Any) -> Feed:
        feeds.append(Feed(request.param[0], clock, dialer=request.param[1] == "dialer", **options))
        return feeds[-1]

    with FakeClock() as clock:
        yield make
        for feed in feeds:
            feed.lone.transport.drop()
        settle()


@pytest.mark.parametrize("end", [False, True])
@pytest.mark.parametrize("count", [1, 2, 3, 20])
def test_an_open(make: Any, count: int, end: bool) -> None:
    feed = make()
    feed.get_pieces("open", feed.pieces(count)[:-1], last=False)
    if count > 1:
        assert feed.lone.peer.streams[feed.id].payload is None
        assert feed.lone.peer.streams[feed.id].state is StreamState.OPEN
    feed.get_pieces("open", feed.pieces(count)[-1:], end=end, trailers={"t": 1} if end else None)
    stream = feed.lone.end.stream(feed.id)
    assert stream.payload == PAYLOAD
    assert stream.state is (StreamState.HALF_CLOSED_REMOTE if end else StreamState.OPEN)
    assert stream.trailers == ({"t": 1} if end else None)
    assert feed.sent() == []


@pytest.mark.parametrize("count", [1, 2, 20])
def test_data(make: Any, count: int) -> None:
    feed = make()
    feed.get("open", payload=1)
    stream = feed.lone.end.stream(feed.id)
    feed.get_pieces("data", feed.pieces(count))
    feed.get_pieces("data", feed.pieces(count, "second"))
    feed.get("data", payload="whole")
    feed.get_pieces("data", feed.pieces(count, None), end=True)
    assert list(stream) == [PAYLOAD, "second", "whole", None]
    assert feed.sent() == []


def test_other_streams_go_on_meanwhile(make: Any) -> None:
    feed = make()
    feed.get_pieces("open", feed.pieces(3)[:1], last=False)
    feed.get("open", feed.next_id, payload=1)
    feed.get("data", feed.next_id, payload=2, end=True)
    feed.get("ping", nonce="n")
    feed.get_pieces("open", feed.pieces(3)[1:])
    assert list(feed.lone.end.stream(feed.next_id)) == [2]
    assert feed.lone.end.stream(feed.id).payload == PAYLOAD
    assert feed.sent() == [("pong", None, None)]


FAULTS: dict[str, dict[str, Any]] = {
    "a whole frame": {"payload": 1},
    "an end": {"end": True},
    "headers": {"headers": {}, "payload": 1},
}


@pytest.mark.parametrize("kind", ["open", "data"])
@pytest.mark.parametrize("fault", FAULTS)
def test_interrupted_by(make: Any, kind: str, fault: str) -> None:
    feed = make()
    if kind == "data":
        feed.get("open", payload=1)
    feed.get_pieces(kind, feed.pieces(3)[:1], last=False)
    feed.get("data", **FAULTS[fault])
    only_the_stream_paid(feed, kind, ResetCode.PROTOCOL_ERROR)


@pytest.mark.parametrize("kind", ["open", "data"])
def test_interrupted_by_a_fragment_of_another_type(make: Any, kind: str) -> None:
    feed = make()
    if kind == "data":
        feed.get("open", payload=1)
    feed.get_pieces(kind, feed.pieces(3)[:1], last=False)
    feed.get_pieces("data" if kind == "open" else "open", feed.pieces(3)[1:])
    only_the_stream_paid(feed, kind, ResetCode.PROTOCOL_ERROR)


@pytest.mark.parametrize("kind", ["open", "data"])
def test_headers_on_a_later_fragment(make: Any, kind: str) -> None:
    feed = make()
    if kind == "data":
        feed.get("open", payload=1)
    feed.get_pieces(kind, feed.pieces(3)[:1], last=False)
    feed.get(kind, fragment=feed.pieces(3)[1], more=True, headers={"a": 1})
    only_the_stream_paid(feed, kind, ResetCode.PROTOCOL_ERROR)


@pytest.mark.parametrize("kind", ["open", "data"])
def test_joined_to_nonsense(make: Any, kind: str) -> None:
    feed = make()
    if kind == "data":
        feed.get("open", payload=1)
    pieces = feed.pieces(3)
    feed.get_pieces(kind, [pieces[1], pieces[0]])
    only_the_stream_paid(feed, kind, ResetCode.PROTOCOL_ERROR)


@pytest.mark.parametrize("kind", ["open", "data"])
def test_a_payload_over_the_limit_is_dropped_at_the_fragment_that_crosses_it(make: Any, kind: str) -> None:
    feed = make(max_payload_bytes=20)
    if kind == "data":
        feed.get("open", payload=1)
    pieces = [piece for byte in range(7) for piece in feed.pieces(1, byte)] * 4
    feed.get_pieces(kind, pieces[:20], last=False)
    assert feed.sent() == []
    feed.get_pieces(kind, pieces[20:21], last=False)
    only_the_stream_paid(feed, kind, ResetCode.PAYLOAD_TOO_LARGE)


@pytest.mark.parametrize("kind", ["open", "data"])
def test_a_reset_needs_no_turn(make: Any, kind: str) -> None:
    feed = make()
    if kind == "data":
        feed.get("open", payload=1)
    feed.get_pieces(kind, feed.pieces(3)[:1], last=False)
    stream = feed.lone.peer.streams[feed.id]
    feed.get("reset", code=1)
    with pytest.raises(StreamReset):
        stream.result()
    late(feed, kind)
    assert feed.sent() == []


def test_an_open_refused_for_the_limit(make: Any) -> None:
    feed = make(max_concurrent_streams=1)
    feed.get("open", payload=1)
    feed.id, feed.next_id = feed.next_id, feed.next_id + 2
    feed.get_pieces("open", feed.pieces(4)[:1], last=False)
    assert feed.sent() == [("reset", feed.id, ResetCode.REFUSED)]
    late(feed, "open")
    assert len(feed.sent()) == 1


def test_a_violation_takes_the_place_of_what_is_queued(make: Any) -> None:
    feed = make(capacity_bytes=1, max_frame_bytes=256)
    feed.get("open", payload=1, end=True)
    stream = feed.lone.end.stream(feed.id)
    stream.send("x" * 1_000)
    stream.send("y")
    settle()
    feed.get("data", payload=1)
    while (sent := feed.sent())[-1][0] != "reset":
        feed.lone.nobody.receive()
        settle()
    # One fragment was under way, and the writer held another one already.
    assert sent == [("data", feed.id, None)] * 2 + [("reset", feed.id, ResetCode.PROTOCOL_ERROR)]


def only_the_stream_paid(feed: Feed, kind: str, code: ResetCode) -> None:
    """One reset has gone out, what follows on the stream is late, and the next stream works."""
    assert feed.sent() == [("reset", feed.id, code)]
    assert feed.id not in feed.lone.peer.streams
    late(feed, kind)
    assert len(feed.sent()) == 1
    feed.id = feed.next_id
    feed.get_pieces("open", feed.pieces(1, "next"))
    assert feed.lone.end.stream(feed.id).payload == "next"


def late(feed: Feed, kind: str) -> None:
    """Further fragments for a stream that has closed are counted, and that is all."""
    before = feed.lone.peer.stats.late_frames
    feed.get_pieces(kind, feed.pieces(3))
    assert feed.lone.peer.stats.late_frames == before + 3
    assert feed.lone.peer.is_open
