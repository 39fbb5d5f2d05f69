"""Long bytes under msgpack, told by their shape and taken out of messages as they are.

Encoded, bytes are a header and themselves. So a payload of them need not be encoded before it is cut, nor decoded after
it was put together, and a fragment of anything is a few bytes, the piece, and a few bytes more. Whatever looks
different is left to the library, which knows all of MessagePack.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgpack

_BIN8: Final = 0xC4
_BIN16: Final = 0xC5
_BIN32: Final = 0xC6
_MOST_BYTES: Final = 0xFFFF_FFFF

#: The map of a fragment with nothing besides: type, stream, fragment, more.
_FOUR_FIELDS: Final = 0x84
_TWO_FIELDS: Final = b"\x82"
_FRAGMENT: Final = b"\xa8fragment"
_MORE: Final = b"\xa4more\xc3"
#: Within so many bytes the piece of a fragment begins.
_HEAD_BYTES: Final = 48


def bytes_header(length: int) -> bytes:
    """What stands before so many bytes.

    Raises:
        ValueError: There is no room for such a length in the format.
    """
    if length < 0x100:
        return b"\xc4" + length.to_bytes(1, "big")
    if length < 0x1_0000:
        return b"\xc5" + length.to_bytes(2, "big")
    if length > _MOST_BYTES:
        raise ValueError(f"msgpack carries at most {_MOST_BYTES} bytes at a time, not {length}")
    return b"\xc6" + length.to_bytes(4, "big")


def _after_header(data: bytes | memoryview, at: int) -> tuple[int, int] | None:
    """Where bytes begin whose header is at `at`, and how many they are; None where no such header is."""
    kind = data[at]
    if kind == _BIN16:
        return at + 3, data[at + 1] << 8 | data[at + 2]
    if kind == _BIN32:
        return at + 5, int.from_bytes(data[at + 1 : at + 5], "big")
    if kind == _BIN8:
        return at + 2, data[at + 1]
    return None


@lru_cache(maxsize=256)
def _type_and_stream(head: bytes) -> tuple[str, int] | None:
    """What stands in a fragment before its piece; None where that is anything but a type and a stream."""
    try:
        fields = msgpack.unpackb(_TWO_FIELDS + head)
    except (ValueError, TypeError, msgpack.UnpackException):
        return None
    kind, stream = fields.get("type"), fields.get("stream")
    return (kind, stream) if type(kind) is str and type(stream) is int else None


def fragment_in(message: memoryview) -> tuple[str, int, memoryview] | None:
    """The type, the stream and the piece of a fragment that says besides only that more follow.

    None for every other message.
    """
    if len(message) <= _HEAD_BYTES or message[0] != _FOUR_FIELDS:
        return None
    head = bytes(message[1:_HEAD_BYTES])
    at = head.find(_FRAGMENT)
    found = _after_header(head, at + len(_FRAGMENT)) if 0 < at <= _HEAD_BYTES - 16 else None
    about = None if found is None else _type_and_stream(head[:at])
    if found is None or about is None:
        return None
    start, length = found[0] + 1, found[1]
    if bytes(message[start + length :]) != _MORE:
        return None
    return *about, message[start : start + length]


def joined_bytes(pieces: Sequence[bytes | memoryview]) -> bytes | None:
    """The bytes whose encoded form has been cut into these pieces; None where they are anything else."""
    first = pieces[0]
    found = _after_header(first, 0) if len(first) >= 5 else None
    if found is None:
        return None
    start, length = found
    if sum(map(len, pieces)) - start != length:
        return None
    return b"".join((memoryview(first)[start:], *pieces[1:]))
