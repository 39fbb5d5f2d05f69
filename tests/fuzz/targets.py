"""What is fed with noise. Each target says in one sentence what must hold, and checks it; the only exceptions that may
come out are those that it catches itself, so any other one is a finding.

A target returns what it saw as a short text. Inputs that lead to a text not seen before are worth keeping.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from muxws_green.codecs.envelopes import bulk_of, envelopes_of
from muxws_green.codecs.fast import FastJsonCodec
from muxws_green.codecs.json import JsonCodec
from muxws_green.codecs.msgpack import MsgpackCodec
from muxws_green.errors import ProtocolError
from muxws_green.interfaces import ICodec
from muxws_green.protocol.connection import MAX_QUEUED_PONGS, Connection, Violation
from muxws_green.protocol.frames import Frame
from muxws_green.protocol.lanes import Lanes
from muxws_green.websocket import MessageReader

Target = Callable[[bytes], str]

_MAX_MESSAGE_BYTES = 600
_CODES = {1002, 1007, 1009}


def _read(data: bytes, client: bool) -> str:
    """However a stream of bytes is cut, the reader yields the same messages and the same end, buffers no more than one
    message, and raises nothing."""
    whole = MessageReader(client=client, max_message_bytes=_MAX_MESSAGE_BYTES)
    messages = whole.feed(data)
    bytewise = MessageReader(client=client, max_message_bytes=_MAX_MESSAGE_BYTES)
    singly: list[str | bytes] = []
    for index in range(len(data)):
        singly += bytewise.feed(data[index : index + 1])
    assert singly == messages
    assert (bytewise.close, bytewise.violation) == (whole.close, whole.violation)
    assert all(len(message) <= _MAX_MESSAGE_BYTES for message in messages)
    assert whole.violation is None or whole.violation.code in _CODES
    assert not (whole.close and whole.violation)
    if whole.close or whole.violation:
        assert whole.feed(b"\x81\x00" * 4) == []
    kinds = "".join("t" if isinstance(message, str) else "b" for message in messages[:4])
    return f"{kinds} {whole.violation and whole.violation.reason[:24]} {whole.close and whole.close.code}"


def server_bytes(data: bytes) -> str:
    """See `_read`; the side that clients send to."""
    return _read(data, client=False)


def client_bytes(data: bytes) -> str:
    """See `_read`; the side that a server sends to."""
    return _read(data, client=True)


def _decode(codec: ICodec, message: str | bytes) -> str:
    """A message decodes to a frame that encodes and decodes to itself, or raises ProtocolError and nothing else."""
    try:
        frame = codec.decode(message)
    except ProtocolError as error:
        return str(error)[:16]
    try:
        again = codec.encode(frame)
    except (ValueError, TypeError, OverflowError):
        # What may come in and cannot go out: half a surrogate pair, an int that msgpack has no room for.
        return "one way"
    assert repr(codec.decode(again)) == repr(frame)
    return "".join(name[0] for name in Frame.__slots__ if getattr(frame, name) not in (None, False))


def json_message(data: bytes) -> str:
    """See `_decode`; both json codecs agree."""
    text = data.decode("utf-8", "replace")
    standard, fast = JsonCodec(), FastJsonCodec()
    seen = _decode(standard, text)
    assert _decode(fast, text) == seen
    return seen


def msgpack_message(data: bytes) -> str:
    """See `_decode`."""
    return _decode(MsgpackCodec(), data)


class _Sink:
    """Records, and calls back where a runtime might."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.core: Connection | None = None

    def __getattr__(self, name: str) -> Callable[..., None]:
        def called(*arguments: Any) -> None:
            self.calls.append(name)

        return called

    def opened(self, live: Any, payload: Any) -> None:
        self.calls.append("opened")
        assert self.core is not None
        if payload == "stop":
            self.core.reset(live, 1, "stopped", asked=True)
        elif payload == "answer":
            self.core.send(live, self.core._codec.encode_payload("x" * 100), end=True)


def _frames(codec: ICodec, data: bytes, dialer: bool) -> str:
    """Whatever frames arrive in whatever order, the connection goes on or raises Violation; what it holds for the
    remote stays within its limits, and nothing is left when it dies."""
    sink = _Sink()
    core = Connection(
        codec,
        envelopes_of(codec),
        bulk_of(codec),
        sink,
        Lanes(2_000),
        dialer=dialer,
        max_frame_bytes=200,
        max_payload_bytes=400,
        max_concurrent_streams=3,
    )
    sink.core = core
    for _ in range(2):
        core.open(codec.encode_payload("ours"))
    end = "on"
    try:
        for line in data.split(b"\n"):
            core.receive(line if codec.binary else line.decode("utf-8", "replace"))
            assert len(core.streams) <= 5
            assert core._assembling_bytes <= 800
            assert len(core.lanes._control or ()) <= MAX_QUEUED_PONGS + 4
            if len(line) % 3 == 0:
                for message in core.take_batch():
                    assert len(message) <= 200
    except Violation as violation:
        end = f"{violation.close_code} {violation.reason[:12]}"
    assert end[:4] in ("on", "1002", "1008")
    core.die()
    assert not core.lanes
    assert not core.streams
    assert (core.lanes.queued_bytes, core.lanes.whole_bytes, core._assembling_bytes) == (0, 0, 0)
    return f"{end} {'-'.join(sink.calls[:6])}"


def json_frames(data: bytes) -> str:
    """See `_frames`; an acceptor with json."""
    return _frames(JsonCodec(), data, dialer=False)


def msgpack_frames(data: bytes) -> str:
    """See `_frames`; a dialer with msgpack."""
    return _frames(MsgpackCodec(), data, dialer=True)


TARGETS: dict[str, Target] = {
    target.__name__: target
    for target in (server_bytes, client_bytes, json_message, msgpack_message, json_frames, msgpack_frames)
}
