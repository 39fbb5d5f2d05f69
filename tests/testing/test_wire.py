"""Frames as bytes: the legal ones are what `websockets` makes and reads, and the others are what was asked for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame

from muxws_green.testing.wire import (
    MASK,
    Opcode,
    WireFrame,
    encode_close_payload,
    encode_frame,
    parse_frame,
    split_frames,
)

sizes = st.sampled_from([0, 1, 3, 125, 126, 127, 65_535, 65_536, 70_001])
frames = st.builds(
    WireFrame,
    st.integers(0, 15),
    sizes.map(lambda size: bytes(range(256)) * (size // 256) + bytes(size % 256)),
    st.booleans(),
    st.booleans(),
    st.integers(0, 7),
)


def encoded(frame: WireFrame) -> bytes:
    return encode_frame(frame.opcode, frame.payload, masked=frame.masked, fin=frame.fin, rsv=frame.rsv)


@given(frames)
def test_what_is_encoded_is_parsed_again(frame):
    data = encoded(frame)
    assert parse_frame(data) == (frame, len(data))
    assert parse_frame(b"before" + data + b"behind", 6) == (frame, 6 + len(data))


@given(frames, st.data())
def test_an_incomplete_frame_is_none(frame, data):
    whole = encoded(frame)
    assert parse_frame(whole[: data.draw(st.integers(0, len(whole) - 1))]) is None


@given(frames.filter(lambda frame: frame.opcode in list(Opcode) and (frame.opcode < 8 or frame.fin)))
def test_legal_ones_are_those_of_another_library(frame):
    frame = frame._replace(rsv=0, payload=frame.payload[: 125 if frame.opcode >= 8 else None])
    theirs = Frame(frame.opcode, frame.payload, frame.fin).serialize(mask=frame.masked)
    assert parse_frame(theirs) == (frame, len(theirs))
    ours = encoded(frame)
    head = len(ours) - len(frame.payload) - 4 * frame.masked
    assert ours[:head] == theirs[:head]


@pytest.mark.parametrize("rsv,first", [(4, 0xC1), (2, 0xA1), (1, 0x91), (7, 0xF1)])
def test_the_reserved_bits_have_their_places(rsv, first):
    assert encode_frame(Opcode.TEXT, masked=False, rsv=rsv) == bytes([first, 0])


def test_the_mask_is_on_the_wire_and_in_the_payload():
    assert encode_frame(Opcode.TEXT, b"\0\0\0\0\0", masked=True) == b"\x81\x85" + MASK + MASK + MASK[:1]


@pytest.mark.parametrize(
    "announced,head",
    [(0, b"\x81\x00"), (125, b"\x81\x7d"), (126, b"\x81\x7e\x00\x7e"), (2**40, b"\x81\x7f" + (2**40).to_bytes(8))],
)
def test_the_announced_length_need_not_be_true(announced, head):
    assert encode_frame(Opcode.TEXT, b"abc", masked=False, announce=announced) == head + b"abc"


def test_whole_frames_are_split_off():
    first, second = encode_frame(Opcode.PING, b"1", masked=True), encode_frame(Opcode.TEXT, b"22", masked=False)
    assert split_frames(first + second + second[:3]) == (
        [WireFrame(Opcode.PING, b"1", True), WireFrame(Opcode.TEXT, b"22", False)],
        second[:3],
    )
    assert split_frames(b"") == ([], b"")


@pytest.mark.parametrize(
    "code,reason,payload",
    [(1000, "", b"\x03\xe8"), (1001, "é", b"\x03\xe9\xc3\xa9"), (None, "", b""), (7, "\ud800", b"\0\x07\xed\xa0\x80")],
)
def test_close_payloads(code, reason, payload):
    assert encode_close_payload(code, reason) == payload
    assert WireFrame(Opcode.CLOSE, payload, False).close_code == code


def test_what_a_close_frame_says():
    assert WireFrame(Opcode.CLOSE, b"\x03\xe8fine\xff", False).close_reason == "fine�"
    assert WireFrame(Opcode.CLOSE, b"\x03", False).close_code is None
