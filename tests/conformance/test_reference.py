"""The reference makes of each invalid vector what we make of it, but for the differences that are listed here.

It runs in this process, on a loop of its own, over its own pair of transports in memory.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import muxws
import pytest
from muxws.codecs.msgpack_ import MsgpackCodec
from muxws.peer import Peer
from muxws.transports.memory import memory_pair

from tests.conformance.test_vectors import INVALID, meant

REFERENCE: dict[str, Any] = {"json": muxws.JsonCodec(), "msgpack": MsgpackCodec()}

#: What the reference does otherwise, and why we do not follow it.
_LATE = "a late piece of an opening is ignored; the reference takes it for a second open (PROTOCOL §6)"
_TYPE = "a fragment of another type costs its stream only; the reference does not look at the type (PROTOCOL §4)"
_SIZE = "a connection-level frame over the cap has no stream that could pay, whatever it names (PROTOCOL §5)"
_VALUE = "no value that may stand in a message; the reference takes what Python's json takes (PROTOCOL §4)"
DIFFERENCES = {
    "late-pieces-of-a-reset-opening": _LATE,
    "late-pieces-of-an-opening-reset-here": _LATE,
    "late-pieces-of-a-refused-opening": _LATE,
    "late-open-fragment-over-the-cap": _LATE,
    "open-fragment-over-the-cap": _LATE,
    "first-open-fragment-over-the-cap": _LATE,
    "open-fragment-interrupted-by-data-fragment": _TYPE,
    "data-fragment-interrupted-by-open-fragment": _TYPE,
    "headers-on-a-later-open-fragment": "a later fragment of an open may not carry headers; the reference drops them",
    "ping-over-the-cap-with-a-stream": _SIZE,
    "unknown-type-over-the-cap-with-a-stream": _SIZE,
    "ping-without-a-nonce": "there is nothing to echo; the reference sends a pong without a nonce (PROTOCOL §3)",
    "undecodable-nan": _VALUE,
    "undecodable-infinity": _VALUE,
    "undecodable-overflow": _VALUE,
    "undecodable-nesting": "nesting is bounded, the same in every Python; the reference recurses (PROTOCOL §4)",
}

#: Turns of the loop in which everything has happened that will.
TURNS = 40


async def replay(
    messages: list[Any], codec: Any, *, dialer: bool = False, **options: Any
) -> list[tuple[list[tuple[Any, ...]], bool]]:
    """What a reference peer has answered after each message, and whether it is open then."""
    _nobody, socket = memory_pair()
    peer = Peer(socket, codec=codec, is_dialer=dialer, **options)

    async def park(_payload: Any, stream: Any) -> None:
        await stream.closed.wait()

    peer.on_stream(park)
    serving = asyncio.create_task(peer.serve())
    progress = []
    for message in messages:
        socket.inject(message)
        for _ in range(TURNS):
            await asyncio.sleep(0)
        sent = [codec.decode(message) for message in socket.sent]
        progress.append(([(frame.type, frame.stream, frame.code) for frame in sent], peer.is_open))
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    for stream in list(peer.streams.values()):
        await stream.cancel()
    return progress


@pytest.mark.parametrize("name,codec_name", meant(INVALID))
def test_invalid(name: str, codec_name: str, caplog: pytest.LogCaptureFixture) -> None:
    vector = INVALID[name]
    caplog.set_level(logging.CRITICAL)
    codec = REFERENCE[codec_name]
    messages = [codec.encode(muxws.from_mapping(e)) if "type" in e else e["raw"] for e in vector["inbound"]]
    options = {name: vector[name] for name in ("max_frame_bytes", "max_concurrent_streams") if name in vector}
    answers, survived = asyncio.run(replay(messages, codec, **options))[-1]
    expected = [(frame["type"], frame.get("stream"), frame["code"]) for frame in vector["expect_out"]]
    if expected:
        # Where nothing is expected nothing may go out, not even a pong.
        answers = [answer for answer in answers if answer[0] in ("reset", "goaway")]
    agrees = (answers, survived) == (expected, vector["connection_survives"])
    if name in DIFFERENCES:
        assert not agrees, "no longer a difference"
    else:
        assert agrees, f"the reference answered {answers} and is {'open' if survived else 'closed'}"
