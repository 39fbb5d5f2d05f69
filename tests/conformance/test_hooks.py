"""An `on_frame` hook may end the stream whose frame it is shown: the frame is late then, and nothing else happens."""

from __future__ import annotations

from typing import Any

import pytest

from muxws_green.errors import StreamReset
from muxws_green.protocol.frames import Frame
from muxws_green.runtime.stream import Stream
from muxws_green.testing import peer_pair, settle
from tests.conformance.runner import CODECS, bounded

pytestmark = pytest.mark.leaks

ANSWERS: dict[str, Any] = {
    "the first payload": lambda stream: stream.send(1),
    "a later payload": lambda stream: [stream.send(n) for n in range(3)],
    "a payload and the end": lambda stream: [stream.send(1), stream.end(2)],
    "the end": lambda stream: [stream.send(1), stream.end()],
    "headers": lambda stream: stream.send_headers({"a": 1}),
    "a fragment": lambda stream: stream.send("x" * 300_000),
    "a reset": lambda stream: stream.cancel(),
}


@pytest.mark.parametrize("codec_name", CODECS)
@pytest.mark.parametrize("what", ANSWERS)
def test_a_hook_may_cancel_the_stream_whose_frame_arrives(what: str, codec_name: str) -> None:
    with peer_pair(codec=CODECS[codec_name]) as pair, bounded("the calls"):
        opened: list[Stream] = []
        arrivals = 0

        def watch(direction: str, frame: Frame, _size: int) -> None:
            nonlocal arrivals
            if direction == "rx" and frame.stream == 1:
                arrivals += 1
                if arrivals == (1 if what in ("the first payload", "headers", "a reset") else 2):
                    opened[0].cancel("in the hook")

        pair.acceptor.on_stream(
            lambda payload, stream: ANSWERS[what](stream) if payload == what else stream.end(payload)
        )
        pair.dialer.on_frame(watch)
        opened.append(pair.dialer.open(what))
        with pytest.raises(StreamReset, match="in the hook"):
            list(opened[0])
        assert pair.dialer.request("next") == "next"
        settle()
        assert pair.dialer.stats.late_frames >= 1
        assert pair.dialer.is_open
        assert pair.acceptor.is_open
