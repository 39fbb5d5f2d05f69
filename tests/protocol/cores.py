"""One connection machine with a sink that writes down what it is told, for the tests of the protocol.

An `End` speaks `Frame`s and plain envelopes, so that a test reads like a transcript: `end.hear(...)` is what the remote
sends, `end.sent()` is what leaves, `end.told` is what the sink was told.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgpack
from zope.interface import implementer

from muxws_green.codecs.envelopes import bulk_of, envelopes_of
from muxws_green.codecs.json import JsonCodec
from muxws_green.codecs.msgpack import MsgpackCodec
from muxws_green.errors import StreamReset
from muxws_green.interfaces import IConnectionSink
from muxws_green.protocol.connection import Connection
from muxws_green.protocol.fragments import MAX_FRAME_BYTES
from muxws_green.protocol.frames import ABSENT, Frame
from muxws_green.protocol.lanes import Lanes
from muxws_green.protocol.streams import LiveStream

CODECS: list[Any] = [JsonCodec(), MsgpackCodec()]
JSON, MSGPACK = CODECS


@implementer(IConnectionSink)
class Recorder:
    """Writes every call down, then does what the test has asked for."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        #: By the name of a call: what else to do in it, with the call's arguments.
        self.reactions: dict[str, Callable[..., Any]] = {}

    def _note(self, name: str, noted: tuple[Any, ...], *arguments: Any) -> None:
        self.calls.append((name, *noted))
        reaction = self.reactions.get(name)
        if reaction is not None:
            reaction(*arguments)

    def opening(self, live: LiveStream, headers: dict[str, Any] | None) -> None:
        self._note("opening", (live.id, headers), live, headers)

    def opened(self, live: LiveStream, payload: Any) -> None:
        self._note("opened", (live.id, payload), live, payload)

    def answered(self, live: LiveStream, headers: dict[str, Any] | None) -> None:
        self._note("answered", (live.id, headers), live, headers)

    def payload(self, live: LiveStream, payload: Any, size: int) -> None:
        self._note("payload", (live.id, payload), live, payload, size)

    def ended(self, live: LiveStream, trailers: dict[str, Any] | None) -> None:
        self._note("ended", (live.id, trailers), live, trailers)

    def failed(self, live: LiveStream, error: StreamReset) -> None:
        self._note("failed", (live.id, type(error), error.code), live, error)

    def pong(self, nonce: str) -> None:
        self._note("pong", (nonce,), nonce)

    def goaway(self, code: int, reason: str | None) -> None:
        self._note("goaway", (code, reason), code, reason)

    def queued(self) -> None:
        reaction = self.reactions.get("queued")
        if reaction is not None:
            reaction()

    def report(self, text: str) -> None:
        self._note("report", (text,), text)


class End:
    """One end of a connection, under test.

    Args:
        dialer: Which end it is.
        codec: Its codec.
        cap: Its `max_frame_bytes`.
        max_payload: Its `max_payload_bytes`.
        limit: Its `max_concurrent_streams`.
        buffer: Its `send_buffer_bytes`.
    """

    def __init__(
        self,
        *,
        dialer: bool = False,
        codec: Any = JSON,
        cap: int = MAX_FRAME_BYTES,
        max_payload: int = 67_108_864,
        limit: int = 100,
        buffer: int = 16_777_216,
    ) -> None:
        self.codec = codec
        self.dialer = dialer
        self.recorder = Recorder()
        self.core = Connection(
            codec,
            envelopes_of(codec),
            bulk_of(codec),
            self.recorder,
            Lanes(buffer),
            dialer=dialer,
            max_frame_bytes=cap,
            max_payload_bytes=max_payload,
            max_concurrent_streams=limit,
        )

    def theirs(self, ordinal: int = 1) -> int:
        """The `ordinal`-th id of the remote's parity."""
        return 2 * ordinal if self.dialer else 2 * ordinal - 1

    def ours(self, ordinal: int = 1) -> int:
        """The `ordinal`-th id of this end's parity."""
        return 2 * ordinal - 1 if self.dialer else 2 * ordinal

    # The remote

    def hear_message(self, message: str | bytes) -> None:
        """Receive one message as the WebSocket layer would hand it over, or as bytes that it would decode."""
        if isinstance(message, bytes) and not self.codec.binary:
            message = message.decode()
        self.core.receive(message)

    def hear(self, type: str, stream: int | None = None, **fields: Any) -> None:  # noqa: A002
        """Receive an envelope with exactly these fields, legal or not."""
        envelope: dict[str, Any] = {"type": type}
        if stream is not None:
            envelope["stream"] = stream
        envelope.update(fields)
        self.core.receive(pack(self.codec, envelope))

    def hear_pieces(self, type: str, stream: int, value: Any, count: int = 2, **fields: Any) -> None:  # noqa: A002
        """Receive a payload in `count` fragments."""
        for piece in self.pieces(type, stream, value, count, **fields):
            self.hear(**piece)

    def pieces(self, type: str, stream: int, value: Any, count: int = 2, **fields: Any) -> list[dict[str, Any]]:  # noqa: A002
        """The envelopes of a payload in `count` fragments; `headers` on the first, `end` and `trailers` on the last."""
        encoded = self.codec.encode_payload(value)
        size = -(-len(encoded) // count)
        envelopes: list[dict[str, Any]] = [
            {"type": type, "stream": stream, "fragment": encoded[at * size : (at + 1) * size], "more": True}
            for at in range(count)
        ]
        del envelopes[-1]["more"]
        for name, value in fields.items():
            envelopes[0 if name == "headers" else -1][name] = value
        return envelopes

    @property
    def told(self) -> list[tuple[Any, ...]]:
        """What the sink has been told since this was last read."""
        calls = self.recorder.calls[:]
        self.recorder.calls.clear()
        return calls

    # This end

    def encode(self, value: Any) -> Any:
        return self.codec.encode_payload(value)

    def open(self, value: Any = None, **options: Any) -> LiveStream:
        return self.core.open(self.encode(value), **options)

    def send(self, live: LiveStream, value: Any = ABSENT, **options: Any) -> None:
        self.core.send(live, None if value is ABSENT else self.encode(value), **options)

    def accept(self, ordinal: int = 1, value: Any = None, **fields: Any) -> LiveStream:
        """Have the remote open a stream, and return it."""
        self.hear("open", self.theirs(ordinal), payload=value, **fields)
        return self.core.streams[self.theirs(ordinal)]

    def batch(self) -> list[Frame]:
        """What leaves in the next batch."""
        return [self.decode(message) for message in self.core.take_batch()]

    def sent(self) -> list[Frame]:
        """All that is queued, in the order in which it leaves."""
        frames: list[Frame] = []
        while self.core.lanes:
            frames += self.batch()
        return frames

    def decode(self, message: bytes) -> Frame:
        frame: Frame = self.codec.decode(message if self.codec.binary else message.decode())
        return frame


def pack(codec: Any, envelope: dict[Any, Any]) -> str | bytes:
    """A message with exactly these fields."""
    if codec.binary:
        packed: bytes = msgpack.packb(envelope, use_bin_type=True)
        return packed
    return json.dumps(envelope, ensure_ascii=False)


def audit(core: Connection, running: int = 0) -> None:
    """Check that everything counted is the sum of what is there.

    Args:
        running: Closed streams of the remote's whose handler still runs.
    """
    lanes = core.lanes
    bulk = lanes._bulk or ()
    waiting = [*lanes._wholes(), *bulk]
    assert len({id(lane) for lane in waiting}) == len(waiting)
    for lane in waiting:
        assert lane.items
        assert lane.queued_bytes == sum(
            len(item) if isinstance(item, bytes) else item.remaining_bytes for item in lane.items
        )
    assert lanes.queued_bytes == sum(lane.queued_bytes for lane in waiting)
    assert lanes.whole_bytes == sum(len(item) for lane in waiting for item in lane.items if isinstance(item, bytes))
    assert all(isinstance(lane.items[0], bytes) or lane.open_unsent for lane in lanes._wholes())
    assert not any(isinstance(lane.items[0], bytes) or lane.open_unsent for lane in bulk)
    opens = [lane.stream for lane in lanes._wholes() if lane.open_unsent]
    assert opens == sorted(opens)
    for live in core.streams.values():
        assert live.lane in waiting or not live.lane.items
    collected = [live.assembler.byte_length for live in core.streams.values() if live.assembler is not None]
    assert core._assembling_bytes == sum(collected)
    assert core._remote_streams == running + sum(not live.local for live in core.streams.values())
