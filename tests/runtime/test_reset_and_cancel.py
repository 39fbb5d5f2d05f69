"""Resets: what they replace, what they stay behind, and what may stand in them (PROTOCOL §6)."""

from __future__ import annotations

import pytest

from muxws_green import ProtocolError, ResetCode, StreamReset, StreamState
from muxws_green.codecs.msgpack import MsgpackCodec
from muxws_green.testing import settle
from tests.runtime.ends import PATIENCE, Gate, outcome


@pytest.fixture
def opened(ends):
    """Makes a stream that the near end has opened, and the far end of it, whose handler stands still."""

    def opened(**options):
        made, gate = ends(**options), Gate()
        made.far.on_stream(gate)
        stream = made.near.open()
        gate.reached()
        return made, stream, gate.stream

    return opened


def test_a_cancel_ends_both_directions_at_both_ends(opened):
    made, stream, far = opened()
    waits = [outcome(stream.receive), outcome(stream.closed.wait)]
    settle()
    stream.cancel("no longer wanted")
    assert stream.state is StreamState.CLOSED
    assert far.closed.wait(PATIENCE)
    for each in (stream, far):
        with pytest.raises(StreamReset, match="no longer wanted") as caught:
            each.receive()
        assert caught.value.code is ResetCode.CANCELLED
        assert caught.value.stream_id == stream.id
    assert isinstance(waits[0].get(timeout=PATIENCE), StreamReset)
    assert waits[1].get(timeout=PATIENCE)
    assert made.near.is_open
    assert made.far.is_open


@pytest.mark.parametrize("code", [0, 1, 2, 3, 4, 6, 7, 8])
def test_every_code_that_may_be_sent(opened, code):
    made, stream, far = opened()
    stream.reset(code, "why")
    settle()
    assert made.sent_of("reset") == [{"type": "reset", "stream": stream.id, "code": code, "reason": "why"}]
    assert far.state is StreamState.CLOSED


@pytest.mark.parametrize("code", [5, 9, 10, -1, True, 1.0, "1", None, ResetCode.CONNECTION_CLOSED, [], 2**40])
def test_codes_that_may_not_be_sent_raise_and_change_nothing(opened, code):
    made, stream, far = opened()
    with pytest.raises(ProtocolError, match="may be sent"):
        stream.reset(code)
    assert stream.state is StreamState.OPEN
    far.send("fine")
    assert stream.result(PATIENCE) == "fine"
    assert made.sent_of("reset") == []


class Text(str):
    def __str__(self):
        raise RuntimeError("no text")


@pytest.mark.parametrize("codec", ["json", MsgpackCodec()], ids=["json", "msgpack"])
@pytest.mark.parametrize(
    "reason, seen",
    [
        (None, None),
        ("", ""),
        ("x" * 5_000, "x" * 1_000),
        ("ü" * 999 + "x", "ü" * 500),
        ("\ud800 lone", "? lone"),
        ("nul \x00 and \n line", "nul \x00 and \n line"),
        (Text("a subclass"), "a subclass"),
    ],
)
def test_whatever_is_a_str_may_be_a_reason(opened, codec, reason, seen):
    _, stream, far = opened(codec=codec)
    stream.cancel(reason)
    assert far.closed.wait(PATIENCE)
    with pytest.raises(StreamReset) as caught:
        far.receive()
    assert (caught.value.reason or "") == (seen or "")


@pytest.mark.parametrize("reason", [7, b"bytes", ["list"], object()])
@pytest.mark.parametrize("call", ["cancel", "reset"])
def test_a_reason_that_is_no_str_raises_and_changes_nothing(opened, call, reason):
    made, stream, far = opened()
    with pytest.raises(TypeError, match="reason is a str"):
        stream.cancel(reason) if call == "cancel" else stream.reset(3, reason)
    assert stream.state is StreamState.OPEN
    far.send("fine")
    assert stream.result(PATIENCE) == "fine"
    assert made.sent_of("reset") == []


@pytest.mark.parametrize("how", ["reset", "ended", "lost"])
def test_a_closed_stream_is_not_reset(opened, how):
    made, stream, far = opened()
    if how == "reset":
        stream.cancel("first")
    elif how == "ended":
        stream.end()
        far.end()
        stream.closed.wait(PATIENCE)
    else:
        made.drop()
        stream.closed.wait(PATIENCE)
    before = len(made.sent_of("reset"))
    stream.cancel("second")
    stream.reset(ResetCode.PROTOCOL_ERROR, "third")
    settle()
    assert len(made.sent_of("reset")) <= max(before, how == "reset")


# What is queued on the lane


@pytest.fixture
def held_up(ends):
    """Makes a pair whose near end has a message on the line, which is stalled; whatever follows is queued."""

    def held_up(**options):
        made = ends(capacity_bytes=1, **options)
        made.near.notify("holds up the line")
        made.near.notify("and the writer")
        settle()
        made.near_transport.outgoing.stall()
        made.near.notify("travels")
        made.near.notify("waits in the writer")
        settle()
        return made

    return held_up


def frames_of(made, stream):
    made.near_transport.outgoing.resume()
    settle()
    return [frame["type"] for frame in made.sent if frame.get("stream") == stream.id]


def test_a_cancel_takes_the_place_of_what_is_queued(held_up):
    made = held_up()
    made.far.on_stream(Gate())
    stream = made.near.open("x" * 200_000)
    for _ in range(5):
        stream.send("x")
    stream.cancel()
    # An open of which nothing has left is kept: the remote would not know the id that a reset names.
    assert frames_of(made, stream) == ["open", "reset"]
    assert made.near.stats.queued_bytes == 0
    assert made.far.is_open


def test_a_cancel_keeps_no_frame_of_an_open_that_has_left(held_up):
    made = held_up()
    made.far.on_stream(Gate())
    made.near_transport.outgoing.resume()
    stream = made.near.open()
    settle()
    made.near_transport.outgoing.stall()
    made.near.notify("travels")
    made.near.notify("waits in the writer")
    settle()
    for _ in range(5):
        stream.send("x")
    stream.cancel()
    assert frames_of(made, stream) == ["open", "reset"]


def test_an_error_stays_behind_what_its_handler_has_sent(held_up):
    made = held_up()

    def handle(payload, stream):
        stream.send(1)
        stream.send("x" * 200_000)
        raise ValueError

    made.near.on_stream(handle)
    stream = made.far.open()
    settle()
    kinds = frames_of(made, stream)
    assert kinds[0] == "data"
    assert kinds.count("data") >= 4
    assert kinds[-1] == "reset"


def test_a_stream_that_is_opened_and_cancelled_in_one_step(ends):
    made, gate = ends(), Gate()
    made.far.on_stream(gate)
    stream = made.near.open("x")
    stream.cancel("at once")
    settle()
    assert frames_of(made, stream) == ["open", "reset"]
    assert not gate.entered.is_set()
    assert not made.far.streams
    assert made.near.is_open
    assert made.far.is_open


def test_a_reset_that_meets_a_reset(opened):
    made, stream, far = opened()
    made.near_transport.outgoing.stall()
    made.far_transport.outgoing.stall()
    stream.cancel("ours")
    far.cancel("theirs")
    settle()
    made.near_transport.outgoing.resume()
    made.far_transport.outgoing.resume()
    settle()
    with pytest.raises(StreamReset, match="ours"):
        stream.receive()
    with pytest.raises(StreamReset, match="theirs"):
        far.receive()
    assert made.near.is_open
    assert made.far.is_open
    assert (made.near.stats.late_frames, made.far.stats.late_frames) == (1, 1)
