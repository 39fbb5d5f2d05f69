"""Frames made by hand, so that a test may also break the rules that the package keeps."""

from __future__ import annotations

import operator
from typing import Literal

import pytest

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA

KEY = b"\x37\xfa\x21\x3d"

#: Each rule is tested from both sides: the argument says whether the reader under test is the client.
both_sides = pytest.mark.parametrize("client", [False, True], ids=["server", "client"])


def xor(data: bytes, key: bytes) -> bytes:
    repeated = (key * (len(data) // 4 + 1))[: len(data)]
    return bytes(map(operator.xor, data, repeated))


def head(
    first: int, size: int, *, masked: bool, length_form: Literal[7, 16, 64] | None = None, key: bytes = KEY
) -> bytes:
    """Everything before the payload; `length_form` forces a longer form than the size needs."""
    if length_form is None:
        length_form = 7 if size < 126 else 16 if size < 65536 else 64
    bit = 0x80 if masked else 0
    if length_form == 7:
        made = bytes((first, bit | size))
    elif length_form == 16:
        made = bytes((first, bit | 126)) + size.to_bytes(2, "big")
    else:
        made = bytes((first, bit | 127)) + size.to_bytes(8, "big")
    return made + (key if masked else b"")


def frame(
    payload: bytes | str = b"",
    opcode: int = TEXT,
    *,
    client: bool,
    fin: bool = True,
    rsv: int = 0,
    masked: bool | None = None,
    length_form: Literal[7, 16, 64] | None = None,
    key: bytes = KEY,
) -> bytes:
    """A frame for a reader that is the client or not; `masked` None means as the rules have it."""
    if isinstance(payload, str):
        payload = payload.encode()
    if masked is None:
        masked = not client
    first = (0x80 if fin else 0) | rsv << 4 | opcode
    before = head(first, len(payload), masked=masked, length_form=length_form, key=key)
    return before + (xor(payload, key) if masked else payload)


def close(code: int, reason: str = "", *, client: bool) -> bytes:
    return frame(code.to_bytes(2, "big") + reason.encode(), CLOSE, client=client)
