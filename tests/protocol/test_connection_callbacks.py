"""A sink that calls the machine back, from within whatever it is told, corrupts nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from muxws_green.errors import ResetCode
from muxws_green.protocol.frames import Frame
from muxws_green.protocol.states import StreamState
from muxws_green.protocol.streams import LiveStream
from tests.protocol.cores import End, audit

Action = Callable[[End, LiveStream], Any]


def reset(end: End, live: LiveStream) -> None:
    end.core.reset(live, ResetCode.CANCELLED, None, asked=True)


def report(end: End, live: LiveStream) -> None:
    end.core.reset(live, ResetCode.APPLICATION_ERROR, None, asked=False)


def finish(end: End, live: LiveStream) -> None:
    if live.state in (StreamState.OPEN, StreamState.HALF_CLOSED_REMOTE):
        end.send(live, "answer", end=True)


def talk(end: End, live: LiveStream) -> None:
    if live.state in (StreamState.OPEN, StreamState.HALF_CLOSED_REMOTE):
        end.send(live, "x" * 1_000)


def open_another(end: End, _live: LiveStream) -> None:
    if not (end.core.dead or end.core.goaway_sent or end.core.goaway_received):
        end.open("another")


def reset_all(end: End, _live: LiveStream) -> None:
    for live in list(end.core.streams.values()):
        reset(end, live)


def say_goodbye(end: End, _live: LiveStream) -> None:
    end.core.goaway(0, None)


def die(end: End, _live: LiveStream) -> None:
    end.core.die()


ACTIONS: list[Action] = [reset, report, finish, talk, open_another, reset_all, say_goodbye, die]


def feed_everything(end: End) -> None:
    """One of each thing that a remote can send, on streams of both ends."""
    own = [number for number in (end.ours(1), end.ours(2), end.ours(3)) if number in end.core.streams]
    end.hear("open", end.theirs(1), payload=1, headers={"h": 1})
    end.hear("open", end.theirs(2), payload=1, end=True, trailers={"t": 1})
    for piece in end.pieces("open", end.theirs(3), "x" * 50, 3, end=True):
        end.hear(**piece)
    end.hear("open", end.theirs(4), payload="x" * 2_000)
    for piece in end.pieces("open", end.theirs(5), "x" * 1_200, 3):
        end.hear(**piece)
    for stream in (end.theirs(1), *own):
        for piece in end.pieces("data", stream, "y", 2):
            end.hear(**piece)
        end.hear("data", stream, payload=2)
        end.hear("data", stream, payload=3, end=True, trailers={"t": 1})
        end.hear("data", stream, payload="too late")
    end.hear("open", end.theirs(6))
    end.hear("data", end.theirs(6), fragment=b"\xc1" if end.codec.binary else "[")
    end.hear("open", end.theirs(7))
    end.hear("reset", end.theirs(7), code=2)
    end.hear("ping", nonce="n")
    end.hear("goaway", code=0, last_stream=end.ours(1))
    end.hear("data", end.theirs(1), payload=1)


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.__name__)
@pytest.mark.parametrize("call", ["opening", "opened", "answered", "payload", "ended", "failed", "queued", "goaway"])
def test_calling_back_corrupts_nothing(make: Callable[..., End], call: str, action: Action):
    end = make(cap=500, max_payload=1_000, limit=6)
    for _ in range(3):
        end.open("x" * 600)
    first = next(iter(end.core.streams.values()))

    def react(*arguments: Any) -> None:
        live = arguments[0] if arguments and isinstance(arguments[0], LiveStream) else first
        action(end, live)
        audit(end.core)

    end.recorder.reactions[call] = react
    end.batch()
    feed_everything(end)
    audit(end.core)
    # Nobody was told of a stream again that had closed.
    over: set[int] = set()
    for name, *rest in end.told:
        if name in ("opening", "opened", "answered", "payload", "ended", "failed"):
            assert rest[0] not in over
        if name == "failed":
            over.add(rest[0])
    end.sent()
    audit(end.core)
    assert end.core.lanes.queued_bytes == 0
    end.core.die()
    audit(end.core)
    assert end.core.lanes.queued_bytes == end.core._assembling_bytes == end.core._remote_streams == 0


@pytest.mark.parametrize("call", ["opening", "answered", "payload"])
def test_what_comes_behind_a_stream_that_the_sink_has_closed_is_not_told(end: End, call: str):
    end.recorder.reactions[call] = lambda live, *_: reset(end, live)
    live = end.open(None)
    end.batch()
    if call == "opening":
        end.hear("open", end.theirs(), payload=1, end=True)
        stream = end.theirs()
    else:
        end.hear("data", live.id, payload=1, end=True)
        stream = live.id
    assert end.told[-1][0] == call
    assert end.sent() == [Frame("reset", stream, code=1)]
    audit(end.core)


@pytest.mark.parametrize("action", [reset, report, finish], ids=lambda action: action.__name__)
def test_a_stream_that_is_closed_from_within_its_opened_is_told_nothing_more(end: End, action: Action):
    end.recorder.reactions["opened"] = lambda live, _payload: action(end, live)
    end.hear("open", end.theirs(), payload=1, end=True)
    assert [call[0] for call in end.told] == ["opening", "opened"]
    assert end.core.streams == {}
    assert len(end.sent()) == 1
    audit(end.core)


def test_a_stream_answered_and_ended_from_within_its_opening(end: End):
    end.recorder.reactions["opening"] = lambda live, _headers: end.send(live, "early", end=True)
    live = end.accept(1, headers={"h": 1})
    assert live.state is StreamState.HALF_CLOSED_LOCAL
    end.hear("data", live.id, end=True)
    assert live.id not in end.core.streams
    # Where the remote had ended too, nobody is left to work on it.
    end.hear("open", end.theirs(2), payload=1, end=True)
    assert [call[0] for call in end.told] == ["opening", "opened", "ended", "opening"]
    assert end.core.streams == {}
    audit(end.core)


def test_an_opening_in_fragments_that_was_answered_meanwhile_closes_with_its_last(end: End):
    end.recorder.reactions["opening"] = lambda live, _headers: end.send(live, "early", end=True)
    for piece in end.pieces("open", end.theirs(), "x", 3, end=True, trailers={"t": 1}):
        end.hear(**piece)
    assert end.told == [("opening", end.theirs(), None), ("ended", end.theirs(), {"t": 1})]
    assert end.core.streams == {}
    audit(end.core)


def test_ending_from_within_the_last_payload(end: End):
    end.recorder.reactions["payload"] = lambda live, *_: finish(end, live)
    live = end.accept()
    end.hear("data", live.id, payload=1, end=True)
    assert [call[0] for call in end.told] == ["opening", "opened", "payload", "ended"]
    assert live.state is StreamState.CLOSED
    audit(end.core)
