"""A server whose every connection does what a script says, frame by frame, or waits for the test to drive it.

A script is a function of a `RawConnection`. When it returns, its connection stays open, and the test may go on with it;
where the client goes first, the script ends in peace (`Gone`). Any other error of a script is raised when the server is
closed, so that a test cannot pass over it.
"""

from __future__ import annotations

import base64
import hashlib
import ssl
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from types import TracebackType
from typing import Self, TypeAlias

import gevent
from gevent.event import Event
from gevent.socket import socket as GeventSocket  # noqa: N812
from gevent.ssl import SSLSocket

from muxws_green.interfaces import IClock, ICodec
from muxws_green.runtime.clock import default_clock
from muxws_green.testing.listener import Address, Listener, url_place
from muxws_green.testing.raw import PATIENCE, Gone, RawEnd, parse_headers
from muxws_green.transports.deadline import Deadline

_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_MUXWS = "muxws.v1."


class RawConnection(RawEnd):
    """One accepted connection.

    Attributes:
        opened_at: When it was accepted, by the server's clock.
        request_line: The first line of the request; empty before `read_request`.
        request_headers: The headers of the request, as (name, value).
    """

    def __init__(self, sock: GeventSocket, *, codec: ICodec | str, clock: IClock, timeout: float) -> None:
        super().__init__(sock, client=False, codec=codec, clock=clock, timeout=timeout)
        self.opened_at = clock.now()
        self.request_line = ""
        self.request_headers: list[tuple[str, str]] = []

    def header(self, name: str) -> str | None:
        """The first value of a request header, whatever the case of its name; None where there is none."""
        return next((value for key, value in self.request_headers if key.lower() == name.lower()), None)

    @property
    def offered(self) -> list[str]:
        """The subprotocols that the client offers, in order."""
        values = [value for key, value in self.request_headers if key.lower() == "sec-websocket-protocol"]
        return [entry.strip() for value in values for entry in value.split(",")]

    def read_request(self) -> None:
        """Read the head of the client's request; nothing where that has been done.

        Raises:
            Gone: The client has hung up.
            TimeoutError: None came.
        """
        if not self.request_line:
            self.request_line, *lines = self._read_head().split("\r\n")
            self.request_headers = parse_headers(lines)

    def upgrade(
        self,
        protocol: str | None = "",
        *,
        changes: Mapping[str, str | None] | None = None,
        status: str = "101 Switching Protocols",
        behind: bytes = b"",
    ) -> None:
        """Read the request and answer it as a good server would, but for what is asked for.

        Args:
            protocol: The subprotocol to select; "": the first `muxws.v1.` one that is offered; None: none.
            changes: Headers to set in place of the good ones or besides, and with the value None to leave out.
            status: What the status line says behind the version.
            behind: What to send in the same packet, behind the head.

        Raises:
            Gone: The client has hung up.
            TimeoutError: No request came.
        """
        self.read_request()
        if protocol == "":
            protocol = next((entry for entry in self.offered if entry.startswith(_MUXWS)), None)
        headers: dict[str, str | None] = {
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Accept": accept_value(self.header("Sec-WebSocket-Key") or ""),
            "Sec-WebSocket-Protocol": protocol,
            **(changes or {}),
        }
        given = [(name, value) for name, value in headers.items() if value is not None]
        self.respond(status, given, behind)

    def respond(self, status: str, headers: Iterable[tuple[str, str]] = (), body: bytes = b"") -> None:
        """Read the request and answer it with this.

        Args:
            status: What the status line says behind the version, such as "403 Forbidden".
            headers: All the headers, as (name, value).
            body: What follows the head.

        Raises:
            Gone: The client has hung up.
            TimeoutError: No request came.
        """
        self.read_request()
        lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers)]
        self.send_bytes("\r\n".join([*lines, "", ""]).encode("latin-1") + body)


#: What a connection does.
Script: TypeAlias = Callable[[RawConnection], object]


class RawServer:
    """Listens from the moment that it is made. As a context manager it is closed on leaving.

    Args:
        scripts: The first connection runs the first, and so on; the last one is for all that follow. Without any,
            connections wait for `accept`.
        listen: Where: `(host, port)` with a numeric host, or the path of a Unix socket; None: the loopback interface,
            with a port from the kernel.
        upgrade: Answer each request as a good server does, before its script. False leaves that to the script.
        ssl_context: Makes it a TLS server; a handshake that fails is a connection that never was.
        receive_buffer_bytes: SO_RCVBUF, for readers whose slowness is to be felt early; None leaves it to the kernel.
        codec, clock, timeout: As `RawEnd` has them, for each connection.

    Attributes:
        connections: All that have been accepted, in order.
        ssl_context: As given; may be changed for connections to come, to None as well.
        failed_handshakes: How many TLS handshakes have failed.
        errors: What scripts have raised besides `Gone`.

    Raises:
        OSError: One cannot listen there.
    """

    def __init__(
        self,
        *scripts: Script,
        listen: Address | None = None,
        upgrade: bool = True,
        ssl_context: ssl.SSLContext | None = None,
        receive_buffer_bytes: int | None = None,
        codec: ICodec | str = "json",
        clock: IClock = default_clock,
        timeout: float = PATIENCE,
    ) -> None:
        self.connections: list[RawConnection] = []
        self.failed_handshakes = 0
        self.errors: list[BaseException] = []
        self._scripts: deque[Script] = deque(scripts)
        self._upgrade = upgrade
        self.ssl_context = ssl_context
        self._codec, self._clock, self._timeout = codec, clock, timeout
        self._waiting: deque[RawConnection] = deque()
        self._changed = Event()
        self._running: set[gevent.Greenlet[..., None]] = set()
        self._closed = False
        self._listener = Listener(listen, self._accepted, receive_buffer_bytes=receive_buffer_bytes)

    @property
    def address(self) -> Address:
        """`(host, port)`, or the path of the Unix socket."""
        return self._listener.address

    @property
    def port(self) -> int:
        """The TCP port.

        Raises:
            AttributeError: It listens on a Unix socket.
        """
        if isinstance(self.address, str):
            raise AttributeError("a Unix socket has no port")
        return self.address[1]

    @property
    def url(self) -> str:
        """What to dial. With TLS the host is `localhost`, and else the address itself."""
        if isinstance(self.address, str):
            return f"ws+unix://{self.address}:/"
        if self.ssl_context is not None:
            return f"wss://localhost:{self.port}/"
        return f"ws://{url_place(self.address)}/"

    @property
    def gaps(self) -> list[float]:
        """The seconds between one connection and the next."""
        return [after.opened_at - before.opened_at for before, after in pairwise(self.connections)]

    def accept(self, timeout: float | None = None) -> RawConnection:
        """The next connection that no script has taken, upgraded unless the server leaves that to the test.

        Args:
            timeout: Seconds of the server's clock; None: the server's own.

        Raises:
            TimeoutError: None came.
        """
        seconds = self._timeout if timeout is None else timeout
        with Deadline(self._clock, seconds, f"no connection within {seconds} seconds"):
            while not self._waiting:
                self._changed.clear()
                self._changed.wait()
        return self._waiting.popleft()

    def refuse(self) -> None:
        """Listen no more, as a server that has crashed; connections that are there go on."""
        self._listener.refuse()

    def admit(self) -> None:
        """Listen again, in the same place."""
        self._listener.admit()

    def close(self) -> None:
        """Stop listening, end every script, close every connection; any number of times.

        Raises:
            Exception: The first error of a script, with notes about the others. Only the first call does.
        """
        if self._closed:
            return
        self._shut()
        if self.errors:
            first, *others = self.errors
            for other in others:
                first.add_note(f"and another script: {other!r}")
            raise first

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        self._shut()
        for other in self.errors:
            error.add_note(f"and in a script of the raw server: {other!r}")

    def _shut(self) -> None:
        self._closed = True
        self._listener.close()
        gevent.killall(list(self._running))
        for connection in self.connections:
            connection.close()

    def _accepted(self, sock: GeventSocket) -> None:
        running = gevent.Greenlet(self._run, sock)
        running.name = f"script of {self.address}"
        self._running.add(running)
        running.link(self._running.discard)
        running.start()

    def _run(self, sock: GeventSocket) -> None:
        try:
            if self.ssl_context is not None:
                secured = self._secure(sock, self.ssl_context)
                if secured is None:
                    return
                sock = secured
            connection = RawConnection(sock, codec=self._codec, clock=self._clock, timeout=self._timeout)
        except BaseException:
            sock.close()
            raise
        self.connections.append(connection)
        try:
            script = self._next_script()
            if self._upgrade:
                connection.upgrade()
            if script is None:
                self._waiting.append(connection)
                self._changed.set()
            else:
                script(connection)
        except Gone:
            connection.close()
        except (Exception, gevent.Timeout) as error:
            # Raised again when the server is closed; here nobody would hear it.
            self.errors.append(error)
            connection.close()

    def _secure(self, sock: GeventSocket, context: ssl.SSLContext) -> GeventSocket | None:
        """A TLS socket, whichever kind of context it is; None where there is no agreement with the client."""
        secured = SSLSocket(sock, server_side=True, do_handshake_on_connect=False, _context=context)
        try:
            with Deadline(self._clock, self._timeout, "no TLS handshake"):
                secured.do_handshake()
        except OSError:
            secured.close()
            self.failed_handshakes += 1
            return None
        except BaseException:
            secured.close()
            raise
        return secured

    def _next_script(self) -> Script | None:
        if len(self._scripts) > 1:
            return self._scripts.popleft()
        return self._scripts[0] if self._scripts else None


def accept_value(key: str) -> str:
    """What a server proves with that it has understood the handshake (RFC 6455 §4.2.2)."""
    digest = hashlib.sha1((key + _GUID).encode("latin-1"), usedforsecurity=False).digest()
    return base64.b64encode(digest).decode()
