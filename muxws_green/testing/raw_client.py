"""A dialler that says exactly what a test tells it to, in the handshake too."""

from __future__ import annotations

import math
import socket
import ssl
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from gevent.socket import socket as GeventSocket  # noqa: N812

from muxws_green.interfaces import IClock, ICodec
from muxws_green.runtime.clock import default_clock
from muxws_green.testing.raw import PATIENCE, RawEnd, parse_headers
from muxws_green.transports import tls
from muxws_green.transports.deadline import Deadline
from muxws_green.transports.network import connect_tcp, connect_unix
from muxws_green.transports.urls import Target, parse_url
from muxws_green.websocket import parse_ws_uri

#: The nonce of every handshake; any sixteen bytes will do.
HANDSHAKE_KEY = "dGhlIHNhbXBsZSBub25jZQ=="


class RawAnswer(NamedTuple):
    """The head of an HTTP answer.

    Attributes:
        status: Such as 101.
        headers: (name, value) in the order of the lines.
    """

    status: int
    headers: list[tuple[str, str]]

    def header(self, name: str) -> str | None:
        """The first value of a header, whatever the case of its name; None where there is none."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)


class RawClient(RawEnd):
    """A connection to a server, upgraded unless a test wants to do that itself.

    Args:
        url: `ws://`, `wss://` or `ws+unix://`, as `connect` takes them.
        upgrade: Make the handshake now, which must succeed. False: only connect.
        protocols: The subprotocols to offer; None: `muxws.v1.<codec>`; empty: none.
        headers: Further headers of the request, and with the value None those to leave out.
        ssl_context: For `wss://`; None: one that checks nothing.
        receive_buffer_bytes: SO_RCVBUF, for a reader whose slowness is to be felt early; None leaves it to the kernel.
        codec, clock, timeout: As `RawEnd` has them.

    Attributes:
        answer_head: The server's answer to the request; None before it has come.

    Raises:
        AssertionError: The server did not answer the upgrade with 101.
        Gone: It has hung up.
        TransportUrlError, OSError, TimeoutError: It cannot be reached.
    """

    def __init__(
        self,
        url: str,
        *,
        upgrade: bool = True,
        protocols: Sequence[str] | None = None,
        headers: Mapping[str, str | None] | None = None,
        ssl_context: ssl.SSLContext | None = None,
        receive_buffer_bytes: int | None = None,
        codec: ICodec | str = "json",
        clock: IClock = default_clock,
        timeout: float = PATIENCE,
    ) -> None:
        target = parse_url(url)
        self._uri = target.uri
        with Deadline(clock, timeout, f"no connection to {target.place} within {timeout} seconds"):
            sock = _connect(target, ssl_context, receive_buffer_bytes)
        super().__init__(sock, client=True, codec=codec, clock=clock, timeout=timeout)
        self.answer_head: RawAnswer | None = None
        self._protocols = [f"muxws.v1.{self.codec.name}"] if protocols is None else list(protocols)
        self._headers = dict(headers or {})
        if upgrade:
            try:
                self.upgrade()
            except BaseException:
                self.close()
                raise

    def upgrade(self) -> RawAnswer:
        """Make the handshake.

        Raises:
            AssertionError: The answer is not 101; it is in `answer_head`.
        """
        self.send_request()
        answer = self.read_answer()
        if answer.status != 101:
            raise AssertionError(f"the server answered the upgrade with {answer.status}")
        return answer

    def request_bytes(
        self,
        changes: Mapping[str, str | None] | None = None,
        *,
        method: str = "GET",
        target: str | None = None,
        version: str = "HTTP/1.1",
        lines: Iterable[str] = (),
    ) -> bytes:
        """The request of a handshake, good but for what is asked for.

        Args:
            changes: Headers to set in place of the good ones or besides, and with the value None to leave out.
            method: Of the request line, like the next two.
            target: None: the path and query of the URL.
            version: The version of HTTP.
            lines: Further lines, as they are.
        """
        uri = parse_ws_uri(self._uri)
        host = f"[{uri.host}]" if ":" in uri.host else uri.host
        headers: dict[str, str | None] = {
            "Host": f"{host}:{uri.port}",
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": HANDSHAKE_KEY,
            "Sec-WebSocket-Protocol": ", ".join(self._protocols) or None,
            **self._headers,
            **(changes or {}),
        }
        start = f"{method} {uri.resource_name if target is None else target} {version}"
        given = [f"{name}: {value}" for name, value in headers.items() if value is not None]
        return "\r\n".join([start, *given, *lines, "", ""]).encode("latin-1")

    def send_request(self, changes: Mapping[str, str | None] | None = None, *, behind: bytes = b"", **how: Any) -> None:
        """Send the request of a handshake.

        Args:
            changes: As `request_bytes` has them.
            behind: What to send in the same packet, behind the head.
            how: The further arguments of `request_bytes`.
        """
        self.send_bytes(self.request_bytes(changes, **how) + behind)

    def read_answer(self) -> RawAnswer:
        """The head of the server's answer; what follows it is left to be read.

        Raises:
            Gone: The server has hung up.
            TimeoutError: None came.
        """
        status_line, *lines = self._read_head().split("\r\n")
        version, _, rest = status_line.partition(" ")
        status = rest[:3]
        if not version.startswith("HTTP/") or not status.isdigit():
            raise AssertionError(f"an HTTP answer does not begin with {status_line!r}")
        self.answer_head = RawAnswer(int(status), parse_headers(lines))
        return self.answer_head


def _connect(target: Target, context: ssl.SSLContext | None, receive_buffer_bytes: int | None) -> GeventSocket:
    # The deadline around this is the caller's; an address has all of it.
    if target.socket_path is not None:
        sock: GeventSocket = connect_unix(target.socket_path, default_clock)
    else:
        with Deadline(default_clock, math.inf, "") as forever:
            sock = connect_tcp(target.host, target.port, default_clock, forever)
    try:
        if receive_buffer_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        if target.secure:
            secure = tls.wrap(sock, context or _trusting_context(), target.host)
            sock = secure
            secure.do_handshake()
    except BaseException:
        sock.close()
        raise
    return sock


def _trusting_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
