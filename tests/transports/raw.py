"""The other end of a transport under test, written from RFC 6455 without our own code, and sockets of every kind."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from collections.abc import Callable
from functools import cache
from itertools import cycle
from typing import NamedTuple

import gevent
import trustme
from gevent import socket as gevent_socket
from gevent import ssl as gevent_ssl
from gevent.socket import socket as GeventSocket  # noqa: N812

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10

#: Bounds every wait; never reached where the code is right.
PATIENCE = 10.0


class RawFrame(NamedTuple):
    opcode: int
    payload: bytes
    masked: bool
    fin: bool = True

    @property
    def close_code(self) -> int | None:
        return struct.unpack(">H", self.payload[:2])[0] if self.payload else None


def frame(opcode: int, payload: bytes = b"", *, masked: bool, fin: bool = True) -> bytes:
    """One frame."""
    mask_bit = 0x80 if masked else 0
    size = len(payload)
    head = bytes([opcode | (0x80 if fin else 0)])
    if size < 126:
        head += bytes([size | mask_bit])
    elif size < 65_536:
        head += bytes([126 | mask_bit]) + struct.pack(">H", size)
    else:
        head += bytes([127 | mask_bit]) + struct.pack(">Q", size)
    if not masked:
        return head + payload
    key = b"\x12\x34\x56\x78"
    return head + key + bytes(byte ^ mask for byte, mask in zip(payload, cycle(key), strict=False))


def close_frame(code: int, reason: str = "", *, masked: bool) -> bytes:
    return frame(CLOSE, struct.pack(">H", code) + reason.encode(), masked=masked)


def split_frames(data: bytes) -> tuple[list[RawFrame], bytes]:
    """The whole frames at the beginning of `data`, and what is left."""
    frames: list[RawFrame] = []
    while True:
        if len(data) < 2:
            return frames, data
        size, start = data[1] & 0x7F, 2
        if size >= 126:
            start = 4 if size == 126 else 10
            size = int.from_bytes(data[2:start], "big")
        masked = bool(data[1] & 0x80)
        key = data[start : start + 4] if masked else b""
        start += len(key)
        if len(data) < start + size:
            return frames, data
        payload = data[start : start + size]
        if masked:
            repeated = (key * (size // 4 + 1))[:size]
            payload = (int.from_bytes(payload, "big") ^ int.from_bytes(repeated, "big")).to_bytes(size, "big")
        frames.append(RawFrame(data[0] & 0x0F, payload, masked, bool(data[0] & 0x80)))
        data = data[start + size :]


class RawEnd:
    """A socket that speaks frames as it is told; every wait is bounded."""

    def __init__(self, sock: GeventSocket, *, client: bool) -> None:
        self.sock = sock
        self.client = client
        self.buffered = b""
        sock.settimeout(PATIENCE)

    def send(self, opcode: int, payload: bytes = b"", *, fin: bool = True) -> None:
        self.sock.sendall(frame(opcode, payload, masked=self.client, fin=fin))

    def frames(self, count: int) -> list[RawFrame]:
        """Read until `count` frames are there."""
        frames: list[RawFrame] = []
        while True:
            more, self.buffered = split_frames(self.buffered)
            frames += more
            if len(frames) >= count:
                return frames
            data = self.sock.recv(65_536)
            assert data, f"end of file after {len(frames)} of {count} frames"
            self.buffered += data

    def rest(self) -> bytes:
        """Everything up to the end of the stream, undecoded."""
        with contextlib.suppress(ConnectionResetError, ssl.SSLEOFError):
            while data := self.sock.recv(65_536):
                self.buffered += data
        data, self.buffered = self.buffered, b""
        return data

    def reset(self) -> None:
        """Vanish with a RST (TCP)."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


@cache
def authority() -> trustme.CA:
    return trustme.CA()


@cache
def server_context(*names: str) -> gevent_ssl.SSLContext:
    """A TLS context with a certificate for `names`, localhost and the loopback addresses by default."""
    context = gevent_ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority().issue_cert(*(names or ("localhost", "127.0.0.1", "::1"))).configure_cert(context)
    return context


def client_context(kind: type[ssl.SSLContext] = gevent_ssl.SSLContext) -> ssl.SSLContext:
    """A context that trusts our authority alone."""
    context = kind(ssl.PROTOCOL_TLS_CLIENT)
    authority().configure_trust(context)
    return context


def tcp_pair() -> tuple[GeventSocket, GeventSocket]:
    with contextlib.closing(gevent_socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        near = gevent_socket.create_connection(listener.getsockname(), timeout=PATIENCE)
        far, _ = listener.accept()
    return near, far


def unix_pair() -> tuple[GeventSocket, GeventSocket]:
    return gevent_socket.socketpair(socket.AF_UNIX)


def tls_pair() -> tuple[GeventSocket, GeventSocket]:
    near, far = tcp_pair()
    server = gevent.spawn(server_context().wrap_socket, far, server_side=True)
    near = client_context().wrap_socket(near, server_hostname="localhost")
    return near, server.get(timeout=PATIENCE)


PAIRS: dict[str, Callable[[], tuple[GeventSocket, GeventSocket]]] = {
    "tcp": tcp_pair,
    "tls": tls_pair,
    "unix": unix_pair,
}
