"""A server of ours in the process of the test, with the peers that it has accepted, and what attacks it in frames."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import gevent
from gevent import socket as gevent_socket

from muxws_green import Peer, Server, WSGIApp
from muxws_green.testing import Opcode, RawClient, RawEnd, encode_frame
from tests.transports.raw import server_context

#: Never reached where the code is right, in seconds.
PATIENCE = 20.0

KINDS = ("tcp", "tls", "unix")


def until(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Wait until something holds."""
    with gevent.Timeout(seconds, TimeoutError(f"not within {seconds} s")):
        while not condition():
            gevent.sleep(0.001)


def echo(payload: Any, stream: Any) -> None:
    stream.reply(payload)


class Served:
    """A running server; as a context manager it is stopped on leaving.

    Args:
        handler: The `on_stream` handler.
        kind: One of `KINDS`.
        head_timeout: As `Server` has it.
        options: Those of `WSGIApp`.
    """

    def __init__(
        self, handler: Callable[..., Any] = echo, kind: str = "tcp", head_timeout: float = 10.0, **options: Any
    ) -> None:
        #: In the order in which they came, those that are gone included.
        self.peers: list[Peer] = []
        self._directory: str | None = None
        listener: Any = ("127.0.0.1", 0)
        server_options: dict[str, Any] = {"log": None, "error_log": None}
        if kind == "unix":
            self._directory = tempfile.mkdtemp()
            path = os.path.join(self._directory, "s")
            listener = gevent_socket.socket(gevent_socket.AF_UNIX)
            listener.bind(path)
            listener.listen(128)
            self.url = f"ws+unix://{path}:/"
        elif kind == "tls":
            server_options["ssl_context"] = server_context()
        on_connect = options.pop("on_connect", None)

        def connected(peer: Peer) -> None:
            self.peers.append(peer)
            if on_connect is not None:
                on_connect(peer)

        options.setdefault("heartbeat", None)
        self.app = WSGIApp(handler, on_connect=connected, **options)
        self.server = Server(listener, self.app, head_timeout, **server_options)
        self.server.start()
        if kind != "unix":
            scheme, host = ("wss", "localhost") if kind == "tls" else ("ws", "127.0.0.1")
            self.url = f"{scheme}://{host}:{self.server.server_port}/"

    @property
    def peer(self) -> Peer:
        """The one that was accepted last, which is waited for."""
        until(lambda: self.peers)
        return self.peers[-1]

    def close(self) -> None:
        self.server.stop(timeout=0)
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def frames(raw: RawEnd, *mappings: dict[str, Any]) -> bytes:
    """Those muxws frames as bytes for the wire, for a flood that is prepared once."""
    parts = []
    for mapping in mappings:
        message: Any = raw.codec.encode_payload(mapping)
        data = message.encode("utf-8", "surrogatepass") if isinstance(message, str) else message
        opcode = Opcode.BINARY if raw.codec.binary else Opcode.TEXT
        parts.append(encode_frame(opcode, data, masked=raw.client))
    return b"".join(parts)


def push(raw: RawEnd, data: bytes, seconds: float = PATIENCE) -> int:
    """Write as fast as the other end reads, without reading, until all is written or the connection is over.

    Returns:
        How many bytes it took.
    """
    sent = 0
    view = memoryview(data)
    with gevent.Timeout(seconds, TimeoutError(f"{len(data)} bytes were not taken within {seconds} s")):
        while sent < len(view):
            try:
                sent += raw.sock.send(view[sent : sent + 65_536])
            except OSError:
                break
    return sent


def client(served: Served, **options: Any) -> RawClient:
    """A raw client of that server that has been accepted."""
    before = len(served.peers)
    raw = RawClient(served.url, **options)
    until(lambda: len(served.peers) > before)
    return raw
