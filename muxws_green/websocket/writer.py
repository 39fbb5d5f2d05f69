"""Whole messages and control frames as the bytes that go into a socket (RFC 6455 §5).

Invariant: what comes out is a number of complete frames, each message whole in one of them, so that a batch can be
written with one system call and needs no other to become valid. Called by the greenlet that writes to the socket.
"""

from __future__ import annotations

from collections.abc import Sequence

from websockets.exceptions import ProtocolError as BrokenRule
from websockets.frames import Close as CloseRules

from muxws_green.websocket.mask import apply_mask, fresh_key

#: What a control frame may hold (RFC 6455 §5.5).
MAX_CONTROL_BYTES = 125
#: What is left of it for the reason of a close frame, beside the code.
MAX_REASON_BYTES = MAX_CONTROL_BYTES - 2

_TEXT, _BINARY, _CLOSE, _PING, _PONG = 0x81, 0x82, 0x88, 0x89, 0x8A
_MASKED = 0x80


def encode_messages(messages: Sequence[bytes], binary: bool, masked: bool) -> bytes:
    """All `messages` as frames, in one buffer.

    Args:
        messages: Whole messages; text ones are UTF-8 already, which is not checked again.
        binary: True for binary messages, False for text.
        masked: True where this end is the client; each frame has a fresh key then (RFC 6455 §5.3).
    """
    headers = _HEADERS[binary, masked]
    parts: list[bytes] = []
    if masked:
        for message in messages:
            size = len(message)
            key = fresh_key()
            header = headers[size] if size < 126 else _long_header(headers[0], size)
            parts += (header, key, apply_mask(message, key))
    else:
        for message in messages:
            size = len(message)
            parts += (headers[size] if size < 126 else _long_header(headers[0], size), message)
    return b"".join(parts)


def encode_close(code: int | None, reason: str, masked: bool) -> bytes:
    """A close frame.

    Args:
        code: The code for the wire; None makes an empty frame, which the other side sees as 1005.
        reason: For people; cut to 123 bytes of UTF-8 on a character boundary, lone surrogates replaced by `?`.
        masked: True where this end is the client.

    Raises:
        ValueError: The code must not stand in a close frame (1005, 1006 and 1015 among them, RFC 6455 §7.4), or there
            is a reason without a code.
    """
    if code is None:
        if reason:
            raise ValueError("a close frame without a code cannot carry a reason")
        return _control(_CLOSE, b"", masked)
    try:
        CloseRules(code, "").check()
    except BrokenRule:
        raise ValueError(f"{code} must not stand in a close frame") from None
    text = reason.encode("utf-8", "replace")[:MAX_REASON_BYTES].decode("utf-8", "ignore").encode()
    return _control(_CLOSE, code.to_bytes(2, "big") + text, masked)


def encode_ping(payload: bytes, masked: bool) -> bytes:
    """A ping of at most 125 bytes, ValueError above."""
    return _control(_PING, payload, masked)


def encode_pong(payload: bytes, masked: bool) -> bytes:
    """The answer to a ping with this payload, of at most 125 bytes; ValueError above."""
    return _control(_PONG, payload, masked)


def _control(first: int, payload: bytes, masked: bool) -> bytes:
    size = len(payload)
    if size > MAX_CONTROL_BYTES:
        raise ValueError(f"a control frame holds at most {MAX_CONTROL_BYTES} bytes, not {size}")
    if not masked:
        return bytes((first, size)) + payload
    key = fresh_key()
    return bytes((first, size | _MASKED)) + key + apply_mask(payload, key)


def _long_header(short: bytes, size: int) -> bytes:
    """The header for a payload of 126 bytes or more, in the fewest bytes; `short` is that of an empty payload."""
    if size < 0x10000:
        return bytes((short[0], short[1] | 126)) + size.to_bytes(2, "big")
    return bytes((short[0], short[1] | 127)) + size.to_bytes(8, "big")


#: By (binary, masked): the two bytes before each payload of fewer than 126 bytes.
_HEADERS = {
    (binary, masked): [
        bytes((_BINARY if binary else _TEXT, size | (_MASKED if masked else 0)))
        for size in range(MAX_CONTROL_BYTES + 1)
    ]
    for binary in (False, True)
    for masked in (False, True)
}
