"""What we encode the reference reads as the same frame, and the other way round."""

from __future__ import annotations

import inspect
import json
from dataclasses import fields

import muxws
import muxws.errors
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muxws_green.codecs.json import JsonCodec
from muxws_green.errors import ProtocolError
from muxws_green.protocol.frames import Frame, from_mapping, to_mapping
from tests.differential.reference import PAIRS, from_reference, to_reference
from tests.shared import shared_dir
from tests.values import frames, payloads

FRAMES = json.loads((shared_dir() / "conformance/frames/v1-frames.json").read_text("utf-8"))


def test_frames_have_the_same_fields():
    shape = [(field.name, field.type) for field in fields(muxws.Frame)]
    assert [(field.name, field.type) for field in fields(Frame)] == shape
    ours, theirs = Frame("data"), muxws.Frame("data")
    assert from_reference(theirs) == ours
    assert list(inspect.signature(Frame).parameters) == list(inspect.signature(muxws.Frame).parameters)


@pytest.mark.parametrize("case", FRAMES, ids=lambda case: case["name"])
def test_corpus(case):
    codec = JsonCodec()
    frame = from_mapping(case["frame"])
    assert from_reference(muxws.from_mapping(case["frame"])) == frame
    assert codec.decode(case["json_wire"]) == frame
    assert codec.decode(codec.encode(frame)) == frame
    assert json.loads(codec.encode(frame)) == json.loads(case["json_wire"])
    assert PAIRS["msgpack"][0].decode(PAIRS["msgpack"][0].encode(frame)) == frame


@pytest.mark.parametrize("name", PAIRS)
@given(data=st.data())
def test_both_ways(name, data):
    ours, theirs = PAIRS[name]
    frame = data.draw(frames(name))
    sent = ours.encode(frame)
    assert from_reference(theirs.decode(sent)) == frame
    assert sent == theirs.encode(to_reference(frame))
    assert ours.decode(theirs.encode(to_reference(frame))) == frame
    assert list(to_mapping(frame)) == list(muxws.to_mapping(to_reference(frame)))


@pytest.mark.parametrize("name", PAIRS)
@given(data=st.data())
def test_payloads_both_ways(name, data):
    ours, theirs = PAIRS[name]
    value = data.draw(payloads(name))
    encoded = ours.encode_payload(value)
    assert encoded == theirs.encode_payload(value)
    assert ours.decode_payload(encoded) == theirs.decode_payload(encoded)


ENVELOPES = st.dictionaries(
    st.sampled_from([field.name for field in fields(Frame)] + ["x"]),
    st.none()
    | st.booleans()
    | st.integers(-2, 300)
    | st.floats(-3, 300)
    | st.sampled_from([1.0, -1.0, float("inf"), "data", "open"])
    | st.text(max_size=3)
    | st.binary(max_size=2)
    | st.lists(st.none(), max_size=1)
    | st.dictionaries(st.text(max_size=1) | st.integers(0, 1), st.none(), max_size=2),
    max_size=8,
)


@given(ENVELOPES, st.booleans())
def test_envelopes_are_judged_alike(envelope, typed):
    if typed:
        envelope["type"] = "data"
    try:
        expected = from_reference(muxws.from_mapping(envelope))
    except muxws.errors.ProtocolError:
        with pytest.raises(ProtocolError):
            from_mapping(envelope)
        return
    assert from_mapping(envelope) == expected


@given(st.binary(max_size=40))
def test_noise_under_msgpack_is_judged_alike(data):
    ours, theirs = PAIRS["msgpack"]
    try:
        expected = theirs.decode_payload(data)
    except muxws.errors.ProtocolError:
        with pytest.raises(ProtocolError):
            ours.decode_payload(data)
        return
    assert repr(ours.decode_payload(data)) == repr(expected)


JSON_NOISE = st.lists(
    st.sampled_from([*'{}[]",: \n\t\\eE.+-0123456789ntfu/', "null", "true", "false", '"a"', "\\u00e9", "1e5", "é"]),
    max_size=12,
).map("".join)


@given(JSON_NOISE)
def test_noise_under_json_is_judged_alike(text):
    ours, theirs = PAIRS["json"]
    try:
        expected = theirs.decode_payload(text)
    except muxws.errors.ProtocolError:
        with pytest.raises(ProtocolError):
            ours.decode_payload(text)
        return
    if "inf" in repr(expected):  # the reference takes numbers that overflow
        with pytest.raises(ProtocolError):
            ours.decode_payload(text)
        return
    assert repr(ours.decode_payload(text)) == repr(expected)
