"""Payloads, headers and ends, both ways, and what makes a message none (PROTOCOL §3, §5, §6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from muxws_green.errors import ProtocolError, ResetCode, StreamClosed, StreamReset
from muxws_green.protocol.connection import MAX_UNKNOWN_TYPES, Violation
from muxws_green.protocol.frames import Frame
from muxws_green.protocol.states import StreamState
from muxws_green.protocol.streams import LiveStream
from tests.protocol.cores import JSON, MSGPACK, End, audit, pack


@pytest.fixture(params=["theirs", "ours"])
def live(request: pytest.FixtureRequest, end: End) -> LiveStream:
    """A stream that the remote, or this end, has opened, with nothing else left of that."""
    live = end.accept() if request.param == "theirs" else end.open(None)
    if live.local:
        end.hear("data", live.id)
    end.sent()
    end.recorder.calls.clear()
    return live


def assert_violated(end: End, live: LiveStream, reason: str) -> None:
    (frame,) = end.sent()
    assert (frame.type, frame.stream, frame.code) == ("reset", live.id, ResetCode.PROTOCOL_ERROR)
    assert reason in (frame.reason or "")
    assert end.told[-1] == ("failed", live.id, StreamReset, ResetCode.PROTOCOL_ERROR)
    assert live.state is StreamState.CLOSED
    audit(end.core)


# Received


@pytest.mark.parametrize("value", [None, 0, "", [], {"a": [1, "é"]}])
def test_a_payload_arrives(end: End, live: LiveStream, value: Any):
    end.hear("data", live.id, payload=value)
    assert end.told == [("payload", live.id, value)]


def test_a_payload_weighs_what_its_message_or_its_fragments_do(end: End, live: LiveStream):
    sizes: list[int] = []
    end.recorder.reactions["payload"] = lambda _live, _payload, size: sizes.append(size)
    whole = pack(end.codec, {"type": "data", "stream": live.id, "payload": "é" * 100})
    end.core.receive(whole)
    end.hear_pieces("data", live.id, "é" * 100, 3)
    encoded = end.encode("é" * 100)
    assert sizes == [len(item.encode() if isinstance(item, str) else item) for item in (whole, encoded)]


def test_a_frame_without_payload_delivers_none(end: End, live: LiveStream):
    end.hear("data", live.id)
    end.hear("data", live.id, end=False)
    assert end.told == []


def test_unknown_fields_and_nulls_change_nothing(end: End, live: LiveStream):
    end.hear("data", live.id, payload=1, colour="red", trailers=None, headers=None, code=None)
    assert end.told == [("payload", live.id, 1)]


def test_the_end_comes_behind_its_payload_and_brings_the_trailers(end: End, live: LiveStream):
    end.hear("data", live.id, payload=1, end=True, trailers={"t": 1})
    assert end.told == [("payload", live.id, 1), ("ended", live.id, {"t": 1})]
    assert live.state is StreamState.HALF_CLOSED_REMOTE


def test_both_ends_close_the_stream_in_either_order(end: End):
    first, second = end.accept(1), end.accept(2)
    end.send(first, end=True)
    end.hear("data", first.id, end=True)
    end.hear("data", second.id, end=True)
    end.send(second, end=True)
    assert first.state is second.state is StreamState.CLOSED
    assert end.core.streams == {}
    audit(end.core)


def test_the_first_frame_of_an_answer_is_told_once_with_headers_or_without(end: End):
    one, two, three = end.open(1), end.open(2), end.open(3)
    end.hear("data", one.id, payload="a", headers={"h": 1})
    end.hear("data", one.id, payload="b")
    end.hear("data", two.id, payload="a")
    end.hear("data", three.id, headers={})
    assert end.told == [
        ("answered", one.id, {"h": 1}),
        ("payload", one.id, "a"),
        ("payload", one.id, "b"),
        ("answered", two.id, None),
        ("payload", two.id, "a"),
        ("answered", three.id, {}),
    ]


def test_an_answer_in_fragments_is_told_with_its_first(end: End):
    live = end.open(None)
    pieces = end.pieces("data", live.id, "x", headers={"h": 1}, end=True)
    end.hear(**pieces[0])
    assert end.told == [("answered", live.id, {"h": 1})]
    end.hear(**pieces[1])
    assert end.told == [("payload", live.id, "x"), ("ended", live.id, None)]


@pytest.mark.parametrize("fields", [{"payload": 1}, {"end": True}, {}], ids=["payload", "end", "alone"])
@pytest.mark.parametrize("headers", [{"h": 1}, {}])
def test_headers_on_a_later_frame_cost_the_stream(
    end: End, live: LiveStream, fields: dict[str, Any], headers: dict[str, Any]
):
    end.hear("data", live.id, headers=headers, **fields)
    assert_violated(end, live, "headers")


def test_headers_on_a_later_fragment_cost_the_stream(end: End):
    live = end.open(None)
    end.sent()
    first, last = end.pieces("data", live.id, "x", headers={"h": 1})
    end.hear(**first)
    end.hear(**last, headers={"h": 1})
    assert_violated(end, live, "headers")


def test_data_after_the_end_costs_the_stream(end: End, live: LiveStream):
    end.hear("data", live.id, payload=1, end=True)
    end.hear("data", live.id, payload=2)
    assert_violated(end, live, "after end")


@pytest.mark.parametrize("fields", [{"payload": 1}, {"end": True}, {}], ids=["payload", "end", "nothing"])
def test_a_whole_frame_within_a_payload_costs_the_stream(end: End, live: LiveStream, fields: dict[str, Any]):
    end.hear(**end.pieces("data", live.id, "x")[0])
    end.hear("data", live.id, **fields)
    assert_violated(end, live, "whole frame")


def test_fragments_are_joined(end: End, live: LiveStream):
    for value in ("é😀" * 50, {"a": list(range(100))}, ""):
        for count in (1, 2, 7):
            end.hear_pieces("data", live.id, value, count)
            assert end.told == [("payload", live.id, value)]
    audit(end.core)


def test_empty_fragments_are_fragments(end: End, live: LiveStream):
    empty: Any = b"" if end.codec.binary else ""
    end.hear("data", live.id, fragment=empty, more=True)
    with_value, last = end.pieces("data", live.id, [1, 2])
    end.hear(**with_value)
    end.hear("data", live.id, fragment=last["fragment"], more=True)
    end.hear("data", live.id, fragment=empty, end=True)
    assert end.told == [("payload", live.id, [1, 2]), ("ended", live.id, None)]


def test_a_whole_frame_behind_empty_fragments_costs_the_stream_too(end: End, live: LiveStream):
    end.hear("data", live.id, fragment=b"" if end.codec.binary else "", more=True)
    end.hear("data", live.id, payload=1)
    assert_violated(end, live, "whole frame")


def test_an_end_beside_more_is_not_the_end(end: End, live: LiveStream):
    first, last = end.pieces("data", live.id, "x")
    end.hear(**first, end=True)
    end.hear(**last)
    assert end.told == [("payload", live.id, "x")]
    assert live.state is StreamState.OPEN


def test_payloads_of_several_streams_may_interleave(end: End):
    one, two = end.accept(1), end.open(None)
    pieces = {live.id: end.pieces("data", live.id, {"from": live.id}, 3) for live in (one, two)}
    end.recorder.calls.clear()
    for number in range(3):
        for live in (one, two):
            end.hear(**pieces[live.id][number])
            audit(end.core)
    assert end.told[-2:] == [("payload", one.id, {"from": one.id}), ("payload", two.id, {"from": two.id})]


def test_a_joined_payload_that_does_not_decode_costs_the_stream(end: End, live: LiveStream):
    broken: Any = b"\xc1" if end.codec.binary else "[1,"
    end.hear("data", live.id, fragment=broken, more=True)
    end.hear("data", live.id, fragment=broken)
    assert_violated(end, live, "undecodable")


def test_a_fragment_of_the_wrong_kind_costs_the_stream():
    end = End(codec=MSGPACK)
    live = end.accept()
    end.hear("data", live.id, fragment="text")
    assert_violated(end, live, "wrong kind")


def test_a_late_frame_is_counted_and_ignored(end: End, live: LiveStream):
    end.core.reset(live, ResetCode.CANCELLED, None, asked=True)
    end.sent()
    end.hear("data", live.id, payload=1, headers={"late": True})
    end.hear("reset", live.id, code=77)
    for piece in end.pieces("data", live.id, "x", 2):
        end.hear(**piece)
    assert (end.told, end.sent()) == ([], [])
    assert end.core.late_frames == 4


@pytest.mark.parametrize("kind", ["data", "reset"])
def test_stream_0_is_below_every_mark(end: End, kind: str):
    end.hear(kind, 0, code=1)
    assert (end.told, end.sent()) == ([], [])
    assert end.core.late_frames == 1


# Sent


def test_what_is_sent_leaves_in_order(end: End, live: LiveStream):
    end.send(live, 1)
    end.send(live, None)
    end.send(live)
    end.send(live, 2, end=True, trailers={"t": 1})
    assert end.sent() == [
        Frame("data", live.id, payload=1),
        Frame("data", live.id, payload=None),
        Frame("data", live.id),
        Frame("data", live.id, payload=2, end=True, trailers={"t": 1}),
    ]


def test_headers_ride_the_first_frame_of_the_answering_side(end: End):
    one, two = end.accept(1), end.accept(2)
    end.send(one, 1, headers={"h": 1})
    end.send(two, headers={})
    assert end.sent() == [Frame("data", one.id, payload=1, headers={"h": 1}), Frame("data", two.id, headers={})]
    for live in (one, two):
        with pytest.raises(ProtocolError, match="first frame"):
            end.send(live, 2, headers={"h": 2})
    assert end.sent() == []
    end.send(one, 2)
    assert end.sent() == [Frame("data", one.id, payload=2)]


def test_the_opener_is_told_where_its_headers_go(end: End):
    live = end.open(None)
    with pytest.raises(ProtocolError, match=r"open\(\)"):
        end.send(live, 1, headers={"h": 1})


@pytest.mark.parametrize("what", ["headers", "trailers"])
@pytest.mark.parametrize("payload", [True, False], ids=["with payload", "alone"])
def test_headers_and_trailers_that_break_the_cap_raise_and_change_nothing(end: End, what: str, payload: bool):
    live = end.accept()
    options: dict[str, Any] = {what: {"x": "x" * 70_000}, "end": what == "trailers"}
    with pytest.raises(ProtocolError):
        end.send(live, *([1] if payload else []), **options)
    assert live.state is StreamState.OPEN
    assert not live.answered
    assert end.sent() == []
    audit(end.core)
    end.send(live, 1, headers={"h": 1})


def test_a_send_that_the_codec_refuses_changes_nothing(end: End):
    live = end.accept()
    with pytest.raises(TypeError):
        end.send(live, 1, headers={"x": object()})
    assert end.sent() == []
    end.send(live, 1, headers={"x": 1}, end=True)
    assert live.state is StreamState.HALF_CLOSED_LOCAL


def test_sending_behind_the_end_raises(end: End, live: LiveStream):
    end.send(live, end=True)
    end.sent()
    for options in ({}, {"end": True}):
        with pytest.raises(StreamClosed, match="ended"):
            end.send(live, 1, **options)
    assert end.sent() == []


def test_what_is_over_the_cap_leaves_in_fragments(make: Callable[..., End]):
    end = make(cap=300)
    other = End(dialer=not end.dialer, codec=end.codec, cap=300)
    live = end.open("x" * 1_000, headers={"h": 1})
    end.send(live, "y" * 1_000, end=True, trailers={"t": 1})
    while end.core.lanes:
        for message in end.core.take_batch():
            assert len(message) <= 300
            other.hear_message(message)
    assert other.told == [
        ("opening", live.id, {"h": 1}),
        ("opened", live.id, "x" * 1_000),
        ("payload", live.id, "y" * 1_000),
        ("ended", live.id, {"t": 1}),
    ]


def test_small_is_what_leaves_room_for_an_envelope(end: End):
    assert len(end.encode("x" * 65_000)) <= end.core.small_bytes
    assert len(end.encode("x" * 65_100)) > end.core.small_bytes


# What is no frame


@pytest.mark.parametrize(
    "envelope",
    [
        {},
        {"stream": 1},
        {"type": None},
        {"type": 1},
        {"type": "data", "stream": "1"},
        {"type": "data", "stream": -1},
        {"type": "data", "stream": True},
        {"type": "data", "stream": 1.5},
        {"type": "data", "stream": [1]},
        {"type": "data", "stream": 1, "end": None},
        {"type": "data", "stream": 1, "end": 1},
        {"type": "data", "stream": 1, "more": None},
        {"type": "data", "stream": 1, "fragment": 1},
        {"type": "data", "stream": 1, "fragment": None, "payload": None},
        {"type": "data", "stream": 1, "headers": []},
        {"type": "data", "stream": 1, "payload": 1, "trailers": "x"},
        {"type": "reset", "stream": 1, "code": "1"},
        {"type": "reset", "stream": 1, "code": True},
        {"type": "reset", "stream": 1, "reason": 1},
        {"type": "ping", "nonce": 1},
        {"type": "ping", "nonce": "n", "stream": "x"},
        {"type": "goaway", "last_stream": -1},
    ],
    ids=str,
)
def test_an_invalid_field_ends_the_connection(end: End, envelope: dict[str, Any]):
    end.accept()
    end.recorder.calls.clear()
    with pytest.raises(Violation) as caught:
        end.core.receive(pack(end.codec, envelope))
    assert caught.value.close_code == 1002
    assert (end.told, end.sent()) == ([], [])


@pytest.mark.parametrize("message", ["", "nonsense", "[]", '"x"', "NaN", '{"type":"ping"', '{"type":"ping","x":NaN}'])
def test_what_is_no_json_object_ends_the_connection(message: str):
    with pytest.raises(Violation, match="undecodable"):
        End(codec=JSON).core.receive(message)


@pytest.mark.parametrize("message", [b"", b"\xc1", b"\x90", b"\x81\xa4type", b"\x80\x80"])
def test_what_is_no_msgpack_map_ends_the_connection(message: bytes):
    with pytest.raises(Violation):
        End(codec=MSGPACK).core.receive(message)


def test_a_message_of_the_wrong_kind_ends_the_connection():
    with pytest.raises(Violation, match="binary message"):
        End(codec=JSON).core.receive(b'{"type":"ping","nonce":"n"}')
    with pytest.raises(Violation, match="text message"):
        End(codec=MSGPACK).core.receive('{"type":"ping","nonce":"n"}')


def test_what_is_said_of_a_violation_has_a_bound(end: End):
    with pytest.raises(Violation) as caught:
        end.hear("open", end.theirs(), headers={"é" * 30_000: 1}, end=1)
    assert len(caught.value.reason.encode()) <= 1_000
    assert len(Violation("é" * 5_000).reason.encode()) == 1_000


def test_an_unknown_type_is_reported_once_and_changes_nothing(end: End, live: LiveStream):
    for _ in range(3):
        end.hear("window_update", live.id, payload=1, nonce="x", code=3)
    assert end.told == [("report", "ignoring the unknown frame type 'window_update'")]
    assert live.state is StreamState.OPEN


def test_reports_of_unknown_types_are_short_quoted_and_bounded(end: End):
    for number in range(3 * MAX_UNKNOWN_TYPES):
        end.hear(f"\n{number}" + "x" * 60_000)
    told = end.told
    assert len(told) == MAX_UNKNOWN_TYPES
    assert told[0][1].startswith("ignoring the unknown frame type '\\n0xxx")
    assert all(len(text) <= len("ignoring the unknown frame type ") + 32 and "\n" not in text for _, text in told)
    # What else may be odd is not drowned.
    end.hear("ping")
    assert end.told == [("report", "ignoring a ping without a nonce")]


def test_an_observer_sees_every_frame_before_it_is_acted_upon(end: End, live: LiveStream):
    seen: list[tuple[str, int, int]] = []

    def observe(envelope: Mapping[str, Any], size: int) -> None:
        seen.append((envelope["type"], size, len(end.recorder.calls)))

    end.core.observer = observe
    messages: list[dict[str, Any]] = [
        {"type": "data", "stream": live.id, "payload": 1},
        {"type": "data", "stream": live.id, "payload": 1, "end": True},
        {"type": "ping", "nonce": "é"},
        {"type": "novel"},
    ]
    sizes = []
    for envelope in messages:
        message = pack(end.codec, envelope)
        sizes.append(len(message.encode() if isinstance(message, str) else message))
        end.core.receive(message)
    assert seen == [("data", sizes[0], 0), ("data", sizes[1], 1), ("ping", sizes[2], 3), ("novel", sizes[3], 3)]


@pytest.mark.parametrize("fields", [{"payload": 1}, {"payload": 1, "end": True}], ids=["plain", "end"])
def test_a_frame_is_late_where_its_observer_has_reset_the_stream(end: End, live: LiveStream, fields: dict[str, Any]):
    end.core.observer = lambda _envelope, _size: end.core.reset(live, ResetCode.CANCELLED, None, asked=True)
    end.hear("data", live.id, **fields)
    assert end.told == []
    assert end.core.late_frames == 1
    assert end.sent() == [Frame("reset", live.id, code=1)]


def test_a_dead_connection_acts_upon_nothing(end: End):
    end.accept()
    end.core.die()
    end.sent()
    end.recorder.calls.clear()
    end.hear("data", end.theirs(), payload=1)
    end.hear("open", end.theirs(2))
    end.hear("ping", nonce="n")
    assert (end.told, end.sent(), end.core.streams) == ([], [], {})
