"""Servers that do to each connection exactly what a test wrote down, in this process and on ports from the kernel."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import gevent
from gevent import socket as gevent_socket
from gevent import ssl as gevent_ssl
from gevent.socket import socket as GeventSocket  # noqa: N812

from muxws_green.testing import RawConnection, RawServer, settle
from muxws_green.testing.raw_server import accept_value
from tests.transports.raw import PATIENCE, RawEnd, server_context

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
        accept = accept_value(self.header("Sec-WebSocket-Key") or "")
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
        assert kind != "unix" or folder is not None
        self.scripts = list(scripts)
        self.connections: list[Connection] = []
        self._server = RawServer(
            self._handle,
            upgrade=False,
            listen=str(folder / "s") if kind == "unix" and folder else None,
            ssl_context=(context or server_context()) if kind == "tls" else None,
        )
        self.address = self._server.address
        place = (
            f"unix://{self.address}:" if kind == "unix" else f"{'s' if kind == 'tls' else ''}://localhost:{self.port}"
        )
        self.url = f"ws{'+' if kind == 'unix' else ''}{place}/route"

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def context(self) -> ssl.SSLContext | None:
        """What connections to come are encrypted with."""
        return self._server.ssl_context

    @context.setter
    def context(self, context: ssl.SSLContext | None) -> None:
        self._server.ssl_context = context

    @property
    def failed_handshakes(self) -> int:
        return self._server.failed_handshakes

    def _handle(self, accepted: RawConnection) -> None:
        connection = Connection(accepted.sock)
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
        self._server.__exit__(kind, error, traceback)


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
