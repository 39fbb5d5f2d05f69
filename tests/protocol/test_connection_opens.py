"""Opening streams, from either end (PROTOCOL §6)."""

from __future__ import annotations

from typing import Any

import pytest

from muxws_green.codecs.json import JsonCodec
from muxws_green.errors import ConnectionGoingAway, ConnectionLost, ProtocolError, ResetCode, StreamClosed, StreamReset
from muxws_green.protocol.connection import Violation
from muxws_green.protocol.frames import Frame
from muxws_green.protocol.sending import MAX_STREAM_ID
from muxws_green.protocol.states import StreamState
from tests.protocol.cores import End, audit

# The remote opens


def test_an_open_is_told_in_two_steps(end: End):
    live = end.accept(value={"q": 1}, headers={"a": 1})
    assert end.told == [("opening", live.id, {"a": 1}), ("opened", live.id, {"q": 1})]
    assert live.state is StreamState.OPEN
    assert not live.local


def test_an_open_with_end_ends_that_side(end: End):
    live = end.accept(value=1, end=True, trailers={"t": 1})
    assert end.told == [("opening", live.id, None), ("opened", live.id, 1), ("ended", live.id, {"t": 1})]
    assert live.state is StreamState.HALF_CLOSED_REMOTE


@pytest.mark.parametrize("fields", [{}, {"payload": None}], ids=["absent", "null"])
def test_an_open_without_payload_hands_over_none(end: End, fields: dict[str, Any]):
    end.hear("open", end.theirs(), **fields)
    assert end.told[-1] == ("opened", end.theirs(), None)


def test_ids_may_be_left_out_but_only_grow(end: End):
    for ordinal in (1, 2, 7):
        end.accept(ordinal)
    for ordinal in (7, 6, 3, 1):
        with pytest.raises(Violation, match="not above the highest"):
            end.hear("open", end.theirs(ordinal))
    assert len(end.core.streams) == 3


def test_the_mark_outlives_its_stream(end: End):
    end.accept(4)
    end.hear("reset", end.theirs(4), code=1)
    with pytest.raises(Violation, match="not above the highest"):
        end.hear("open", end.theirs(4))


@pytest.mark.parametrize("ordinal", [1, 5])
def test_the_remote_cannot_open_ids_of_ours(end: End, ordinal: int):
    end.open(None)
    with pytest.raises(Violation, match="not an id that the remote may open") as caught:
        end.hear("open", end.ours(ordinal))
    assert caught.value.close_code == 1002


@pytest.mark.parametrize("stream", [0, 0.0])
def test_nobody_can_open_stream_0(end: End, stream: float):
    with pytest.raises(Violation):
        end.hear("open", stream)  # type: ignore[arg-type]


def test_the_last_id_is_an_id_and_there_is_none_behind_it(end: End):
    last = MAX_STREAM_ID if not end.dialer else MAX_STREAM_ID - 1
    end.hear("open", last)
    assert end.told[-1] == ("opened", last, None)
    with pytest.raises(Violation):
        end.hear("open", last + 2)


@pytest.mark.parametrize("huge", [1e300, float(2**64)])
def test_a_number_that_no_id_can_be_is_refused_before_it_is_answered(end: End, huge: float):
    with pytest.raises(Violation):
        end.hear("open", huge)  # type: ignore[arg-type]
    end.hear("ping", nonce="alive")
    assert end.sent() == [Frame("pong", nonce="alive")]


@pytest.mark.parametrize("kind", ["open", "data", "reset"])
@pytest.mark.parametrize("fields", [{}, {"stream": None}], ids=["absent", "null"])
def test_a_stream_frame_without_a_stream_ends_the_connection(end: End, kind: str, fields: dict[str, Any]):
    with pytest.raises(Violation, match="without a stream id"):
        end.hear(kind, **fields)


def test_an_integral_float_is_an_id(end: End):
    end.hear("open", float(end.theirs()), payload=1)  # type: ignore[arg-type]
    assert end.core.streams[end.theirs()].id == end.theirs()
    assert type(end.core.streams[end.theirs()].id) is int


# In fragments


def test_an_open_in_fragments_is_opening_with_the_first_and_opened_with_the_last(end: End):
    stream = end.theirs()
    pieces = end.pieces("open", stream, "x" * 100, 3, headers={"a": 1}, end=True, trailers={"t": 1})
    end.hear(**pieces[0])
    assert end.told == [("opening", stream, {"a": 1})]
    assert end.core.streams[stream].state is StreamState.OPEN
    end.hear(**pieces[1])
    audit(end.core)
    assert end.told == []
    end.hear(**pieces[2])
    assert end.told == [("opened", stream, "x" * 100), ("ended", stream, {"t": 1})]
    assert end.core.streams[stream].state is StreamState.HALF_CLOSED_REMOTE
    audit(end.core)


def test_one_fragment_may_be_the_whole_open(end: End):
    end.hear_pieces("open", end.theirs(), [1], 1)
    assert end.told == [("opening", end.theirs(), None), ("opened", end.theirs(), [1])]


def test_an_end_beside_more_is_not_the_end(end: End):
    first, last = end.pieces("open", end.theirs(), "x")
    end.hear(**first, end=True)
    end.hear(**last)
    assert end.told == [("opening", end.theirs(), None), ("opened", end.theirs(), "x")]
    assert end.core.streams[end.theirs()].state is StreamState.OPEN


def test_opens_in_fragments_may_interleave_with_each_other_and_with_whole_frames(end: End):
    one, two = end.pieces("open", end.theirs(1), "one"), end.pieces("open", end.theirs(2), "two")
    for piece in (one[0], two[0]):
        end.hear(**piece)
    end.accept(3, "three")
    for piece in (two[1], one[1]):
        end.hear(**piece)
    assert [call for call in end.told if call[0] == "opened"] == [
        ("opened", end.theirs(3), "three"),
        ("opened", end.theirs(2), "two"),
        ("opened", end.theirs(1), "one"),
    ]


def assert_violated(end: End, stream: int, reason: str) -> None:
    (frame,) = end.sent()
    assert (frame.type, frame.stream, frame.code) == ("reset", stream, ResetCode.PROTOCOL_ERROR)
    assert reason in (frame.reason or "")
    assert end.told[-1] == ("failed", stream, StreamReset, ResetCode.PROTOCOL_ERROR)
    assert stream not in end.core.streams
    audit(end.core)
    # Everybody else goes on.
    end.hear("ping", nonce="n")
    assert end.sent() == [Frame("pong", nonce="n")]


def test_headers_on_a_later_fragment_of_an_open_cost_the_stream(end: End):
    first, last = end.pieces("open", end.theirs(), "x", headers={"a": 1})
    end.hear(**first)
    end.hear(**last, headers={"a": 2})
    assert_violated(end, end.theirs(), "headers")


@pytest.mark.parametrize("fields", [{"payload": 1}, {"end": True}, {}], ids=["payload", "end", "nothing"])
def test_a_whole_frame_within_an_open_costs_the_stream(end: End, fields: dict[str, Any]):
    end.hear(**end.pieces("open", end.theirs(), "x")[0])
    end.hear("data", end.theirs(), **fields)
    assert_violated(end, end.theirs(), "whole frame")


def test_a_data_fragment_within_an_open_costs_the_stream(end: End):
    end.hear(**end.pieces("open", end.theirs(), "x")[0])
    end.hear(**end.pieces("data", end.theirs(), "x")[0])
    assert_violated(end, end.theirs(), "another type")


def test_an_open_fragment_within_a_data_payload_costs_the_stream(end: End):
    end.accept()
    end.hear(**end.pieces("data", end.theirs(), "x")[0])
    end.hear(**end.pieces("open", end.theirs(), "x")[1])
    assert_violated(end, end.theirs(), "another type")


def test_an_open_fragment_on_a_stream_of_ours_ends_the_connection_even_within_a_payload(end: End):
    live = end.open(None)
    end.hear(**end.pieces("data", live.id, "x")[0])
    with pytest.raises(Violation):
        end.hear(**end.pieces("open", live.id, "x")[1])


def test_a_second_open_ends_the_connection_even_while_the_first_is_under_way(end: End):
    end.hear(**end.pieces("open", end.theirs(), "x")[0])
    with pytest.raises(Violation):
        end.hear("open", end.theirs(), payload=1)


def test_late_pieces_of_an_open_that_was_reset_here_are_ignored(end: End):
    first, *rest = end.pieces("open", end.theirs(), "x" * 100, 4, end=True)
    end.hear(**first)
    end.core.reset(end.core.streams[end.theirs()], ResetCode.CANCELLED, None, asked=True)
    end.sent()
    assert end.told == [("opening", end.theirs(), None)]
    for piece in rest:
        end.hear(**piece)
    assert (end.told, end.sent(), end.core.streams) == ([], [], {})
    assert end.core.late_frames == 3
    audit(end.core)


def test_an_open_in_fragments_may_be_reset_by_its_opener(end: End):
    end.hear(**end.pieces("open", end.theirs(), "x")[0])
    end.hear("reset", end.theirs(), code=1)
    assert end.told == [("opening", end.theirs(), None), ("failed", end.theirs(), StreamReset, ResetCode.CANCELLED)]
    audit(end.core)


# This end opens


def test_ids_grow_by_two_and_leave_in_their_order(end: End):
    ids = [end.open(number, end=bool(number % 2), headers={"n": number} if number else None).id for number in range(5)]
    assert ids == [end.ours(number) for number in range(1, 6)]
    frames = end.sent()
    assert [frame.stream for frame in frames] == ids
    assert frames[0] == Frame("open", ids[0], payload=0)
    assert frames[3] == Frame("open", ids[3], payload=3, end=True, headers={"n": 3})
    assert end.core.streams[ids[0]].state is StreamState.OPEN
    assert end.core.streams[ids[1]].state is StreamState.HALF_CLOSED_LOCAL
    audit(end.core)


def test_none_is_sent_as_null(end: End):
    live = end.open(None)
    assert end.sent() == [Frame("open", live.id, payload=None)]


@pytest.mark.parametrize("headers", [{"a": object()}, {"a": "x" * 70_000}], ids=["unencodable", "over the cap"])
def test_an_open_that_cannot_be_packed_spends_no_id(end: End, headers: dict[str, Any]):
    with pytest.raises((TypeError, ProtocolError)):
        end.open("x", headers=headers)
    assert end.core.streams == {}
    assert end.open("x").id == end.ours(1)
    audit(end.core)


def test_the_last_id_is_taken_and_then_the_peer_is_going_away(end: End):
    last = MAX_STREAM_ID if end.dialer else MAX_STREAM_ID - 1
    end.core._next_id = last
    assert end.core._next_id <= MAX_STREAM_ID
    assert end.open("x").id == last
    assert end.core._next_id > MAX_STREAM_ID
    with pytest.raises(ConnectionGoingAway, match="used up"):
        end.open("x")
    assert [frame.stream for frame in end.sent()] == [last]
    end.hear("data", last, payload="answer")
    assert end.told[-1] == ("payload", last, "answer")


def test_nothing_opens_on_a_dead_connection(end: End):
    end.core.die()
    with pytest.raises(ConnectionLost):
        end.open("x")


class Switching(JsonCodec):
    """Lets somebody else in while it builds an envelope."""

    meanwhile: Any = None

    def wrap(self, *arguments: Any, **options: Any) -> bytes:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return super().wrap(*arguments, **options)


def test_ids_stay_in_order_when_a_codec_lets_somebody_else_open_meanwhile():
    end = End(codec=Switching())
    inner: list[int] = []
    end.codec.meanwhile = lambda: inner.append(end.open("inner").id)
    outer = end.open("outer").id
    assert [*inner, outer] == [2, 4]
    assert [frame.payload for frame in end.sent()] == ["inner", "outer"]


def test_no_open_slips_past_a_goaway_that_comes_meanwhile():
    end = End(codec=Switching())
    end.codec.meanwhile = lambda: end.core.goaway(0, None)
    with pytest.raises(ConnectionGoingAway):
        end.open("x")
    assert [frame.type for frame in end.sent()] == ["goaway"]


def test_nothing_is_sent_on_a_stream_that_is_reset_meanwhile():
    end = End(codec=Switching())
    live = end.open("x")
    end.sent()
    end.codec.meanwhile = lambda: end.hear("reset", live.id, code=1)
    with pytest.raises(StreamClosed):
        end.send(live, "late")
    assert end.sent() == []
