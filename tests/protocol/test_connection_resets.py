"""Resets: what a receiver makes of them, what they replace when sent, and that they always can be (PROTOCOL §3, §6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from muxws_green.codecs.json import JsonCodec
from muxws_green.errors import RemoteError, ResetCode, StreamRefused, StreamReset, StreamTimeout
from muxws_green.protocol.frames import Frame
from muxws_green.protocol.sending import MAX_REASON_BYTES
from muxws_green.protocol.states import StreamState
from tests.protocol.cores import MSGPACK, End, audit

# Received


@pytest.mark.parametrize(
    "code,expected",
    [
        (0, StreamReset),
        (1, StreamReset),
        (2, RemoteError),
        (3, StreamReset),
        (4, StreamRefused),
        (5, StreamReset),
        (6, StreamTimeout),
        (7, StreamReset),
        (8, StreamReset),
        (9, StreamReset),
        (-1, StreamReset),
        (2**40, StreamReset),
    ],
)
def test_the_code_decides_the_error(end: End, code: int, expected: type[StreamReset]):
    errors: list[StreamReset] = []
    end.recorder.reactions["failed"] = lambda _live, error: errors.append(error)
    live = end.accept()
    end.hear("reset", live.id, code=code, reason="because")
    (error,) = errors
    assert type(error) is expected
    assert (error.code, error.reason, error.stream_id) == (code, "because", live.id)
    assert isinstance(error.code, ResetCode) is (code in list(ResetCode))
    assert live.state is StreamState.CLOSED
    assert end.sent() == []
    audit(end.core)


def test_a_reset_without_code_counts_as_0_and_its_payload_is_the_error_object(end: End):
    errors: list[Any] = []
    end.recorder.reactions["failed"] = lambda _live, error: errors.append(error)
    end.accept(1), end.accept(2), end.accept(3)
    end.hear("reset", end.theirs(1))
    end.hear("reset", end.theirs(2), code=2, payload={"type": "KeyError", "message": "x"})
    end.hear("reset", end.theirs(3), code=2)
    assert errors[0].code is ResetCode.NO_ERROR
    assert errors[1].payload == {"type": "KeyError", "message": "x"}
    assert errors[2].payload is None


def test_the_first_fragment_of_a_reset_closes_and_the_rest_is_late(end: End):
    live = end.accept()
    pieces = end.pieces("reset", live.id, {"type": "X"}, 3, code=2)
    for piece in pieces:
        piece["code"] = 2
        end.hear(**piece)
    assert [call for call in end.told if call[0] == "failed"] == [
        ("failed", live.id, RemoteError, ResetCode.APPLICATION_ERROR)
    ]
    assert end.core.late_frames == 2
    audit(end.core)


def test_a_reset_within_a_payload_drops_what_was_collected(end: End):
    live = end.accept()
    end.hear(**end.pieces("data", live.id, "x" * 100)[0])
    end.hear("reset", live.id, code=1, fragment=b"x" if end.codec.binary else "x", more=True)
    assert live.state is StreamState.CLOSED
    audit(end.core)


def test_a_reset_takes_back_what_is_queued_for_the_stream(make: Callable[..., End]):
    end = make(cap=300)
    live, other = end.accept(1), end.accept(2)
    end.send(live, "x" * 1_000)
    end.send(live, "y")
    end.send(other, "z")
    end.hear("reset", live.id, code=1)
    assert end.sent() == [Frame("data", other.id, payload="z")]
    audit(end.core)


def test_a_reset_that_comes_after_the_end_still_stops_a_big_answer(make: Callable[..., End]):
    end = make(cap=300)
    live = end.accept(end=True)
    end.send(live, "x" * 3_000, end=True)
    assert live.state is StreamState.CLOSED
    end.batch()
    end.hear("reset", live.id, code=1)
    assert end.sent() == []
    assert end.core.late_frames == 1
    audit(end.core)


# Sent


def test_a_reset_that_is_asked_for_replaces_what_is_queued(make: Callable[..., End]):
    end = make(cap=300)
    live = end.accept()
    end.send(live, "x" * 1_000)
    end.send(live, "y")
    end.batch()
    end.core.reset(live, ResetCode.CANCELLED, "enough", asked=True)
    assert end.sent() == [Frame("reset", live.id, code=1, reason="enough")]
    assert live.state is StreamState.CLOSED
    audit(end.core)


def test_a_reset_that_reports_goes_behind_what_is_queued(make: Callable[..., End]):
    end = make(cap=300)
    live = end.accept()
    end.send(live, "x" * 1_000)
    end.send(live, "y")
    end.core.reset(live, ResetCode.APPLICATION_ERROR, "failed", asked=False)
    *before, last = end.sent()
    assert last == Frame("reset", live.id, code=2, reason="failed")
    assert before[-1] == Frame("data", live.id, payload="y")
    assert len(before) > 4
    audit(end.core)


@pytest.mark.parametrize("size", [1, 1_000])
def test_an_open_of_which_nothing_has_left_stays_before_its_reset(make: Callable[..., End], size: int):
    end = make(cap=300)
    live = end.open("x" * size)
    end.send(live, "never")
    later = end.open("later")
    end.core.reset(live, ResetCode.CANCELLED, None, asked=True)
    first, *rest = end.sent()
    assert (first.type, first.stream, first.more) == ("open", live.id, size > 300)
    assert rest == [Frame("open", later.id, payload="later"), Frame("reset", live.id, code=1)]
    audit(end.core)


def test_the_rest_of_an_open_under_way_is_replaced(make: Callable[..., End]):
    end = make(cap=300)
    live = end.open("x" * 1_000)
    end.batch()
    end.core.reset(live, ResetCode.CANCELLED, None, asked=True)
    assert end.sent() == [Frame("reset", live.id, code=1)]


def test_a_remote_makes_sense_of_an_open_that_was_reset_before_it_left(make: Callable[..., End]):
    end = make(cap=300)
    other = End(dialer=not end.dialer, codec=end.codec, cap=300)
    live = end.open("x" * 1_000)
    end.core.reset(live, ResetCode.CANCELLED, None, asked=True)
    while end.core.lanes:
        for message in end.core.take_batch():
            other.hear_message(message)
    assert other.told == [("opening", live.id, None), ("failed", live.id, StreamReset, ResetCode.CANCELLED)]
    audit(other.core)


@pytest.mark.parametrize("asked", [True, False])
def test_resetting_a_closed_stream_is_nothing(end: End, asked: bool):
    live = end.accept(end=True)
    end.send(live, "answer", end=True)
    end.core.reset(live, ResetCode.CANCELLED, "late", asked=asked)
    assert end.sent() == [Frame("data", live.id, payload="answer", end=True)]


def test_a_reason_is_cut_on_a_character(end: End):
    live = end.accept()
    end.core.reset(live, ResetCode.CANCELLED, "x" + "é" * 1_000, asked=True)
    (frame,) = end.sent()
    assert frame.reason == "x" + "é" * 499
    assert len(frame.reason.encode()) == MAX_REASON_BYTES - 1


def test_a_reason_that_utf8_cannot_carry_is_sent_all_the_same(end: End):
    live = end.accept()
    end.core.reset(live, ResetCode.CANCELLED, "half \ud83d", asked=True)
    assert end.sent() == [Frame("reset", live.id, code=1, reason="half ?")]


def test_an_error_object_rides_beside(end: End):
    live = end.accept()
    end.core.reset(live, ResetCode.APPLICATION_ERROR, "x", asked=False, payload={"type": "X", "message": "x"})
    end.core.reset(end.accept(2), ResetCode.APPLICATION_ERROR, None, asked=False, payload=None)
    assert end.sent() == [
        Frame("reset", live.id, code=2, reason="x", payload={"type": "X", "message": "x"}),
        Frame("reset", end.theirs(2), code=2, payload=None),
    ]


class Odd:
    """Nothing that a codec knows."""


@pytest.mark.parametrize("payload", [Odd(), {"deep": [Odd()]}, "\ud83d", 1j, {Odd(): 1}])
def test_an_error_object_that_cannot_be_encoded_is_left_out_and_reported(end: End, payload: Any):
    live = end.accept()
    end.recorder.calls.clear()
    end.core.reset(live, ResetCode.APPLICATION_ERROR, "x", asked=False, payload=payload)
    assert end.sent() == [Frame("reset", live.id, code=2, reason="x")]
    ((name, text),) = end.told
    assert name == "report"
    assert "left out of its reset" in text


def test_an_error_object_that_does_not_fit_is_left_out(end: End):
    live = end.accept()
    end.core.reset(live, ResetCode.APPLICATION_ERROR, "r" * 1_000, asked=False, payload="x" * 64_900)
    assert end.sent() == [Frame("reset", live.id, code=2, reason="r" * 1_000)]
    live = end.accept(2)
    end.core.reset(live, ResetCode.APPLICATION_ERROR, "r" * 100, asked=False, payload="x" * 64_900)
    (frame,) = end.sent()
    assert frame.payload == "x" * 64_900


def test_where_not_even_the_reason_fits_the_code_is_enough(make: Callable[..., End]):
    end = make(cap=200)
    live = end.accept()
    end.core.reset(live, ResetCode.APPLICATION_ERROR, "r" * 1_000, asked=False, payload="x" * 1_000)
    assert end.sent() == [Frame("reset", live.id, code=2)]


# A codec of the application's that fails in mid-payload


class Failing(JsonCodec):
    """Fails where it is told to."""

    broken = False

    def wrap_fragment(self, *arguments: Any, **options: Any) -> bytes:
        if self.broken:
            raise KeyError("fragment")
        return super().wrap_fragment(*arguments, **options)


@pytest.mark.parametrize("dialer", [False, True])
def test_a_fragment_that_cannot_be_built_costs_its_stream(dialer: bool):
    end = End(codec=Failing(), cap=300, dialer=dialer)
    errors: list[StreamReset] = []
    end.recorder.reactions["failed"] = lambda _live, error: errors.append(error)
    live, other = end.open(None), end.open(None)
    end.sent()
    end.send(live, "x" * 1_000)
    end.send(live, "behind")
    end.batch()
    end.codec.broken = True
    end.send(other, "whole")
    assert end.batch() == [Frame("data", other.id, payload="whole")]
    assert end.batch() == [
        Frame("reset", live.id, code=8, reason="a fragment could not be encoded: KeyError"),
    ]
    (error,) = errors
    assert error.code is ResetCode.INTERNAL_ERROR
    assert isinstance(error.__cause__, KeyError)
    assert live.state is StreamState.CLOSED
    assert other.state is StreamState.OPEN
    audit(end.core)


def test_the_batch_that_only_fails_a_stream_brings_the_reset_for_it():
    # A writer that got nothing would go to sleep over it.
    end = End(codec=Failing(), cap=300)
    live = end.accept()
    end.send(live, "x" * 1_000)
    end.batch()
    end.codec.broken = True
    assert [frame.type for frame in end.batch()] == ["reset"]


def test_a_fragment_that_cannot_be_built_for_a_stream_that_has_closed_here_is_told_to_the_remote():
    end = End(codec=Failing(), cap=300)
    live = end.accept(end=True)
    end.send(live, "x" * 1_000, end=True)
    end.batch()
    end.recorder.calls.clear()
    end.codec.broken = True
    assert end.batch() == [Frame("reset", live.id, code=8, reason="a fragment could not be encoded: KeyError")]
    assert end.told == [("report", "a fragment could not be encoded: KeyError")]
    audit(end.core)


def test_a_reset_behind_a_fragment_that_cannot_be_built_is_replaced():
    end = End(codec=Failing(), cap=300)
    live = end.accept()
    end.send(live, "x" * 1_000)
    end.core.reset(live, ResetCode.APPLICATION_ERROR, "x", asked=False)
    end.batch()
    end.codec.broken = True
    assert [(frame.type, frame.code) for frame in end.sent()] == [("reset", 8)]
    audit(end.core)


def test_when_a_failure_is_answered_by_dying_nothing_is_queued_any_more():
    end = End(codec=Failing(), cap=300)
    for ordinal in (1, 2):
        end.send(end.accept(ordinal), "x" * 1_000)
    end.batch()
    end.codec.broken = True
    end.recorder.reactions["failed"] = lambda _live, _error: end.core.die()
    assert end.batch() == []
    assert not end.core.lanes
    audit(end.core)


def test_msgpack_error_objects_may_hold_bytes():
    end = End(codec=MSGPACK)
    live = end.accept()
    end.core.reset(live, ResetCode.APPLICATION_ERROR, None, asked=False, payload=b"\xff")
    assert end.sent() == [Frame("reset", live.id, code=2, payload=b"\xff")]
