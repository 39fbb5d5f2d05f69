"""Payloads are cut exactly where the reference cuts them (PROTOCOL §5)."""

from __future__ import annotations

import muxws
import muxws.errors
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muxws_green.errors import ProtocolError
from muxws_green.protocol.fragments import MAX_FRAME_BYTES, Splitter, split_frame
from muxws_green.protocol.frames import Frame
from tests.codecs.samples import as_received, messages
from tests.differential.reference import PAIRS, from_reference, to_reference
from tests.values import metadata, payloads


def check(name, frame, cap):
    """Compare `split_frame` and, for what a `Splitter` is used for, its messages with the reference's fragments."""
    ours, theirs = PAIRS[name]
    try:
        expected = [from_reference(part) for part in muxws.split_frame(to_reference(frame), cap, theirs)]
    except muxws.errors.ProtocolError:
        with pytest.raises(ProtocolError):
            split_frame(frame, cap, ours)
        return 0
    assert split_frame(frame, cap, ours) == expected
    if len(expected) > 1:
        encoded = ours.encode_payload(frame.payload)
        splitter = Splitter(
            ours, ours, frame.type, frame.stream or 0, encoded, frame.headers, frame.end, frame.trailers, cap
        )
        sent = messages(splitter)
        assert [ours.decode(as_received(ours, message)) for message in sent] == expected
        assert [from_reference(theirs.decode(as_received(ours, message))) for message in sent] == expected
        assert max(map(len, sent)) <= cap
    return len(expected)


@st.composite
def cuttable(draw, name):
    text = st.text(st.sampled_from('aaab"\\\n\x01\x7fé€😀'), min_size=60, max_size=900)
    big = text | st.binary(min_size=60, max_size=1500) if name == "msgpack" else text
    return Frame(
        type=draw(st.sampled_from(["open", "data"])),
        stream=draw(st.sampled_from([1, 128, 70_000, 2**31 - 1])),
        payload=draw(big | st.lists(payloads(name), min_size=4, max_size=20)),
        headers=draw(metadata(name) | st.just({"h": "h" * 300})),
        end=draw(st.booleans()),
        trailers=draw(metadata(name) | st.just({"t": "t" * 300})),
    )


@pytest.mark.parametrize("name", PAIRS)
@given(data=st.data())
def test_generated_payloads(name, data):
    check(name, data.draw(cuttable(name)), data.draw(st.integers(2, 150) | st.integers(150, 1500)))


@pytest.mark.parametrize("name", PAIRS)
@given(data=st.data())
def test_resets(name, data):
    ours, theirs = PAIRS[name]
    frame = Frame("reset", 3, payload=data.draw(payloads(name)), code=2, reason=data.draw(st.text("aé", max_size=40)))
    cap = data.draw(st.integers(60, 200))
    try:
        expected = [from_reference(part) for part in muxws.split_frame(to_reference(frame), cap, theirs)]
    except muxws.errors.ProtocolError:
        with pytest.raises(ProtocolError):
            split_frame(frame, cap, ours)
        return
    assert split_frame(frame, cap, ours) == expected


SAMPLES = {
    "text": "x" * 200_000,
    "quotes": '"' * 100_000,
    "controls": "\x01" * 80_000,
    "two bytes": "é" * 100_000,
    "four bytes": "😀" * 60_000,
    "records": [{"id": number, "name": f"n{number}", "price": number / 7} for number in range(6000)],
    "mixed": 'a"é\\€\n😀' * 15_000,
    "one over": "x" * MAX_FRAME_BYTES,
}


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("name", PAIRS)
def test_at_the_real_cap(name, sample):
    for headers in (None, {"h": "y" * 2000}):
        frame = Frame("data", 5, payload=SAMPLES[sample], headers=headers, end=True, trailers={"sum": "z" * 700})
        assert check(name, frame, MAX_FRAME_BYTES) > 1


@pytest.mark.parametrize("size", range(65_400, 65_560, 3))
def test_around_the_real_cap(size):
    for name in PAIRS:
        check(name, Frame("data", 5, payload="x" * size, end=True, trailers={"sum": 1}), MAX_FRAME_BYTES)


class Terse:
    """A text codec whose envelope is one character, so that a code point can be wider than what the cap reserves."""

    name = "terse"
    binary = False

    def encode(self, frame):
        return str(frame.payload) if frame.fragment is None else ("+" if frame.more else ".") + frame.fragment

    def decode(self, message):
        raise NotImplementedError

    def encode_payload(self, value):
        return value

    def decode_payload(self, data):
        return data


@pytest.mark.parametrize("cap", range(2, 12))
@pytest.mark.parametrize("payload", ["😀" * 5, "aé€😀" * 5, "€é" * 9, "a" * 30])
def test_code_points_wider_than_the_budget(payload, cap):
    codec = Terse()
    try:
        expected = [part.fragment for part in muxws.split_frame(muxws.Frame("data", 1, payload=payload), cap, codec)]
    except muxws.errors.ProtocolError:
        with pytest.raises(ProtocolError):
            split_frame(Frame("data", 1, payload=payload), cap, codec)
        return
    assert [part.fragment for part in split_frame(Frame("data", 1, payload=payload), cap, codec)] == expected


@pytest.mark.parametrize("cap", range(257, 300))
def test_where_the_length_of_a_length_changes(cap):
    """A bin of 255 bytes has a header of two bytes, one of 256 has three."""
    frame = Frame("data", 5, payload=b"x" * 1000, headers={"h": "y" * (cap - 257)}, end=True)
    check("msgpack", frame, cap)
    frame = Frame("data", 5, payload=b"x" * 2000, headers={"h": "y" * 300}, end=True)
    check("msgpack", frame, cap + 370)
