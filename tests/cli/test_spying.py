"""Reading along: whatever passes and however it is cut, the same is seen, and no more is kept than a message."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muxws_green.cli.spying import MAX_MESSAGE_BYTES, FrameSpy, Seen, flags_of
from muxws_green.codecs import JsonCodec, MsgpackCodec
from muxws_green.protocol.frames import Frame
from muxws_green.testing import Opcode, encode_frame
from muxws_green.testing.wire import encode_close_payload

OPEN = Frame("open", stream=1, payload={"a": 1}, end=True, headers={"h": 1})


def seen_in_pieces(data: bytes, cuts: list[int], codec: Any = None) -> list[Seen]:
    spy = FrameSpy(codec or JsonCodec())
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [seen for start, stop in pairwise(places) for seen in spy.feed(data[start:stop])]


def text(payload: str, **options: Any) -> bytes:
    return encode_frame(Opcode.TEXT, payload.encode(), **{"masked": True, **options})


WIRE = b"".join(
    [
        text(JsonCodec().encode(OPEN)),
        encode_frame(Opcode.PING, b"x", masked=True),
        encode_frame(Opcode.TEXT, b'{"type":"ping",', masked=True, fin=False),
        encode_frame(Opcode.PONG, b"", masked=True),
        encode_frame(Opcode.CONTINUATION, b'"nonce":"n"}', masked=True),
        encode_frame(Opcode.TEXT, b"x" * (MAX_MESSAGE_BYTES + 1), masked=True),
        encode_frame(Opcode.TEXT, b"x" * MAX_MESSAGE_BYTES, masked=True, fin=False),
        encode_frame(Opcode.CONTINUATION, b"y", masked=True),
        text("no json"),
        encode_frame(Opcode.TEXT, b"\xff", masked=True),
        encode_frame(Opcode.CONTINUATION, b"", masked=True),
        encode_frame(11, b"", masked=True),
        encode_frame(Opcode.CLOSE, encode_close_payload(1001, "bye"), masked=True),
        encode_frame(Opcode.CLOSE, b"", masked=True),
    ]
)


@given(st.lists(st.integers(0, len(WIRE)), max_size=20))
def test_what_is_seen_does_not_depend_on_the_cuts(cuts: list[int]) -> None:
    seen = seen_in_pieces(WIRE, cuts)
    assert [one.kind for one in seen] == [
        *("open", "ws-ping", "ws-pong", "ping", "fault", "fault", "fault", "fault", "fault", "fault"),
        *("ws-close", "ws-close"),
    ]
    assert seen[0].frame == OPEN
    assert seen[3].frame == Frame("ping", nonce="n")
    assert [one.size for one in seen[4:6]] == [MAX_MESSAGE_BYTES + 1, MAX_MESSAGE_BYTES + 1]
    assert "limit" in seen[4].text
    assert "JSON" in seen[6].text
    assert "UTF-8" in seen[7].text
    assert "continuation" in seen[8].text
    assert "opcode 11" in seen[9].text
    assert (seen[10].code, seen[10].text, seen[11].code) == (1001, "bye", None)


def test_a_message_of_which_a_later_piece_is_too_long() -> None:
    big = bytes(MAX_MESSAGE_BYTES + 1)
    spy = FrameSpy(JsonCodec())
    assert spy.feed(encode_frame(Opcode.TEXT, b"x", masked=False, fin=False)) == []
    assert spy.feed(encode_frame(Opcode.CONTINUATION, big, masked=False, fin=False)) == []
    (seen,) = spy.feed(encode_frame(Opcode.CONTINUATION, big, masked=False))
    assert (seen.kind, seen.size) == ("fault", 1 + 2 * len(big))
    # What was begun is over, so the next one is read again.
    assert [seen.kind for seen in spy.feed(text(JsonCodec().encode(OPEN)))] == ["open"]


def test_a_first_piece_that_is_too_long() -> None:
    big = bytes(MAX_MESSAGE_BYTES + 1)
    spy = FrameSpy(JsonCodec())
    assert spy.feed(encode_frame(Opcode.TEXT, big, masked=False, fin=False)) == []
    (seen,) = spy.feed(encode_frame(Opcode.CONTINUATION, b"x", masked=False))
    assert (seen.kind, seen.size) == ("fault", len(big) + 1)


@pytest.mark.parametrize("size", [126, 70_000])
def test_a_length_that_comes_byte_by_byte(size: int) -> None:
    spy = FrameSpy(None)
    data = encode_frame(Opcode.BINARY, bytes(size), masked=False)
    assert [seen for place in range(16) for seen in spy.feed(data[place : place + 1])] == []
    assert spy.feed(data[16:]) == [Seen("message", size)]


def test_no_more_is_kept_than_a_message() -> None:
    spy = FrameSpy(JsonCodec())
    head = encode_frame(Opcode.TEXT, b"", masked=False, announce=1 << 40)
    assert [seen.size for seen in spy.feed(head)] == [1 << 40]
    for _ in range(100):
        assert spy.feed(bytes(65_536)) == []
        assert len(spy._buffer) == 0
    again = FrameSpy(JsonCodec())
    for _ in range(100):
        again.feed(encode_frame(Opcode.CONTINUATION, bytes(65_536), masked=False, fin=False))
        again.feed(encode_frame(Opcode.TEXT, bytes(65_536), masked=False, fin=False))
    assert len(again._buffer) == 0
    assert again._message is not None
    assert len(again._message) <= MAX_MESSAGE_BYTES


def test_compressed_frames_are_told_once() -> None:
    spy = FrameSpy(JsonCodec())
    assert [seen.kind for seen in spy.feed(text("{}", rsv=4) + text("{}"))] == ["fault"]
    assert spy.feed(text("{}")) == []


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=5))
def test_whatever_passes_raises_nothing(data: bytes, cuts: list[int]) -> None:
    seen_in_pieces(data, cuts)
    seen_in_pieces(data, cuts, MsgpackCodec())


def test_without_a_codec_only_sizes_are_told() -> None:
    assert FrameSpy(None).feed(text("abc")) == [Seen("message", 3)]


@pytest.mark.parametrize(
    "frame,flags",
    [
        (OPEN, {"end": True, "headers": 1}),
        (Frame("data", stream=1, fragment="x", more=True), {"fragment": "more"}),
        (Frame("data", stream=1, fragment="x", end=True, trailers={"t": 1}),
         {"end": True, "fragment": "last", "trailers": 1}),
        (Frame("reset", stream=1, code=0, reason="r"), {"code": 0, "reason": "r"}),
        (Frame("goaway", code=0, last_stream=0), {"code": 0, "last_stream": 0}),
    ],
)  # fmt: skip
def test_flags(frame: Frame, flags: dict[str, Any]) -> None:
    assert flags_of(frame) == flags
