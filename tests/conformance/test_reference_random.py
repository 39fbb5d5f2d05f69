"""Whatever arrives in whatever order: we answer as the reference does, message by message.

What may differ are the two cases of fragments in which PROTOCOL §6 and §4 ask for more patience than the reference has.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muxws_green.protocol.frames import ABSENT, Frame
from muxws_green.testing import FakeClock, settle
from tests.conformance.runner import CODECS, Lone
from tests.conformance.test_reference import REFERENCE, replay

pytestmark = pytest.mark.slow

LIMITS = {"max_frame_bytes": 256, "max_concurrent_streams": 2}

PAYLOADS = st.sampled_from([ABSENT, None, 1, "x", {"a": []}, "y" * 100, "y" * 300])
PIECES: dict[str, list[Any]] = {
    "json": ["1", '"a', 'b"', "[", "]", "", "z" * 300],
    "msgpack": [b"\x01", b"\x92", b"\xa2a", b"b", b"", b"z" * 300],
}


@st.composite
def arrivals(draw: st.DrawFn, codec_name: str, *, dialer: bool) -> list[Frame]:
    """Frames of a remote that mostly, but not always, knows what it does."""
    frames: list[Frame] = []
    next_id = 2 if dialer else 1
    for _ in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(["open"] * 5 + ["data"] * 7 + ["reset"] * 2 + ["ping", "pong", "goaway", "widget"]))
        fields: dict[str, Any] = {}
        if kind in ("open", "data", "reset"):
            recent = [max(0, next_id - 2 * back) for back in (1, 1, 1, 2, 2, 3)]
            fields["stream"] = draw(st.sampled_from([*recent, None, 0, 1, 2, 9]))
            if kind == "open" and draw(st.integers(0, 5)):
                fields["stream"] = next_id
            if kind == "open" and fields["stream"] == next_id:
                next_id += 2
        if kind in ("open", "data"):
            if draw(st.booleans()):
                fields["payload"] = draw(PAYLOADS)
            else:
                fields["fragment"] = draw(st.sampled_from(PIECES[codec_name]))
                fields["more"] = draw(st.booleans())
            # No sender ends a payload before it is whole.
            fields["end"] = not fields.get("more") and draw(st.booleans())
            fields["headers"] = draw(st.sampled_from([None, None, None, {"h": 1}]))
        elif kind == "reset":
            fields["code"] = draw(st.sampled_from([0, 1, 2, 4, 9, 77]))
        elif kind in ("ping", "pong"):
            fields["nonce"] = draw(st.sampled_from(["", "n"]))
        elif kind == "goaway":
            fields.update(code=0, last_stream=draw(st.integers(0, 4)))
        frames.append(Frame(kind, **fields))
    return frames


def may_differ(frame: Frame, before: list[Frame]) -> bool:
    """Whether this is one of the two cases."""
    if frame.fragment is None or frame.stream is None:
        return False
    opens = [earlier for earlier in before if earlier.type == "open" and earlier.stream is not None]
    if frame.type == "open":
        # A late piece, or one with headers.
        return frame.stream <= max((earlier.stream or 0 for earlier in opens), default=-1)
    # A fragment of another type than the opening that it seems to continue.
    return any(earlier.more for earlier in opens if earlier.stream == frame.stream)


@pytest.mark.parametrize("role", ["dialer", "acceptor"])
@pytest.mark.parametrize("codec_name", CODECS)
@given(data=st.data())
def test_the_same_answers(codec_name: str, role: str, data: st.DataObject) -> None:
    dialer = role == "dialer"
    frames = data.draw(arrivals(codec_name, dialer=dialer))
    messages = [CODECS[codec_name].encode(frame) for frame in frames]
    logging.disable()
    try:
        expected = asyncio.run(replay(messages, REFERENCE[codec_name], dialer=dialer, **LIMITS))
        with FakeClock() as clock:
            lone = Lone(codec_name, clock, dialer=dialer, **LIMITS)
            for number, message in enumerate(messages):
                lone.transport.inject(message)
                settle()
                answers = [(frame.type, frame.stream, frame.code) for frame in lone.end.frames()]
                if (answers, lone.peer.is_open) != expected[number]:
                    assert may_differ(frames[number], frames[:number])
                    break
            lone.transport.drop()
            settle()
    finally:
        logging.disable(logging.NOTSET)
