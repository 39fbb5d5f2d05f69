"""Ping, pong and goaway, and the death of the socket (PROTOCOL §7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from muxws_green.codecs.json import JsonCodec
from muxws_green.errors import ConnectionGoingAway, ResetCode, StreamRefused, StreamReset
from muxws_green.protocol.frames import Frame
from muxws_green.protocol.states import StreamState
from tests.protocol.cores import End, audit


@pytest.mark.parametrize("nonce", ["", "1", "é😀", "x" * 60_000])
def test_a_ping_is_answered_with_its_nonce(end: End, nonce: str):
    woken: list[None] = []
    end.recorder.reactions["queued"] = lambda: woken.append(None)
    end.hear("ping", nonce=nonce)
    assert len(woken) == 1
    assert end.sent() == [Frame("pong", nonce=nonce)]
    assert end.told == []


@pytest.mark.parametrize("fields", [{}, {"nonce": None}], ids=["absent", "null"])
def test_a_ping_without_nonce_is_reported_once_and_not_answered(end: End, fields: dict[str, Any]):
    for _ in range(3):
        end.hear("ping", **fields)
    assert end.told == [("report", "ignoring a ping without a nonce")]
    assert end.sent() == []


def test_a_ping_whose_nonce_no_message_can_carry_back_is_reported_once_and_not_answered():
    end = End()
    for _ in range(3):
        end.core.receive('{"type":"ping","nonce":"\\ud83d"}')
    assert end.told == [("report", "ignoring a ping whose nonce cannot be sent back")]
    assert end.sent() == []
    end.hear("ping", nonce="next")
    assert end.sent() == [Frame("pong", nonce="next")]


def test_pings_and_pongs_go_by_their_type_whatever_stream_they_name(end: End):
    live = end.accept()
    end.recorder.calls.clear()
    end.hear("ping", live.id, nonce="a", end=True, code=1)
    end.hear("pong", live.id, nonce="b", end=True, code=1)
    end.hear("ping", 0, nonce="c")
    assert end.sent() == [Frame("pong", nonce="a"), Frame("pong", nonce="c")]
    assert end.told == [("pong", "b")]
    assert live.state is StreamState.OPEN


def test_a_pong_without_nonce_is_nothing(end: End):
    end.hear("pong")
    assert (end.told, end.sent()) == ([], [])


def test_connection_level_frames_go_before_all_streams_in_their_own_order(end: End):
    end.open("x")
    end.core.ping("1")
    end.hear("ping", nonce="theirs")
    end.core.goaway(0, None)
    end.core.ping("2")
    assert [(frame.type, frame.nonce) for frame in end.sent()] == [
        ("ping", "1"),
        ("pong", "theirs"),
        ("goaway", None),
        ("ping", "2"),
        ("open", None),
    ]


# Goaway, sent


def test_a_goaway_names_the_highest_id_of_the_remote(end: End):
    end.accept(1)
    end.accept(4)
    end.open(None)
    end.core.goaway(0, "bye")
    assert end.batch()[0] == Frame("goaway", code=0, reason="bye", last_stream=end.theirs(4))
    assert end.core.goaway_sent


def test_a_goaway_of_a_connection_that_has_seen_nothing(end: End):
    end.core.goaway(0, None)
    assert end.sent() == [Frame("goaway", code=0, last_stream=0)]


def test_after_a_goaway_nothing_opens_and_opens_are_refused_while_the_rest_goes_on(end: End):
    live, own = end.accept(1), end.open(None)
    end.core.goaway(0, None)
    end.sent()
    with pytest.raises(ConnectionGoingAway):
        end.open(None)
    end.recorder.calls.clear()
    end.hear("open", end.theirs(2), payload=1)
    for piece in end.pieces("open", end.theirs(3), "x"):
        end.hear(**piece)
    assert [(frame.stream, frame.code) for frame in end.sent()] == [(end.theirs(2), 4), (end.theirs(3), 4)]
    assert end.told == []
    end.hear("data", live.id, payload="more", end=True)
    end.hear("data", own.id, payload="answer", end=True)
    end.send(live, "answer", end=True)
    assert end.sent() == [Frame("data", live.id, payload="answer", end=True)]
    assert [call[:2] for call in end.told] == [
        ("payload", live.id),
        ("ended", live.id),
        ("answered", own.id),
        ("payload", own.id),
        ("ended", own.id),
    ]


def test_an_orderly_goaway_is_said_once_and_a_fault_after_it_too(end: End):
    end.core.goaway(0, "bye")
    end.core.goaway(0, "bye bye")
    end.core.goaway(3, "broken")
    end.core.goaway(3, "broken again")
    end.core.goaway(0, "bye")
    assert [(frame.code, frame.reason) for frame in end.sent()] == [(0, "bye"), (3, "broken")]


def test_the_reason_of_a_goaway_is_cut_and_left_out_where_it_does_not_fit(make: Callable[..., End]):
    end = make()
    end.core.goaway(3, "é" * 1_000)
    assert end.sent()[0].reason == "é" * 500
    end = make(cap=200)
    end.core.goaway(3, "x" * 1_000)
    assert end.sent() == [Frame("goaway", code=3, last_stream=0)]


# Goaway, received


def test_streams_of_ours_above_the_last_fail_and_nothing_is_sent_for_them(end: End):
    lives = [end.open(number) for number in range(4)]
    theirs = end.accept(9)
    end.batch()
    end.send(lives[1], "keeps going")
    end.send(lives[2], "never")
    end.recorder.calls.clear()
    end.hear("goaway", code=0, last_stream=lives[1].id, reason="restart")
    assert end.told == [
        ("goaway", 0, "restart"),
        ("failed", lives[2].id, StreamRefused, ResetCode.REFUSED),
        ("failed", lives[3].id, StreamRefused, ResetCode.REFUSED),
    ]
    assert end.sent() == [Frame("data", lives[1].id, payload="keeps going")]
    assert {*end.core.streams} == {lives[0].id, lives[1].id, theirs.id}
    with pytest.raises(ConnectionGoingAway, match="another connection"):
        end.open(None)
    end.hear("data", lives[0].id, payload="answer", end=True)
    end.hear("reset", lives[3].id, code=4)
    assert end.told[0] == ("answered", lives[0].id, None)
    audit(end.core)


def test_opens_that_have_not_left_stay_here_after_a_goaway(end: End):
    end.open(1)
    end.batch()
    end.open(2)
    end.open("x" * 100_000)
    end.hear("goaway", code=0, last_stream=end.ours(1))
    assert end.sent() == []
    audit(end.core)


@pytest.mark.parametrize("fields", [{}, {"last_stream": None}], ids=["absent", "null"])
def test_a_goaway_without_last_stream_fails_nothing(end: End, fields: dict[str, Any]):
    live = end.open(None)
    end.hear("goaway", **fields)
    assert end.told == [("goaway", 0, None)]
    assert live.state is StreamState.OPEN
    with pytest.raises(ConnectionGoingAway):
        end.open(None)


def test_a_second_goaway_may_lower_the_bound(end: End):
    lives = [end.open(number) for number in range(3)]
    end.hear("goaway", code=0, last_stream=lives[1].id)
    end.hear("goaway", code=0, last_stream=0)
    assert [call[1] for call in end.told if call[0] == "failed"] == [lives[2].id, lives[0].id, lives[1].id]


def test_a_remote_that_goes_away_may_still_be_sent_to_and_may_still_send(end: End):
    theirs = end.accept(1)
    end.hear("goaway", code=0, last_stream=0)
    end.send(theirs, "still")
    assert end.sent() == [Frame("data", theirs.id, payload="still")]


def test_goaways_that_cross(end: End):
    own = end.open(None)
    end.core.goaway(0, None)
    end.hear("goaway", code=0, last_stream=own.id)
    assert own.state is StreamState.OPEN
    end.hear("data", own.id, payload="x", end=True)
    end.send(own, end=True)
    assert end.core.streams == {}


# Death


def test_death_closes_every_stream_and_drops_every_frame(end: End):
    lives = [end.open(None), end.accept(1), end.accept(2, end=True)]
    for live in lives:
        end.send(live, "x" * 100_000)
    end.hear(**end.pieces("data", lives[1].id, "x" * 100)[0])
    end.core.ping("1")
    end.recorder.calls.clear()
    assert end.core.die() == lives
    assert {live.state for live in lives} == {StreamState.CLOSED}
    assert end.told == []
    assert end.sent() == []
    assert end.core.streams == {}
    assert end.core.die() == []
    for live in lives:
        end.core.reset(live, ResetCode.CANCELLED, None, asked=True)
    assert end.sent() == []
    audit(end.core)


def test_the_handlers_of_a_dead_connection_may_end_later(end: End):
    live = end.accept()
    end.core.handler_started(live)
    end.core.die()
    audit(end.core, running=1)
    end.core.handler_ended(live)
    audit(end.core)


def test_a_goaway_can_be_said_after_everything_was_failed(end: End):
    end.accept()
    end.core.goaway(0, None)
    end.core.die()
    end.core.goaway(3, "broken")
    assert end.sent() == [Frame("goaway", code=3, reason="broken", last_stream=end.theirs())]


class Deaf(JsonCodec):
    """Cannot encode pongs."""

    def encode(self, frame: Frame) -> str:
        if frame.type == "pong":
            raise OverflowError("no")
        return super().encode(frame)


def test_a_pong_that_a_codec_refuses_costs_nothing():
    end = End(codec=Deaf())
    live = end.accept()
    end.hear("ping", nonce="n")
    end.hear("data", live.id, payload=1)
    assert end.told[-2:] == [("report", "ignoring a ping whose nonce cannot be sent back"), ("payload", live.id, 1)]
    assert StreamReset not in [part for call in end.told for part in call]
