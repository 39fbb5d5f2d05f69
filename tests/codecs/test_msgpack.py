"""The msgpack codec keeps str and bytes apart and maps every failure (PROTOCOL §4; LAYERS "msgpack traps")."""

from __future__ import annotations

import math
import threading
from types import MappingProxyType

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muxws_green.codecs import msgpack as module
from muxws_green.codecs.msgpack import MsgpackCodec
from muxws_green.errors import ProtocolError
from muxws_green.protocol.frames import Frame
from tests.values import MSGPACK_PAYLOADS

CODEC = MsgpackCodec()


def test_declares_itself():
    assert (CODEC.name, CODEC.binary) == ("msgpack", True)


@given(MSGPACK_PAYLOADS)
def test_payloads_are_what_the_library_makes_of_them(value):
    encoded = CODEC.encode_payload(value)
    assert encoded == msgpack.packb(value, use_bin_type=True)
    assert CODEC.decode_payload(encoded) == value


def test_str_and_bytes_stay_apart():
    value = ["text", b"\xff\x00", {"k": b""}]
    decoded = CODEC.decode_payload(CODEC.encode_payload(value))
    assert decoded == value
    assert [type(item) for item in decoded] == [str, bytes, dict]


@pytest.mark.parametrize(
    "value, received",
    [
        ((1, (2,)), [1, [2]]),
        ({1: "a", None: "b", b"k": "d", 1.5: "e"}, {1: "a", None: "b", b"k": "d", 1.5: "e"}),
        (bytearray(b"x"), b"x"),
        (memoryview(b"x"), b"x"),
        (msgpack.Timestamp(5, 7), msgpack.Timestamp(5, 7)),
        (msgpack.ExtType(42, b"x"), msgpack.ExtType(42, b"x")),
        (math.inf, math.inf),
        (2**64 - 1, 2**64 - 1),
        (-(2**63), -(2**63)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_arrives(value, received):
    decoded = CODEC.decode_payload(CODEC.encode_payload(value))
    assert decoded == received
    assert type(decoded) is type(received)


def test_nan_passes():
    assert math.isnan(CODEC.decode_payload(CODEC.encode_payload(math.nan)))


@pytest.mark.parametrize(
    "value, error",
    [
        (2**64, OverflowError),
        (-(2**63) - 1, OverflowError),
        (object(), TypeError),
        ({1, 2}, TypeError),
        (1j, TypeError),
        ("\ud83d", UnicodeEncodeError),
        (["a\udc00"], UnicodeEncodeError),
    ],
    ids=ascii,
)
def test_what_cannot_be_sent(value, error):
    for operation in (
        lambda: CODEC.encode_payload(value),
        lambda: CODEC.encode(Frame("data", 1, payload=value)),
        lambda: CODEC.wrap("open", 1, None, headers={"h": value}),
        lambda: CODEC.wrap("data", 1, None, trailers={"t": value}),
    ):
        with pytest.raises(error):
            operation()
    assert CODEC.encode_payload(1) == b"\x01"


UNDECODABLE = {
    "nothing": b"",
    "cut": b"\x92\x01",
    "cut str": b"\xa5ab",
    "trailing": b"\x01\x02",
    "reserved byte": b"\xc1",
    "reserved inside": b"\x91\xc1",
    "invalid UTF-8": b"\xa1\xff",
    "surrogate in UTF-8": b"\xa3\xed\xa0\x80",
    "list as key": b"\x81\x90\x01",
    "map as key": b"\x81\x80\x01",
    "array32 bomb": b"\xdd\xff\xff\xff\xff",
    "map32 bomb": b"\xdf\xff\xff\xff\xff",
    "bin32 bomb": b"\xc6\xff\xff\xff\xff",
    "str32 bomb": b"\xdb\xff\xff\xff\xff",
    "ext32 bomb": b"\xc9\xff\xff\xff\xff\x01",
    "short timestamp": b"\xc7\x03\xff\x00\x00\x00",
    "timestamp out of range": b"\xc7\x0c\xff\xff\xff\xff\xff\x00\x00\x00\x00\x00\x00\x00\x00",
    "negative extension": b"\xd4\xfe\x00",
    "nested maps as keys": b"\x81" * 300 + b"\x01",
}


@pytest.mark.parametrize("data", UNDECODABLE.values(), ids=UNDECODABLE)
def test_undecodable(data):
    with pytest.raises(ProtocolError):
        CODEC.decode_payload(data)
    for message in (data, CODEC.wrap("data", 1, data)):
        with pytest.raises(ProtocolError):
            CODEC.unwrap(message)
        with pytest.raises(ProtocolError):
            CODEC.decode(message)


@given(st.binary(max_size=60))
def test_noise_raises_protocol_errors_only(data):
    try:
        CODEC.decode_payload(data)
    except ProtocolError:
        pass


@pytest.mark.parametrize("data", [b"\x01", b"\x90", b"\xa1a", b"\xc0"])
def test_a_message_is_a_map(data):
    with pytest.raises(ProtocolError, match="map"):
        CODEC.unwrap(data)


def test_text_messages_are_refused():
    for operation in (CODEC.unwrap, CODEC.decode, CODEC.decode_payload):
        with pytest.raises(ProtocolError, match="text"):
            operation('{"type":"data"}')
    with pytest.raises(TypeError):
        CODEC.wrap("data", 1, "1")


def test_envelope_of_each_shape():
    assert CODEC.wrap("data", 7, b"\x01") == msgpack.packb({"type": "data", "stream": 7, "payload": 1})
    assert CODEC.wrap("open", 7, None, end=True) == msgpack.packb({"type": "open", "stream": 7, "end": True})
    assert CODEC.wrap("data", 7, b"\xc0", {"h": 1}, True, {"t": [1]}) == msgpack.packb(
        {"type": "data", "stream": 7, "end": True, "headers": {"h": 1}, "payload": None, "trailers": {"t": [1]}}
    )
    assert CODEC.wrap_fragment("data", 7, b"ab", True, {"h": 1}) == msgpack.packb(
        {"type": "data", "stream": 7, "fragment": b"ab", "headers": {"h": 1}, "more": True}
    )


@pytest.mark.parametrize("stream", [0, 1, 127, 128, 255, 256, 65_535, 65_536, 2**31 - 1, 2**32 - 1, 2**32, 2**63])
@pytest.mark.parametrize("kind", ["open", "data", "reset"])
def test_heads_are_those_of_the_library(stream, kind):
    assert CODEC.wrap(kind, stream, b"\x01") == msgpack.packb({"type": kind, "stream": stream, "payload": 1})


@pytest.mark.parametrize("length", [0, 1, 255, 256, 65_535, 65_536])
def test_fragment_lengths_are_those_of_the_library(length):
    piece = b"x" * length
    assert CODEC.wrap_fragment("data", 1, piece, False) == msgpack.packb(
        {"type": "data", "stream": 1, "fragment": piece}
    )


def test_headers_may_be_any_mapping():
    proxy = MappingProxyType({"h": 1})
    assert CODEC.wrap("open", 1, None, proxy, False, proxy) == CODEC.wrap("open", 1, None, {"h": 1}, False, {"h": 1})
    assert CODEC.wrap_fragment("open", 1, b"", False, proxy, False, proxy) == CODEC.wrap_fragment(
        "open", 1, b"", False, {"h": 1}, False, {"h": 1}
    )


class Reentrant(dict):
    """Encodes something else while it is being encoded, as a finalizer or another greenlet might."""

    def items(self):
        self.inner = CODEC.encode_payload(["inner", {"a": 1}])
        return super().items()


def test_encoding_while_encoding_mixes_nothing_up():
    value = Reentrant(b=2)
    assert CODEC.decode_payload(CODEC.encode_payload([1, value, 3])) == [1, {"b": 2}, 3]
    assert CODEC.decode_payload(value.inner) == ["inner", {"a": 1}]


class Failing(dict):
    def items(self):
        raise ZeroDivisionError


def test_a_failure_inside_leaves_no_half_message():
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            CODEC.encode_payload([1, 2, Failing(a=1)])
        assert CODEC.encode_payload([5]) == b"\x91\x05"


def test_threads_do_not_mix():
    inside = threading.Barrier(2)
    packed = {}

    class Meeting(dict):
        def items(self):
            inside.wait(10)  # until both threads are in the middle of their message
            return super().items()

    def work(number):
        packed[number] = CODEC.encode_payload([number, Meeting(n=number), number])

    threads = [threading.Thread(target=work, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert {number: CODEC.decode_payload(data) for number, data in packed.items()} == {
        1: [1, {"n": 1}, 1],
        2: [2, {"n": 2}, 2],
    }


def test_the_pool_keeps_neither_big_nor_many_packers(monkeypatch):
    idle = []
    monkeypatch.setattr(module, "_idle", idle)
    CODEC.encode_payload("x" * 2_000_000)
    assert idle == []
    CODEC.encode_payload("x")
    CODEC.encode_payload("x")
    assert len(idle) == 1
    monkeypatch.setattr(module, "_KEPT_PACKERS", 1)
    outer = Reentrant(a=Reentrant(b=1))
    CODEC.encode_payload(outer)
    assert len(idle) == 1


@pytest.mark.parametrize("length", [0, 1_024, 65_535, 65_536, 4_194_303, 4_194_304])
def test_bytes_of_any_length_are_packed_as_by_the_library(length):
    value = b"x" * length
    assert CODEC.encode_payload(value) == msgpack.packb(value)
    assert CODEC.decode_payload(CODEC.encode_payload(value)) == value
