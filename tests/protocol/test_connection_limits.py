"""What a remote can cost us: every size, count and answer has its bound (PROTOCOL §5, §6; DESIGN §5)."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from muxws_green.errors import ResetCode, StreamReset
from muxws_green.protocol.connection import MAX_QUEUED_PONGS, MAX_TOLD_GOAWAYS, Violation
from muxws_green.protocol.lanes import OVERDUE_BYTES
from muxws_green.protocol.sending import ENVELOPE_BYTES
from muxws_green.protocol.states import StreamState
from tests.protocol.cores import JSON, End, audit, pack

CAP = 300
LONG = "x" * CAP


@pytest.fixture
def small(make: Callable[..., End]) -> End:
    """An end whose messages hold 300 bytes."""
    return make(cap=CAP)


def assert_too_large(end: End, stream: int, reason: str = "over the cap") -> None:
    (frame,) = end.sent()
    assert (frame.type, frame.stream, frame.code) == ("reset", stream, ResetCode.PAYLOAD_TOO_LARGE)
    assert reason in (frame.reason or "")
    assert stream not in end.core.streams
    audit(end.core)


# Messages over the cap


def test_a_message_of_exactly_the_cap_is_taken(small: End):
    live = small.accept()
    size = CAP - len(pack(small.codec, {"type": "data", "stream": live.id, "payload": "x" * 260})) + 260
    small.hear("data", live.id, payload="x" * size)
    assert small.told[-1] == ("payload", live.id, "x" * size)
    small.hear("data", live.id, payload="x" * (size + 1))
    assert_too_large(small, live.id)


def test_the_cap_is_of_bytes():
    end = End(codec=JSON, cap=CAP)
    live = end.accept()
    end.hear("data", live.id, payload="é" * 120)
    assert end.told[-1] == ("payload", live.id, "é" * 120)
    end.hear("data", live.id, payload="é" * 140)
    assert_too_large(end, live.id)


@pytest.mark.parametrize(
    "fields", [{"payload": LONG}, {"payload": 1, "headers": {"x": LONG}}, {"reason": LONG}], ids=str
)
@pytest.mark.parametrize("local", [False, True], ids=["theirs", "ours"])
def test_over_the_cap_data_resets_its_stream(small: End, local: bool, fields: dict[str, Any]):
    live = small.open(None) if local else small.accept()
    small.sent()
    small.hear("data", live.id, **fields)
    assert small.told[-1] == ("failed", live.id, StreamReset, ResetCode.PAYLOAD_TOO_LARGE)
    assert_too_large(small, live.id)


def test_over_the_cap_data_is_refused_whatever_state_its_stream_is_in(small: End):
    live = small.accept(end=True)
    small.hear("data", live.id, payload=LONG)
    assert_too_large(small, live.id)


def test_an_over_the_cap_reset_resets_its_stream(small: End):
    live = small.accept()
    small.hear("reset", live.id, code=1, reason=LONG)
    assert small.told[-1] == ("failed", live.id, StreamReset, ResetCode.PAYLOAD_TOO_LARGE)
    assert_too_large(small, live.id)


def test_an_over_the_cap_open_is_answered_counts_for_the_mark_and_becomes_no_stream(small: End):
    small.hear("open", small.theirs(3), payload=LONG)
    assert small.told == []
    assert_too_large(small, small.theirs(3))
    # Below the mark now: late, or not above the highest.
    small.hear("data", small.theirs(3), payload=1)
    small.hear("reset", small.theirs(2), code=1)
    assert small.core.late_frames == 2
    with pytest.raises(Violation):
        small.hear("open", small.theirs(3))


def test_over_the_cap_opens_in_fragments(small: End):
    piece: Any = b"x" * CAP if small.codec.binary else LONG
    small.hear("open", small.theirs(1), fragment=piece, more=True)
    assert_too_large(small, small.theirs(1))
    small.hear("open", small.theirs(1), fragment=piece, more=True)
    assert small.sent() == []
    small.hear(**small.pieces("open", small.theirs(2), "x")[0])
    small.hear("open", small.theirs(2), fragment=piece)
    assert small.told[-1] == ("failed", small.theirs(2), StreamReset, ResetCode.PAYLOAD_TOO_LARGE)
    assert_too_large(small, small.theirs(2))


@pytest.mark.parametrize("kind", ["data", "reset"])
def test_over_the_cap_frames_without_a_live_stream_are_judged_by_the_mark(small: End, kind: str):
    live = small.accept()
    small.core.reset(live, ResetCode.CANCELLED, None, asked=True)
    small.sent()
    small.hear(kind, live.id, reason=LONG)
    small.hear(kind, 0, reason=LONG)
    assert small.sent() == []
    assert small.core.late_frames == 2
    for unseen in (small.theirs(2), small.ours(1)):
        with pytest.raises(Violation, match="never opened"):
            small.hear(kind, unseen, reason=LONG)


@pytest.mark.parametrize("piece", [False, True], ids=["whole", "piece"])
def test_over_the_cap_opens_are_judged_by_their_id(small: End, piece: bool):
    fragment: Any = b"x" * CAP if small.codec.binary else LONG
    fields = {"fragment": fragment, "more": True} if piece else {"payload": LONG}
    live, own = small.accept(5), small.open(None)
    for stream in (live.id, own.id, small.ours(7), 0):
        with pytest.raises(Violation):
            small.hear("open", stream, **fields)
    if piece:
        # Nor does a payload that the remote sends on a stream of ours make its `open` a continuation.
        small.hear(**small.pieces("data", own.id, "x")[0])
        with pytest.raises(Violation):
            small.hear("open", own.id, **fields)
    else:
        with pytest.raises(Violation):
            small.hear("open", small.theirs(3), **fields)


@pytest.mark.parametrize("kind", ["ping", "pong", "goaway", "novel"])
@pytest.mark.parametrize("named", [False, True], ids=["without stream", "with stream"])
def test_anything_else_over_the_cap_ends_the_connection(small: End, kind: str, named: bool):
    live = small.accept()
    small.recorder.calls.clear()
    with pytest.raises(Violation, match="over the cap") as caught:
        small.hear(kind, live.id if named else None, nonce=LONG)
    assert caught.value.close_code == 1002
    assert small.told == []


@pytest.mark.parametrize("kind", ["open", "data", "reset"])
def test_an_over_the_cap_stream_frame_without_a_stream_ends_the_connection(small: End, kind: str):
    with pytest.raises(Violation, match="without a stream id"):
        small.hear(kind, payload=LONG)


# Payloads


def test_a_whole_payload_is_judged_by_its_message_less_an_envelope(make: Callable[..., End]):
    end = make(max_payload=1_000)
    live = end.accept()
    envelope = len(pack(end.codec, {"type": "data", "stream": live.id, "payload": "x" * 1_000})) - 1_000
    room = 1_000 + ENVELOPE_BYTES - envelope
    end.hear("data", live.id, payload="x" * room)
    assert end.told[-1] == ("payload", live.id, "x" * room)
    end.hear("data", live.id, payload="x" * (room + 1))
    assert_too_large(end, live.id, "over the limit of 1000")


@pytest.mark.parametrize("with_end", [False, True])
def test_a_whole_payload_that_is_too_large_is_not_handed_over(make: Callable[..., End], with_end: bool):
    end = make(max_payload=1_000)
    one, two = end.open(None), end.theirs()
    end.sent()
    end.hear("data", one.id, payload="x" * 2_000, end=with_end)
    assert_too_large(end, one.id, "over the limit")
    end.hear("open", two, payload="x" * 2_000, end=with_end)
    assert_too_large(end, two, "over the limit")
    assert end.told == [
        ("answered", one.id, None),
        ("failed", one.id, StreamReset, ResetCode.PAYLOAD_TOO_LARGE),
        ("opening", two, None),
        ("failed", two, StreamReset, ResetCode.PAYLOAD_TOO_LARGE),
    ]


@pytest.mark.parametrize("kind", ["open", "data"])
def test_the_fragment_that_crosses_the_limit_resets_and_drops(make: Callable[..., End], kind: str):
    end = make(max_payload=1_000)
    stream = end.theirs()
    if kind == "data":
        end.accept()
    piece: Any = b"x" * 500 if end.codec.binary else "é" * 250
    for _ in range(2):
        end.hear(kind, stream, fragment=piece, more=True)
    audit(end.core)
    assert end.core._assembling_bytes == 1_000
    end.hear(kind, stream, fragment=piece[:1], more=True)
    assert_too_large(end, stream, "over the limit")
    end.hear(kind, stream, fragment=piece)
    assert end.sent() == []


def test_a_payload_of_exactly_the_limit_is_taken(make: Callable[..., End]):
    end = make(max_payload=1_000)
    live = end.accept()
    value = "x" * (1_000 - len(end.encode("x" * 500)) + 500)
    end.hear_pieces("data", live.id, value, 4)
    assert end.told[-1] == ("payload", live.id, value)


def test_all_payloads_being_collected_have_a_limit_together(make: Callable[..., End]):
    end = make(max_payload=1_000)
    piece: Any = b"x" * 900 if end.codec.binary else "x" * 900
    lives = [end.accept(1), end.accept(2), end.open(None)]
    end.sent()
    for live in lives[:2]:
        end.hear("data", live.id, fragment=piece, more=True)
    end.hear("data", lives[2].id, fragment=piece[:201], more=True)
    assert_too_large(end, lives[2].id, "together")
    # Those that were there first go on, and what they give back may be used.
    end.hear("data", lives[0].id, fragment=piece[:1])
    end.sent()
    end.hear(**end.pieces("open", end.theirs(3), "y" * 500)[0])
    assert end.theirs(3) in end.core.streams
    audit(end.core)


# Streams


def test_one_stream_too_many_is_refused_at_its_first_frame(make: Callable[..., End]):
    end = make(limit=3)
    for ordinal in (1, 2, 3):
        end.accept(ordinal)
    end.recorder.calls.clear()
    end.hear(**end.pieces("open", end.theirs(4), "x")[0])
    (frame,) = end.sent()
    assert (frame.stream, frame.code) == (end.theirs(4), ResetCode.REFUSED)
    assert "over the limit of 3" in (frame.reason or "")
    end.hear(**end.pieces("open", end.theirs(4), "x")[1])
    assert (end.told, end.sent()) == ([], [])
    assert len(end.core.streams) == 3


def test_a_stream_that_has_closed_makes_room(make: Callable[..., End]):
    end = make(limit=1)
    end.accept(1)
    end.hear("reset", end.theirs(1), code=1)
    live = end.accept(2, end=True)
    end.send(live, end=True)
    end.accept(3)
    assert end.core.streams.keys() == {end.theirs(3)}


def test_streams_of_ours_do_not_count(make: Callable[..., End]):
    end = make(limit=1)
    for _ in range(5):
        end.open(None)
    assert end.accept().state is StreamState.OPEN


@pytest.mark.parametrize("how", ["reset by them", "reset by us", "ended"])
def test_a_handler_that_still_runs_counts_until_it_ends(make: Callable[..., End], how: str):
    end = make(limit=1)
    live = end.accept(1, end=how == "ended")
    end.core.handler_started(live)
    if how == "reset by them":
        end.hear("reset", live.id, code=1)
    elif how == "reset by us":
        end.core.reset(live, ResetCode.CANCELLED, None, asked=True)
    else:
        end.send(live, end=True)
    assert live.state is StreamState.CLOSED
    audit(end.core, running=1)
    end.sent()
    end.hear("open", end.theirs(2))
    assert [frame.code for frame in end.sent()] == [ResetCode.REFUSED]
    end.core.handler_ended(live)
    end.core.handler_ended(live)
    audit(end.core)
    assert end.accept(3).state is StreamState.OPEN


def test_what_handlers_at_work_have_been_given_is_bounded_together(make: Callable[..., End], monkeypatch):
    monkeypatch.setattr("muxws_green.protocol.connection.HANDED_BYTES", 0)
    end = make(max_payload=1_000)
    big = "x" * 800
    lives = [end.accept(ordinal, big) for ordinal in (1, 2)]
    for live in lives:
        end.core.handler_started(live)
    end.hear("open", end.theirs(3), payload=big)
    assert [(frame.stream, frame.code) for frame in end.sent()] == [(end.theirs(3), ResetCode.REFUSED)]
    assert end.accept(4).state is StreamState.OPEN
    end.core.reset(lives[0], ResetCode.CANCELLED, None, asked=True)
    end.core.handler_ended(lives[0])
    assert end.accept(5, big).state is StreamState.OPEN


def test_a_handler_that_ends_before_its_stream_leaves_the_count_to_the_stream(make: Callable[..., End]):
    end = make(limit=1)
    live = end.accept(1)
    end.core.handler_started(live)
    end.core.handler_ended(live)
    audit(end.core)
    end.hear("open", end.theirs(2))
    assert [frame.code for frame in end.sent()] == [ResetCode.REFUSED]
    end.core.reset(live, ResetCode.CANCELLED, None, asked=True)
    audit(end.core)


def test_a_handler_that_is_started_too_late_counts_nothing(end: End):
    live = end.accept()
    end.core.reset(live, ResetCode.CANCELLED, None, asked=True)
    end.core.handler_started(live)
    end.core.handler_ended(live)
    audit(end.core)


# Answers


def test_64_pongs_may_wait_and_no_more(end: End):
    for number in range(MAX_QUEUED_PONGS):
        end.hear("ping", nonce=str(number))
    with pytest.raises(Violation, match="pongs") as caught:
        end.hear("ping", nonce="one more")
    assert caught.value.close_code == 1008
    assert MAX_QUEUED_PONGS == 64
    assert [frame.nonce for frame in end.sent()] == [str(number) for number in range(64)]


def test_pongs_that_have_left_do_not_count(end: End):
    for _ in range(3):
        for number in range(MAX_QUEUED_PONGS):
            end.hear("ping", nonce=str(number))
        assert len(end.batch()) == MAX_QUEUED_PONGS


def until_stopped(end: End, step: Callable[[int], None], most: int) -> Violation:
    for ordinal in range(1, most):
        try:
            step(ordinal)
        except Violation as violation:
            return violation
    raise AssertionError(f"{most} answers wait, and nothing has stopped it")


def assert_stopped(end: End, violation: Violation) -> None:
    assert violation.close_code == 1008
    audit(end.core)
    assert end.core.lanes.queued_bytes < end.core.lanes.limit_bytes + 2 * OVERDUE_BYTES
    end.sent()
    audit(end.core)


def test_a_remote_that_has_us_refuse_and_does_not_read_is_stopped(make: Callable[..., End]):
    end = make(limit=0, buffer=65_536)
    assert_stopped(end, until_stopped(end, lambda ordinal: end.hear("open", end.theirs(ordinal)), 10_000))


def test_a_remote_that_breaks_rules_and_does_not_read_is_stopped(make: Callable[..., End]):
    end = make(buffer=65_536)

    def step(ordinal: int) -> None:
        end.accept(ordinal, end=True)
        end.hear("data", end.theirs(ordinal), payload=1)

    assert_stopped(end, until_stopped(end, step, 10_000))


def test_a_remote_that_has_handlers_end_and_does_not_read_is_stopped(make: Callable[..., End]):
    end = make(buffer=65_536)
    end.recorder.reactions["opened"] = lambda live, _payload: end.send(live, end=True)
    assert_stopped(end, until_stopped(end, lambda ordinal: end.hear("open", end.theirs(ordinal), end=True), 10_000))


def test_a_remote_that_has_handlers_fail_with_big_errors_and_does_not_read_is_stopped(make: Callable[..., End]):
    end = make(buffer=65_536)
    end.recorder.reactions["opened"] = lambda live, _payload: end.core.reset(
        live, ResetCode.APPLICATION_ERROR, None, asked=False, payload="x" * 60_000
    )
    assert_stopped(end, until_stopped(end, lambda ordinal: end.hear("open", end.theirs(ordinal)), 200))


def test_a_remote_that_opens_a_whole_read_of_streams_at_once_is_only_refused(end: End):
    # One read of 64 KiB holds 2,621 of the shortest opens, and the writer has its turn only behind it.
    for ordinal in range(1, 2_700):
        end.hear("open", end.theirs(ordinal))
    refused = [frame for frame in end.sent() if frame.code == ResetCode.REFUSED]
    assert len(refused) == 2_699 - 100


def test_what_this_end_does_never_counts_against_the_remote(end: End):
    for _ in range(20_000):
        if not end.core.lanes.has_room(None, 4, whole=True):
            break
        end.core.reset(end.open(None), ResetCode.CANCELLED, "never mind", asked=True)
    else:
        raise AssertionError("there was always room")
    assert end.accept().state is StreamState.OPEN


def test_repeated_goaways_are_told_a_few_times_and_cut(end: End):
    for _ in range(10):
        end.hear("goaway", code=0, last_stream=0, reason="é" * 5_000)
    assert end.told == [("goaway", 0, "é" * 500)] * MAX_TOLD_GOAWAYS


# What is kept


class Owner:
    """Can be seen to go."""


@pytest.mark.parametrize("local", [False, True], ids=["theirs", "ours"])
@pytest.mark.parametrize("how", ["ended", "reset by them", "reset by us", "violated", "dead"])
def test_nothing_of_a_closed_stream_is_kept(end: End, how: str, local: bool):
    live = end.open("x") if local else end.accept()
    owner = Owner()
    live.owner = owner
    gone = weakref.ref(owner)
    end.hear(**end.pieces("data", live.id, "x" * 1_000)[0])
    if how == "ended":
        end.hear(**end.pieces("data", live.id, "x" * 1_000, end=True)[1])
        end.send(live, "bye", end=True)
    elif how == "reset by them":
        end.hear("reset", live.id, code=1)
    elif how == "reset by us":
        end.core.reset(live, ResetCode.CANCELLED, None, asked=True)
    elif how == "violated":
        end.hear("data", live.id, payload=1)
    else:
        assert end.core.die() == [live]
    del live, owner
    gc.collect()
    assert gone() is None
    assert end.core.streams == {}
    end.sent()
    assert not any(isinstance(value, (list, dict, set)) and value for value in vars(end.core).values())
    assert not any(vars(end.core.lanes)[name] for name in ("_whole", "_bulk", "_control"))
    audit(end.core)
    assert end.core.lanes.queued_bytes == end.core.lanes.whole_bytes == end.core._assembling_bytes == 0


def test_ten_thousand_streams_leave_two_marks_and_nothing_else(end: End):
    for ordinal in range(1, 10_001):
        end.hear("open", end.theirs(ordinal), end=True)
        end.send(end.core.streams[end.theirs(ordinal)], 1, end=True)
        end.recorder.calls.clear()
        end.core.take_batch()
    audit(end.core)
    assert sum(len(value) for value in vars(end.core).values() if isinstance(value, (list, dict, set))) == 0
