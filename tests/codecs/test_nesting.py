"""The bound on nesting is exact, and the same everywhere (PROTOCOL §4)."""

from __future__ import annotations

from typing import NamedTuple

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muxws_green.codecs.nesting import MAX_NESTING, leaves_with, nested_deeper
from muxws_green.errors import ProtocolError
from muxws_green.protocol.frames import Frame
from tests.codecs.samples import CODECS
from tests.values import MSGPACK_PAYLOADS

BY_NAME = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
WRAPPERS = {
    "lists": lambda inner: [inner],
    "objects": lambda inner: {"a": inner},
    "beside others": lambda inner: [1, "xxxxx", inner, 2.5],
}


def nested(levels, wrap=WRAPPERS["lists"], core=1):
    for _ in range(levels):
        core = wrap(core)
    return core


def depth(value):
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    if isinstance(value, (list, tuple)):
        return 1 + max(map(depth, value), default=0)
    return 0


class Point(NamedTuple):
    x: object


class Mapping(dict):
    pass


@given(MSGPACK_PAYLOADS, st.integers(0, 8))
def test_agrees_with_the_definition(value, levels):
    assert nested_deeper(value, levels) is (depth(value) > levels)


@pytest.mark.parametrize("core", [[], {}, (), Point(1), Mapping(a=1)], ids=lambda core: type(core).__name__)
def test_what_counts_as_a_level(core):
    assert nested_deeper(core, 0)
    assert not nested_deeper(core, 1)
    assert nested_deeper([0, core], 1)


def test_leaves_hold_nothing():
    value = [msgpack.ExtType(1, b"x")]
    assert nested_deeper(value, 1)
    assert not nested_deeper(value, 1, leaves_with(msgpack.ExtType))


@BY_NAME
@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_a_payload_at_the_bound_passes_everywhere(codec, wrap):
    value = nested(MAX_NESTING, wrap)
    encoded = codec.encode_payload(value)
    assert codec.decode_payload(encoded) == value
    message = codec.wrap("data", 1, encoded)
    assert codec.unwrap(message if codec.binary else message.decode())["payload"] == value
    frame = Frame("data", 1, payload=value)
    assert codec.decode(codec.encode(frame)) == frame


def test_extensions_are_no_level():
    codec = CODECS[1]
    value = nested(MAX_NESTING, core=msgpack.ExtType(1, b"x"))
    assert codec.decode_payload(codec.encode_payload(value)) == value


@BY_NAME
@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_a_payload_past_the_bound_is_refused_at_the_sender(codec, wrap):
    value = nested(MAX_NESTING + 1, wrap)
    with pytest.raises(ValueError, match="500 levels"):
        codec.encode_payload(value)
    with pytest.raises(ValueError, match="500 levels"):
        codec.encode(Frame("data", 1, payload=value))
    with pytest.raises(ValueError, match="500 levels"):
        codec.wrap("data", 1, None, headers={"h": nested(MAX_NESTING, wrap)})
    with pytest.raises(ValueError, match="500 levels"):
        codec.wrap_fragment("data", 1, b"", False, trailers={"h": nested(MAX_NESTING, wrap)})


def hostile(codec, levels, keys):
    """What a remote may send that keeps no bound: an encoded payload."""
    if codec.name == "json":
        return '{"a":' * levels + "1" + "}" * levels if keys else "[" * levels + "1" + "]" * levels
    return (b"\x81\xa1a" if keys else b"\x91") * levels + b"\x01"


@BY_NAME
@pytest.mark.parametrize("keys", [False, True], ids=["lists", "objects"])
@pytest.mark.parametrize("levels", [MAX_NESTING + 1, MAX_NESTING + 2, 990, 1020, 1030, 9_000, 20_000])
def test_a_payload_past_the_bound_is_refused_at_the_receiver(codec, keys, levels):
    encoded = hostile(codec, levels, keys)
    with pytest.raises(ProtocolError):
        codec.decode_payload(encoded)
    for message in (codec.wrap("data", 1, encoded),):
        received = message if codec.binary else message.decode()
        with pytest.raises(ProtocolError):
            codec.unwrap(received)
        with pytest.raises(ProtocolError):
            codec.decode(received)


@BY_NAME
def test_unclosed_nesting_is_refused(codec):
    encoded = "[" * 100_000 if codec.name == "json" else b"\x91" * 60_000
    with pytest.raises(ProtocolError):
        codec.decode_payload(encoded)


@BY_NAME
@pytest.mark.parametrize("twice", [False, True])
def test_circles_are_refused_at_the_sender(codec, twice):
    circle = []
    circle.extend([circle] * (2 if twice else 1))
    for _ in range(3):
        with pytest.raises(ValueError, match=r"circular|recursion"):
            codec.encode_payload(circle)
    mapping = {}
    mapping["self"] = {"inner": mapping}
    with pytest.raises(ValueError, match=r"circular|recursion"):
        codec.encode_payload(mapping)


@BY_NAME
def test_a_failure_leaves_no_trace(codec):
    shared = [1, {"a": 2}]
    with pytest.raises(TypeError):
        codec.encode_payload([shared, object()])
    with pytest.raises(ValueError, match="500"):
        codec.encode_payload(nested(501, core=shared))
    assert codec.decode_payload(codec.encode_payload([shared, shared])) == [shared, shared]


@BY_NAME
def test_wide_values_are_not_deep(codec):
    value = [{"id": n, "tags": ["a", []]} for n in range(2000)]
    assert codec.decode_payload(codec.encode_payload(value)) == value


def test_brackets_inside_strings_are_not_nesting():
    json_codec = CODECS[0]
    value = "[{" * 2000
    assert json_codec.decode_payload(json_codec.encode_payload(value)) == value
