"""Masking (RFC 6455 §5.3): the XOR itself, and keys that nobody can foresee.

The keys of a process come from the kernel, many at a time since one system call a frame would cost more than the frame.
Invariant: a key is handed out once. A child process drops what its parent had drawn, or both would use the same keys.
Called by `reader` and `writer` only.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

#: Keys drawn with one system call: 4 KiB of them.
_DRAWN_AT_ONCE = 1024
#: Up to here the XOR of two big integers is faster than four translations.
_INTEGER_BYTES = 1024

_keys: list[bytes] = []


def fresh_key() -> bytes:
    """Four bytes from the kernel's generator that no other frame of any process has. Safe to call from any thread."""
    while True:
        try:
            return _keys.pop()
        except IndexError:
            drawn = os.urandom(4 * _DRAWN_AT_ONCE)
            _keys.extend([drawn[at : at + 4] for at in range(0, len(drawn), 4)])


os.register_at_fork(after_in_child=_keys.clear)


@cache
def _xor_table(byte: int) -> bytes:
    return bytes(other ^ byte for other in range(256))


def apply_mask_in_python(data: Buffer, mask: bytes) -> bytes:
    """`data` with the four bytes of `mask` repeated over it; the same call takes the mask off again.

    Args:
        data: Any number of bytes.
        mask: Exactly four bytes; ValueError otherwise.
    """
    if len(mask) != 4:
        raise ValueError(f"a mask has 4 bytes, not {len(mask)}")
    size = len(data)
    if size > _INTEGER_BYTES:
        masked = bytearray(data)
        for offset in range(4):
            masked[offset::4] = masked[offset::4].translate(_xor_table(mask[offset]))
        return bytes(masked)
    repeated = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(data, "little") ^ int.from_bytes(repeated, "little")).to_bytes(size, "little")


def _fastest() -> Callable[[Buffer, bytes], bytes]:
    # `websockets` promises neither the module nor that it was compiled here.
    try:
        from websockets.speedups import apply_mask
    except ImportError:
        return apply_mask_in_python
    return apply_mask


#: The fastest of the two that this installation has. Takes bytes, bytearray or memoryview and returns bytes.
apply_mask = _fastest()
