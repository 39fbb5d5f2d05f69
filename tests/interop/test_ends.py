"""How connections with the reference begin and end: hello, goaway, a codec that only one side speaks."""

from __future__ import annotations

from typing import Any

import gevent
import pytest

from muxws_green.errors import CodecMismatch, ConnectionGoingAway, ConnectionLost, StreamRefused
from muxws_green.protocol.frames import Frame
from tests.interop.ours import ROLES, Worker, dial, ours_dials, ours_serves, reference_dials, together
from tests.interop.process import PATIENCE, ReferenceFailed, reference_client, reference_server

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.watchdog(30), pytest.mark.leaks]

by_codec = pytest.mark.parametrize("codec_name", ["json", "msgpack"])

HELLO: dict[str, Any] = {"do": "hello", "who": ["ä", None, 1]}


@by_codec
def test_the_references_goaway_drains(codec_name: str) -> None:
    with ours_dials(codec_name) as talk:
        ours, reference = talk.ours, talk.reference
        assert together((ours.many, 2))
        theirs = reference.start("gate", name="here")
        mine = gevent.spawn(ours.peer.request, {"do": "gate", "name": "there"})
        ours.peer.ping(PATIENCE)
        closing = reference.start("close", reason="going down", drain=PATIENCE)
        # A pong behind it: the goaway has arrived.
        reference.do("ping")
        with pytest.raises(ConnectionGoingAway):
            ours.peer.open({"do": "echo", "n": 0})
        ours.gate("here").set()
        reference.do("open_gate", name="there")
        with gevent.Timeout(PATIENCE):
            assert mine.get() == {"passed": "there"}
            assert reference.finish(theirs) == {"passed": "here"}
            reference.finish(closing)
            gevent.wait([ours.peer])
        (goaway,) = ours.frames("rx", "goaway")
        assert goaway == Frame("goaway", code=0, reason="going down", last_stream=ours.frames("tx", "open")[-1].stream)
        assert ours.frames("tx", "goaway") == []
        (reason,) = ours.closes
        assert (reason.code, reason.reason, reason.was_clean, reason.will_retry) == (1000, "going down", True, False)
        ours.check_wire()


@by_codec
def test_an_open_that_crosses_a_goaway_of_the_reference_is_refused(codec_name: str) -> None:
    with ours_dials(codec_name) as talk:
        ours, reference = talk.ours, talk.reference
        mine = gevent.spawn(ours.peer.request, {"do": "gate", "name": "there"})
        ours.peer.ping(PATIENCE)
        crossing: list[Any] = []

        def cross(direction: str, frame: Frame, _size: int) -> None:
            if direction == "rx" and frame.type == "goaway":
                # The hook comes before the frame is acted upon: what is opened now has crossed it on the way.
                crossing.append(ours.peer.open({"do": "echo", "n": 0}, end=True, wait=False))

        ours.peer.on_frame(cross)
        closing = reference.start("close", reason="going down", drain=PATIENCE)
        with gevent.Timeout(PATIENCE), pytest.raises(StreamRefused):
            while not crossing:
                ours.peer.ping(PATIENCE)
            crossing[0].result()
        reference.do("open_gate", name="there")
        with gevent.Timeout(PATIENCE):
            assert mine.get() == {"passed": "there"}
            reference.finish(closing)
        assert [entry["do"] for entry in reference.do("facts")["opened"]] == ["gate"]


@by_codec
def test_a_closing_reference_dialer_says_no_goaway(codec_name: str) -> None:
    with reference_dials(codec_name) as talk:
        assert talk.reference.do("many", count=2)
        talk.reference.do("close", reason="enough of it", drain=0)
        with gevent.Timeout(PATIENCE):
            gevent.wait([talk.ours.peer])
        assert talk.ours.frames("rx", "goaway") == []
        (reason,) = talk.ours.closes
        assert (reason.code, reason.reason, reason.was_clean, reason.will_retry) == (1000, "enough of it", True, False)


@by_codec
@pytest.mark.parametrize("role", ROLES)
def test_the_death_of_the_reference(role: str, codec_name: str) -> None:
    with ROLES[role](codec_name) as talk:
        stream = talk.ours.peer.open({"do": "gate", "name": "never"}, end=True)
        talk.ours.peer.ping(PATIENCE)
        talk.reference.kill()
        with gevent.Timeout(PATIENCE), pytest.raises(ConnectionLost):
            stream.result()
        gevent.wait([talk.ours.peer], timeout=PATIENCE)
        (reason,) = talk.ours.closes
        assert (reason.code, reason.was_clean, reason.will_retry) == (1006, False, False)


@by_codec
def test_our_hello_is_taken_by_the_reference(codec_name: str) -> None:
    headers = {"token-free": "yes"}
    with ours_dials(codec_name, hello=HELLO, hello_headers=headers) as talk:
        assert talk.ours.peer.is_open
        assert together((talk.ours.many, 2))
        opened = talk.reference.do("facts")["opened"]
        assert [entry["do"] for entry in opened] == ["hello", "echo", "echo"]
        assert opened[0]["headers"] == headers


@by_codec
def test_the_references_hello_is_taken_by_us(codec_name: str) -> None:
    with reference_dials(codec_name, hello=HELLO, hello_headers={"v": 2}) as talk:
        assert talk.reference.do("many", count=2)
        first, *_ = talk.ours.frames("rx")
        assert first == Frame("open", stream=1, payload=HELLO, headers={"v": 2}, end=True)
        answer, *_ = talk.ours.frames("tx")
        assert answer == Frame("data", stream=1, end=True)
        assert [entry["do"] for entry in talk.ours.opened] == ["hello", "echo", "echo"]
        talk.ours.check_wire()


@pytest.mark.parametrize("mine,other", [("json", "msgpack"), ("msgpack", "json")])
def test_our_dialer_with_a_codec_that_the_reference_does_not_speak(mine: str, other: str) -> None:
    with reference_server(other) as (_reference, port), pytest.raises(CodecMismatch, match=mine) as caught:
        dial(Worker(mine), port)
    assert "MUXWS_CODEC" in str(caught.value)


@pytest.mark.parametrize("mine,other", [("json", "msgpack"), ("msgpack", "json")])
def test_our_acceptor_with_a_codec_that_the_reference_does_not_speak(
    mine: str, other: str, caplog: pytest.LogCaptureFixture
) -> None:
    worker = Worker(mine)
    with ours_serves(worker) as url, reference_client(other) as reference:
        with pytest.raises(ReferenceFailed, match="CodecMismatch"):
            reference.do("dial", url=url)
        assert worker.peer is None
    (record,) = [record for record in caplog.records if f"muxws.v1.{other}" in record.getMessage()]
    assert mine in record.getMessage()
    assert "MUXWS_CODEC" in record.getMessage()
