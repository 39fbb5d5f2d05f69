"""What passes over a WebSocket, read along without a part in it: one `FrameSpy` for each direction.

Nothing is raised and nothing is changed, whatever passes: a fault is shown and what follows it is passed over. No more
is kept than one message of the size that a muxws peer would read. Used by `tap`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from muxws_green.errors import ProtocolError
from muxws_green.interfaces import ICodec
from muxws_green.protocol.fragments import MAX_FRAME_BYTES
from muxws_green.protocol.frames import Frame
from muxws_green.testing.wire import Opcode, WireFrame, parse_frame

#: The longest message that a peer reads (PROTOCOL §5); of longer ones only the size is told.
MAX_MESSAGE_BYTES = 2 * MAX_FRAME_BYTES


@dataclass(frozen=True)
class Seen:
    """One thing that has passed.

    Attributes:
        kind: The type of a muxws frame, or `ws-ping`, `ws-pong`, `ws-close`, or `fault`.
        size: The bytes of its message, or of its payload.
        frame: The muxws frame, where it is one.
        code: The code of a close frame; None for an empty one.
        text: The reason of a close frame, or what is wrong.
    """

    kind: str
    size: int
    frame: Frame | None = None
    code: int | None = None
    text: str = ""


class FrameSpy:
    """Reads one direction along.

    Args:
        codec: What the two ends have agreed on; None where it is not known here.
    """

    def __init__(self, codec: ICodec | None) -> None:
        self._codec = codec
        self._buffer = bytearray()
        #: Bytes of a frame that is too long to keep which are still to pass.
        self._passing = 0
        self._message: bytearray | None = None
        self._text = False
        self._size = 0
        self._lost = False

    def feed(self, data: bytes) -> list[Seen]:
        """Take what passes next, cut anywhere, and tell what that has completed."""
        seen: list[Seen] = []
        if self._lost:
            return seen
        self._buffer += data
        while not self._lost:
            passed = min(self._passing, len(self._buffer))
            del self._buffer[:passed]
            self._passing -= passed
            announced = None if self._passing else _announced(self._buffer)
            if announced is None:
                break
            first, start, size = announced
            if size > MAX_MESSAGE_BYTES:
                self._passing = start + size
                seen += self._too_long(first, size)
                continue
            found = parse_frame(self._buffer)
            if found is None:
                break
            frame, stop = found
            del self._buffer[:stop]
            seen += self._take(frame)
        if self._lost:
            self._buffer.clear()
        return seen

    def _take(self, frame: WireFrame) -> list[Seen]:
        size = len(frame.payload)
        if frame.rsv:
            self._lost = True
            return [Seen("fault", size, text="a reserved bit is set; what follows cannot be read")]
        if frame.opcode == Opcode.CLOSE:
            return [Seen("ws-close", size, code=frame.close_code, text=frame.close_reason)]
        if frame.opcode in (Opcode.PING, Opcode.PONG):
            return [Seen("ws-ping" if frame.opcode == Opcode.PING else "ws-pong", size)]
        if frame.opcode not in (Opcode.CONTINUATION, Opcode.TEXT, Opcode.BINARY):
            return [Seen("fault", size, text=f"opcode {frame.opcode} is reserved")]
        if frame.opcode != Opcode.CONTINUATION:
            self._message, self._size, self._text = bytearray(), 0, frame.opcode == Opcode.TEXT
        if self._message is None:
            return [Seen("fault", size, text="a continuation of nothing")]
        self._size += size
        if self._size <= MAX_MESSAGE_BYTES:
            self._message += frame.payload
        if not frame.fin:
            return []
        message, self._message = bytes(self._message), None
        if self._size > MAX_MESSAGE_BYTES:
            return [Seen("fault", self._size, text="a message over the limit of muxws")]
        return [self._decode(message)]

    def _too_long(self, first: int, size: int) -> list[Seen]:
        """A frame that is not kept; a message in pieces is told of by its last one."""
        if not first & 0x80 or (first & 0x0F) == Opcode.CONTINUATION:
            self._message = bytearray() if self._message is None else self._message
            self._size = (0 if (first & 0x0F) != Opcode.CONTINUATION else self._size) + size
            if not first & 0x80:
                return []
            size = self._size
        self._message = None
        return [Seen("fault", size, text="a message over the limit of muxws")]

    def _decode(self, message: bytes) -> Seen:
        size = len(message)
        if self._codec is None:
            return Seen("message", size)
        try:
            frame = self._codec.decode(message.decode() if self._text else message)
        except UnicodeDecodeError:
            return Seen("fault", size, text="text that is not UTF-8")
        except ProtocolError as error:
            return Seen("fault", size, text=str(error))
        return Seen(frame.type, size, frame)


def _announced(data: bytearray) -> tuple[int, int, int] | None:
    """The first byte of the frame that begins here, how long its head is, and its payload; None: not there yet."""
    if len(data) < 2:
        return None
    size, start = data[1] & 0x7F, 2
    if size >= 126:
        start += 2 if size == 126 else 8
        if len(data) < start:
            return None
        size = int.from_bytes(data[2:start], "big")
    return data[0], start + (4 if data[1] & 0x80 else 0), size


def flags_of(frame: Frame) -> dict[str, Any]:
    """What is set on a frame besides type and stream, without anything that the application has put there."""
    flags: dict[str, Any] = {}
    if frame.end:
        flags["end"] = True
    if frame.fragment is not None:
        flags["fragment"] = "more" if frame.more else "last"
    if frame.headers:
        flags["headers"] = len(frame.headers)
    if frame.trailers:
        flags["trailers"] = len(frame.trailers)
    for name in ("code", "last_stream", "nonce", "reason"):
        value = getattr(frame, name)
        if value is not None:
            flags[name] = value
    return flags
