"""Long bytes under msgpack are cut, found and joined by their shape, never otherwise than the library would."""

from __future__ import annotations

from itertools import pairwise

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muxws_green.codecs.msgpack import MsgpackCodec
from muxws_green.codecs.msgpack_bytes import bytes_header, fragment_in, joined_bytes

CODEC = MsgpackCodec()
PIECE = b"\xc5" * 5_000


def fragment(piece=PIECE, more=True, kind="data", stream=7, **fields):
    return CODEC.wrap_fragment(kind, stream, piece, more, **fields)


@pytest.mark.parametrize("length", [0, 1, 255, 256, 65_535, 65_536, 1_000_000])
def test_the_header_is_the_librarys(length):
    assert bytes_header(length) + bytes(length) == msgpack.packb(bytes(length))


def test_more_than_msgpack_can_carry_is_refused():
    assert bytes_header(0xFFFF_FFFF) == b"\xc6\xff\xff\xff\xff"
    with pytest.raises(ValueError, match="at most 4294967295 bytes"):
        bytes_header(0x1_0000_0000)


@pytest.mark.parametrize("kind", ["open", "data"])
@pytest.mark.parametrize("stream", [1, 127, 128, 255, 256, 65_536, 2**31 - 1])
@pytest.mark.parametrize("length", [60, 255, 256, 65_000, 70_000])
def test_a_fragment_is_found(kind, stream, length):
    piece = bytes(range(256)) * (length // 256) + bytes(length % 256)
    message = fragment(piece, True, kind, stream)
    found = fragment_in(memoryview(message))
    assert found is not None
    assert found[:2] == (kind, stream)
    assert found[2] == piece
    assert found[2].obj is message


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x84",
        b"\x84" * 100,
        fragment(b"short"),
        fragment(more=False),
        fragment(end=True, more=False),
        fragment(headers={"a": 1}),
        fragment(headers={"a": 1}, more=False),
        fragment(end=True, more=False, trailers={}),
        msgpack.packb({"type": "data", "stream": 7, "more": True, "fragment": PIECE}),
        msgpack.packb({"type": "data", "stream": 7, "fragment": PIECE, "more": False}),
        msgpack.packb({"type": "data", "stream": 7, "fragment": PIECE, "colour": 1}),
        msgpack.packb({"type": "data", "stream": 7, "fragment": PIECE.decode("latin-1"), "more": True}),
        msgpack.packb({"type": "data", "stream": 7.0, "fragment": PIECE, "more": True}),
        msgpack.packb({"type": b"data", "stream": 7, "fragment": PIECE, "more": True}),
        msgpack.packb({"type": "data", "fragment": PIECE, "stream": 7, "more": True}),
        msgpack.packb({"type": "\u00e8fragment", "stream": 7, "fragment": PIECE, "more": True}),
        msgpack.packb({1: "data", "stream": 7, "fragment": PIECE, "more": True}),
        msgpack.packb({"type": "x" * 40, "stream": 7, "fragment": PIECE, "more": True}),
        msgpack.packb({"type": "x" * 22, "stream": 7, "fragment": PIECE, "more": True}),
        fragment() + b"\x00",
        fragment()[:-1],
        fragment().replace(b"\xc5\x13\x88", b"\xc5\x13\x87"),
    ],
)
def test_every_other_message_is_left_to_the_library(message):
    assert fragment_in(memoryview(message)) is None


def test_the_order_of_type_and_stream_is_free():
    message = msgpack.packb({"stream": 7, "type": "data", "fragment": PIECE, "more": True})
    assert fragment_in(memoryview(message)) == ("data", 7, PIECE)


@given(st.binary(max_size=3000), st.lists(st.integers(0, 3010), max_size=6))
def test_bytes_are_joined_however_they_were_cut(body, cuts):
    encoded = msgpack.packb(body)
    places = [0, *sorted(min(cut, len(encoded)) for cut in cuts), len(encoded)]
    pieces = [encoded[start:stop] for start, stop in pairwise(places)]
    assert joined_bytes(pieces) in (body, None)
    assert CODEC.decode_pieces(pieces) == body
    if len(pieces[0]) >= 5:
        assert joined_bytes(pieces) == body


@pytest.mark.parametrize("value", ["text" * 10, [b"x" * 100], {"a": b"x"}, 2**60, None])
def test_other_values_are_not_bytes(value):
    assert joined_bytes([msgpack.packb(value)]) is None


@pytest.mark.parametrize("pieces", [[b"\xc4\x05abcd"], [b"\xc4\x05abc", b"defg"], [b"\xc4", b"\x01a"], [b"\xc6\0\0\0"]])
def test_what_is_too_short_or_too_long_is_left_to_the_library(pieces):
    assert joined_bytes(pieces) is None
