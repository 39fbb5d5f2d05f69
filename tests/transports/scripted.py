"""Servers that do to each connection exactly what a test wrote down, in this process and on ports from the kernel."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import socket
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import gevent
from gevent import socket as gevent_socket
from gevent import ssl as gevent_ssl
from gevent.pool import Pool
from gevent.server import StreamServer
from gevent.socket import socket as GeventSocket  # noqa: N812

from muxws_green.testing.clock import settle
from tests.transports.raw import PATIENCE, RawEnd, server_context

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

Script = Callable[["Connection"], None]


class Connection:
    """One accepted socket: what the client asked for, and ways to answer."""

    def __init__(self, sock: GeventSocket) -> None:
        self.sock = sock
        self.request = b""
        sock.settimeout(PATIENCE)

    def read_request(self) -> bytes:
        while b"\r\n\r\n" not in self.request:
            data = self.sock.recv(4096)
            if not data:
                break
            self.request += data
        return self.request

    def header(self, name: str) -> str | None:
        """The value of a header of the request; None where there is none."""
        for line in self.request.decode().split("\r\n")[1:]:
            key, _, value = line.partition(":")
            if key.lower() == name.lower():
                return value.strip()
        return None

    def upgrade(self, protocol: str | None = "muxws.v1.json", behind: bytes = b"") -> None:
        """Read the request and answer it with a 101, and with `behind` in the same packet."""
        self.read_request()
        key = (self.header("Sec-WebSocket-Key") or "").encode()
        accept = base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest()).decode()
        lines = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade"]
        lines.append(f"Sec-WebSocket-Accept: {accept}")
        if protocol is not None:
            lines.append(f"Sec-WebSocket-Protocol: {protocol}")
        self.sock.sendall("\r\n".join([*lines, "", ""]).encode() + behind)

    def answer(self, head: str, body: str = "") -> None:
        """Read the request and answer it with these lines."""
        self.read_request()
        self.sock.sendall((head.replace("\n", "\r\n") + "\r\n\r\n" + body).encode())

    @property
    def raw(self) -> RawEnd:
        return RawEnd(self.sock, client=False)

    def ended(self) -> bool:
        """Read up to the end of the stream, and whether there was one."""
        try:
            while self.sock.recv(65_536):
                pass
        except TimeoutError:
            return False
        except OSError:
            pass
        return True


class _KeepingServer(StreamServer):
    """Leaves the sockets open when the handler returns; gevent's closes them."""

    def do_close(self, *arguments: object) -> None:
        pass


class Scripted:
    """A listening server; each connection runs the next of `scripts`, the last one again and again.

    A script that returns leaves the connection open and to the test, until the server stops.
    """

    def __init__(
        self,
        *scripts: Script,
        kind: str = "tcp",
        folder: Path | None = None,
        context: gevent_ssl.SSLContext | None = None,
    ) -> None:
        self.scripts = list(scripts)
        self.connections: list[Connection] = []
        self.failed_handshakes = 0
        if kind == "unix":
            assert folder is not None
            listener = gevent_socket.socket(socket.AF_UNIX)
            listener.bind(str(folder / "s"))
            listener.listen(16)
            self.url = f"ws+unix://{folder / 's'}:/route"
        else:
            listener = gevent_socket.socket()
            listener.bind(("127.0.0.1", 0))
            listener.listen(16)
            self.url = f"{'wss' if kind == 'tls' else 'ws'}://localhost:{listener.getsockname()[1]}/route"
        self.address = listener.getsockname()
        self.context = (context or server_context()) if kind == "tls" else None
        self.server = _KeepingServer(listener, self._handle, spawn=Pool())
        self.server.start()

    @property
    def port(self) -> int:
        return self.address[1]

    def _handle(self, sock: GeventSocket, address: object) -> None:
        if self.context is not None:
            try:
                sock = self.context.wrap_socket(sock, server_side=True)
            except OSError:
                sock.close()
                self.failed_handshakes += 1
                return
        connection = Connection(sock)
        self.connections.append(connection)
        script = self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]
        script(connection)

    def all_ended(self) -> bool:
        """Wait for the client to close its end of every connection, of which there must be one."""
        return bool(self.connections) and all(connection.ended() for connection in self.connections)

    def __enter__(self) -> Scripted:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # What a script still waits for ends here.
        self.server.stop(timeout=0)
        for connection in self.connections:
            connection.sock.close()


class Tunnel:
    """What a CONNECT proxy does once it has agreed; to be called from a script."""

    def __init__(self, connection: Connection, port: int) -> None:
        onward = gevent_socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        pumps = [gevent.spawn(self._pump, *way) for way in [(connection.sock, onward), (onward, connection.sock)]]
        try:
            gevent.joinall(pumps, timeout=PATIENCE, count=1)
        finally:
            gevent.killall(pumps)
            onward.close()

    @staticmethod
    def _pump(source: GeventSocket, sink: GeventSocket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                sink.sendall(data)


class FullListener:
    """A listener whose queue is full: nothing connects to it until it accepts."""

    def __init__(self, family: int = socket.AF_INET, address: tuple[str, int] | str = ("127.0.0.1", 0)) -> None:
        self.sock = gevent_socket.socket(family)
        self.sock.bind(address)
        self.sock.listen(0)
        self.address = self.sock.getsockname()
        self.fillers: list[GeventSocket] = []
        #: How many connections wait to be accepted.
        self.queued = 0
        while self._one_more():
            self.queued += 1

    def _one_more(self) -> bool:
        filler = gevent_socket.socket(self.sock.family)
        self.fillers.append(filler)
        filler.settimeout(0.0)
        with contextlib.suppress(BlockingIOError):
            filler.connect(self.address)
        settle()
        try:
            filler.getpeername()
        except OSError:
            return False
        return True

    def close(self) -> None:
        for sock in [self.sock, *self.fillers]:
            sock.close()
