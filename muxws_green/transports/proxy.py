"""A tunnel through an HTTP proxy (CONNECT, RFC 9110 §9.3.6).

Invariant: not one byte behind the head of the proxy's answer is read, since it belongs to whatever speaks through the
tunnel. A proxy is used only where the caller asks for one; no message shows its credentials. Used by the dialer.
"""

from __future__ import annotations

import re
import socket
from base64 import b64encode
from dataclasses import dataclass, field
from typing import NoReturn
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from gevent.socket import socket as GeventSocket  # noqa: N812

from muxws_green.errors import HandshakeRefused, TransportUnsupportedError, TransportUrlError
from muxws_green.transports.urls import Target
from muxws_green.websocket import HandshakeError

#: How long the head of a proxy's answer may be.
MAX_HEAD_BYTES = 65_536

_status_line = re.compile(r"HTTP/1\.[01] ([1-5][0-9][0-9])(?: .*)?", re.DOTALL).fullmatch
_END = b"\r\n\r\n"


class ProxyRefused(HandshakeRefused):
    """The proxy, not the server behind it, would not open the tunnel; 407 asks for other credentials."""

    def __init__(self, status: int, headers: list[tuple[str, str]]) -> None:
        super().__init__(status, headers)
        self.args = (f"the proxy answered CONNECT with HTTP {status}",)


@dataclass(frozen=True, slots=True)
class HttpProxy:
    """Where a proxy is, and what it wants to know."""

    host: str
    port: int
    authorization: str | None = field(default=None, repr=False)


def parse_proxy(url: str) -> HttpProxy:
    """The proxy of `http://[user:password@]host:port`; the port is 80 where it is left out.

    Raises:
        TransportUrlError: Not such a URL. The message leaves it out.
        TransportUnsupportedError: A kind of proxy that is not spoken here: SOCKS, or HTTP inside TLS.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        user = None if parts.username is None else unquote(parts.username, errors="strict")
        password = unquote(parts.password or "", errors="strict")
        (host or "").encode("idna")
    except ValueError:
        _bad_proxy("its host, port or percent-encoding is malformed")
    scheme = parts.scheme
    if scheme in ("https", "socks", "socks4", "socks4a", "socks5", "socks5h"):
        raise TransportUnsupportedError(f"a proxy of the kind {scheme}: is not supported; an http: proxy is")
    if scheme != "http" or not host or port == 0:
        _bad_proxy("it has the form http://user:password@host:port")
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        _bad_proxy("path, query and fragment have no meaning there")
    if user is None:
        return HttpProxy(host, port or 80)
    if ":" in user:
        _bad_proxy("a user name for Basic authentication holds no colon (RFC 7617 §2)")
    return HttpProxy(host, port or 80, "Basic " + b64encode(f"{user}:{password}".encode()).decode())


def proxy_from_environment(target: Target) -> HttpProxy | None:
    """The proxy that the environment, or the system's settings, name for `target`; None where none is to be used.

    Looks at `no_proxy`, then at `wss_proxy`, `https_proxy`, `all_proxy` for TLS, and at `ws_proxy`, `https_proxy`,
    `http_proxy`, `all_proxy` without (RFC 6455 §4.1 prefers the proxy for TLS in both cases).
    """
    if proxy_bypass(target.place):
        return None
    found = getproxies()
    for kind in ("wss", "https", "all") if target.secure else ("ws", "https", "http", "all"):
        url = found.get(kind)
        if url:
            return parse_proxy(url if "://" in url else f"http://{url}")
    return None


def open_tunnel(sock: GeventSocket, proxy: HttpProxy, target: Target) -> None:
    """Ask the proxy at the other end of `sock` for a connection to `target`; what is sent afterwards goes there.

    Raises:
        ProxyRefused: It answered with anything but 2xx.
        HandshakeError: It did not answer, or not in HTTP.
    """
    lines = [f"CONNECT {target.place} HTTP/1.1", f"Host: {target.place}"]
    if proxy.authorization is not None:
        lines.append(f"Proxy-Authorization: {proxy.authorization}")
    sock.sendall("\r\n".join([*lines, "", ""]).encode("ascii"))
    first, *rest = _read_head(sock).decode("latin-1").split("\r\n")
    match = _status_line(first)
    if match is None:
        raise HandshakeError("the proxy does not speak HTTP/1.1")
    status = int(match[1])
    if not 200 <= status < 300:
        fields = [line.partition(":") for line in rest if ":" in line]
        raise ProxyRefused(status, [(name, value.strip()) for name, _, value in fields])


def _read_head(sock: GeventSocket) -> bytes:
    """Everything up to the empty line, which is taken too. Looks before it takes."""
    head = b""
    while True:
        seen = sock.recv(4096, socket.MSG_PEEK)
        if not seen:
            raise HandshakeError("the proxy closed the connection before it had answered")
        end = (head + seen).find(_END, max(0, len(head) - len(_END) + 1))
        taken = len(seen) if end < 0 else end + len(_END) - len(head)
        head += sock.recv(taken)
        if end >= 0:
            return head[:end]
        if len(head) > MAX_HEAD_BYTES:
            raise HandshakeError(f"the head of the proxy's answer is over {MAX_HEAD_BYTES} bytes")


def _bad_proxy(fault: str) -> NoReturn:
    raise TransportUrlError(f"not the URL of a proxy: {fault}") from None
