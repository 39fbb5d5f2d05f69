"""What both sides of an interop test agree upon; imports neither implementation."""

from __future__ import annotations

from hashlib import sha256

#: Streams that either side allows the other one, so that 200 calls fit at once.
MAX_STREAMS = 512

#: What the sockets may buffer, in bytes. With the kernel's own choice, 5 MB may be on their way before anybody reads.
SOCKET_BYTES = 65_536

#: How many fragments of a big payload have passed when something else is started.
UNDER_WAY = 5

_TEXT = '0123456789 äöü €uro 𝄞 "\\\n'


def blob(size: int, *, binary: bool) -> str | bytes:
    """A payload of about `size` bytes, bytes where the codec takes them."""
    data = (_TEXT.encode() * (size // len(_TEXT) + 1))[:size]
    return data if binary else data.decode("utf-8", "ignore")


def digest(value: str | bytes) -> str:
    """What is compared in place of a big payload."""
    return sha256(value.encode() if isinstance(value, str) else value).hexdigest()
