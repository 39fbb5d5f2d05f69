"""The other end of a transport under test, which shares no code with it, and sockets of every kind."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable
from functools import cache

import gevent
import trustme
from gevent import socket as gevent_socket
from gevent import ssl as gevent_ssl
from gevent.socket import socket as GeventSocket  # noqa: N812

from muxws_green.testing.raw import reset_on_close
from muxws_green.testing.wire import Opcode, WireFrame, encode_close_payload, encode_frame
from muxws_green.testing.wire import split_frames as split_frames

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = Opcode

#: Bounds every wait; never reached where the code is right.
PATIENCE = 10.0


#: One frame as it came, and how to make frames of one's own.
RawFrame = WireFrame
frame = encode_frame


def close_frame(code: int, reason: str = "", *, masked: bool) -> bytes:
    return frame(CLOSE, encode_close_payload(code, reason), masked=masked)


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
        reset_on_close(self.sock)
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
