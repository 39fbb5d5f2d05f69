"""WebSocket frames as bytes, legal ones and all others (RFC 6455 §5.2).

Written apart from `muxws_green.websocket`, so that what is tested and what tests it do not share a mistake. Nothing is
checked here: a test may say whatever it likes. Used by the raw ends; callable by anybody.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

#: What frames are masked with where a test does not care.
MASK = b"\x12\x34\x56\x78"


class Opcode(IntEnum):
    """What a frame is; any other number from 0 to 15 may be sent too, and is a violation."""

    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


class WireFrame(NamedTuple):
    """One WebSocket frame as it arrived, its mask taken off.

    Attributes:
        opcode: An `Opcode`, or another number.
        payload: What it carries.
        masked: Whether it was masked.
        fin: Whether it is the last of its message.
        rsv: The three reserved bits as a number, RSV1 being 4.
    """

    opcode: int
    payload: bytes
    masked: bool
    fin: bool = True
    rsv: int = 0

    @property
    def close_code(self) -> int | None:
        """The code of a close frame; None for an empty one."""
        return int.from_bytes(self.payload[:2], "big") if len(self.payload) >= 2 else None

    @property
    def close_reason(self) -> str:
        """The text beside the code; what is not UTF-8 in it is replaced."""
        return self.payload[2:].decode("utf-8", "replace")


def encode_frame(
    opcode: int,
    payload: bytes = b"",
    *,
    masked: bool,
    fin: bool = True,
    rsv: int = 0,
    announce: int | None = None,
) -> bytes:
    """One frame, legal or not.

    Args:
        opcode: 0 to 15.
        payload: What it carries.
        masked: True as clients do, False as servers do.
        fin: False where the message goes on in a continuation frame.
        rsv: The reserved bits, 0 to 7; 4 is RSV1.
        announce: The length to put into the header, up to 2⁶⁴ - 1; None: the true one.
    """
    size = len(payload) if announce is None else announce
    mask_bit = 0x80 if masked else 0
    head = bytes([(0x80 if fin else 0) | rsv << 4 | opcode])
    if size < 126:
        head += bytes([size | mask_bit])
    elif size < 65_536:
        head += bytes([126 | mask_bit]) + size.to_bytes(2, "big")
    else:
        head += bytes([127 | mask_bit]) + size.to_bytes(8, "big")
    return head + MASK + _xor(payload, MASK) if masked else head + payload


def encode_close_payload(code: int | None, reason: str = "") -> bytes:
    """What a close frame carries: any number of two bytes, nothing for None, and a reason of any length."""
    return (b"" if code is None else code.to_bytes(2, "big")) + reason.encode("utf-8", "surrogatepass")


def parse_frame(data: bytes | bytearray, start: int = 0) -> tuple[WireFrame, int] | None:
    """The frame that begins at `start`, and where it ends; None where it is not complete."""
    if len(data) < start + 2:
        return None
    first, second = data[start], data[start + 1]
    size, at = second & 0x7F, start + 2
    if size >= 126:
        long = 2 if size == 126 else 8
        if len(data) < at + long:
            return None
        size, at = int.from_bytes(data[at : at + long], "big"), at + long
    masked = second >= 0x80
    stop = at + 4 * masked + size
    if len(data) < stop:
        return None
    payload = bytes(data[stop - size : stop])
    if masked:
        payload = _xor(payload, bytes(data[at : at + 4]))
    return WireFrame(first & 0x0F, payload, masked, first >= 0x80, first >> 4 & 0x07), stop


def split_frames(data: bytes) -> tuple[list[WireFrame], bytes]:
    """The complete frames at the beginning of `data`, and what is left."""
    frames: list[WireFrame] = []
    position = 0
    while (found := parse_frame(data, position)) is not None:
        frame, position = found
        frames.append(frame)
    return frames, data[position:]


def _xor(data: bytes, key: bytes) -> bytes:
    size = len(data)
    repeated = (key * (size // 4 + 1))[:size]
    return (int.from_bytes(data, "big") ^ int.from_bytes(repeated, "big")).to_bytes(size, "big")
