"""Dialling: from a URL to an open WebSocket whose subprotocol is agreed, or to one exception and nothing left open.

Everything that the caller chose is judged in the constructor; a dial can fail only for what it meets. One deadline is
over all of it, names, TCP, proxy, TLS and the upgrade together (C36). A `Dialer` may dial any number of times, one
dial at a time or several; each resolves the name and makes the handshake anew.
"""

from __future__ import annotations

import math
import ssl
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from gevent.socket import socket as GeventSocket  # noqa: N812
from zope.interface import implementer

from muxws_green.codecs import registered_codecs
from muxws_green.errors import CodecMismatch, HandshakeRefused, TransportUrlError
from muxws_green.interfaces import IClock, IDialer
from muxws_green.protocol.subprotocol import PREFIX, mismatch
from muxws_green.runtime.turns import turns_of
from muxws_green.transports import tls
from muxws_green.transports.deadline import Deadline
from muxws_green.transports.network import connect_tcp, connect_unix
from muxws_green.transports.proxy import HttpProxy, open_tunnel, parse_proxy, proxy_from_environment
from muxws_green.transports.socket import READ_BYTES, SocketTransport, wait_to_read
from muxws_green.transports.urls import Target, parse_url
from muxws_green.websocket import ClientHandshake, HandshakeAnswer, UpgradeRequest, WsUri

_POLICY_VIOLATION = 1008


@implementer(IDialer)
class Dialer:
    """Opens WebSockets to one URL.

    Args:
        url: `ws://`, `wss://` or `ws+unix:///path.sock:/route`. User info in it is sent as Basic authentication.
        subprotocols: What to offer; the first is `muxws.v1.<codec>` and must be selected, further ones are the
            application's and ignored.
        headers: Further headers of the request, as a mapping or as (name, value) pairs. Not those of the handshake
            itself; `Host` and `Authorization` take the place of ours.
        ssl_context: For `wss://`; gevent's or the standard library's, with client certificates if any. None: one that
            trusts the system's authorities and checks the host's name.
        proxy: `http://user:password@host:port` of a proxy to go through; True: the one that the environment names, if
            it names one, read now; None or False: none, whatever the environment says (C57).
        open_timeout: Seconds for one dial as a whole, above 0; None: no deadline.
        clock: Tells the time of the deadline.
        max_message_bytes: See `SocketTransport`.

    Raises:
        TransportUrlError: `url` or `proxy` cannot be dialled, or an option contradicts the URL.
        TransportUnsupportedError: The platform has no Unix sockets, or the proxy is of a kind that is not supported.
        ValueError: A header or a subprotocol that HTTP does not allow, or a timeout that is not above 0.
        TypeError: `ssl_context` is something else.
    """

    def __init__(
        self,
        url: str,
        *,
        subprotocols: Sequence[str],
        headers: Mapping[str, str] | Iterable[tuple[str, str]] | None = None,
        ssl_context: ssl.SSLContext | None = None,
        proxy: str | bool | None = None,
        open_timeout: float | None = 10.0,
        clock: IClock,
        max_message_bytes: int,
    ) -> None:
        if not subprotocols:
            raise ValueError("subprotocols must have at least one entry, muxws.v1.<codec>")
        if open_timeout is not None and (math.isnan(open_timeout) or open_timeout <= 0):
            raise ValueError(f"open_timeout must be above 0 seconds or None, got {open_timeout!r}")
        self._target = parse_url(url)
        self._subprotocols = tuple(subprotocols)
        self._ssl_context = _context_for(self._target, ssl_context)
        self._proxy = _proxy_for(self._target, proxy)
        self._open_timeout = open_timeout
        self._too_late = f"no connection to {self._target.place} within {open_timeout} seconds"
        self._clock = clock
        self._max_message_bytes = max_message_bytes
        # Raises for whatever cannot be written into a request.
        self._request = _request_for(
            self._target.wanted,
            self._subprotocols,
            tuple((headers.items() if isinstance(headers, Mapping) else headers) or ()),
        )

    def dial(self) -> SocketTransport:
        """Open a connection; see `IDialer.dial`. Blocks the calling greenlet only.

        Raises:
            CodecMismatch: The server answered 400, or selected another subprotocol or none; in the latter case it has
                been sent a close frame 1008.
            HandshakeRefused: It answered with another status, a redirect included, which is not followed;
                `ProxyRefused` where the proxy did.
            TimeoutError: `open_timeout` has passed, however far the dial had come.
            OSError: The network, TLS, or an answer that is no answer (`HandshakeError`).
        """
        with Deadline(self._clock, self._open_timeout, self._too_late) as deadline:
            sock = self._connect(deadline)
            try:
                if self._proxy is not None:
                    open_tunnel(sock, self._proxy, self._target)
                if self._ssl_context is not None:
                    secure = tls.wrap(sock, self._ssl_context, self._target.host)
                    sock = secure
                    secure.do_handshake()
                return self._judge(sock, self._upgrade(sock))
            except BaseException:
                sock.close()
                raise

    def _connect(self, deadline: Deadline) -> GeventSocket:
        if self._target.socket_path is not None:
            return connect_unix(self._target.socket_path, self._clock)
        place = self._proxy or self._target
        return connect_tcp(place.host, place.port, self._clock, deadline)

    def _upgrade(self, sock: GeventSocket) -> HandshakeAnswer:
        handshake = ClientHandshake(self._request)
        request = handshake.request()
        # In most cases that is all, and costs less than `sendall`.
        sent = sock.send(request)
        if sent < len(request):
            sock.sendall(request[sent:])
        while True:
            if self._ssl_context is None:
                # What has just been asked for takes a moment.
                wait_to_read(sock, turns_of(sock.hub))  # type: ignore[attr-defined]
            data = sock.recv(READ_BYTES)
            if not data:
                handshake.feed_eof()
            answer = handshake.feed(data)
            if answer is not None:
                return answer

    def _judge(self, sock: GeventSocket, answer: HandshakeAnswer) -> SocketTransport:
        if answer.status == 400:
            raise self._mismatch(answer)
        if answer.status != 101:
            raise HandshakeRefused(answer.status, answer.headers)
        transport = SocketTransport(
            sock, client=True, max_message_bytes=self._max_message_bytes, leftover=answer.leftover
        )
        if answer.subprotocol != self._subprotocols[0]:
            transport.abort(_POLICY_VIOLATION)
            raise self._mismatch(answer)
        return transport

    def _mismatch(self, answer: HandshakeAnswer) -> CodecMismatch:
        selected = answer.subprotocol
        if selected is not None and not selected.startswith(PREFIX):
            # It may be one of the application's entries, and those may be credentials.
            selected = "an entry that is not ours"
        return mismatch(
            self._subprotocols[0].removeprefix(PREFIX),
            status=answer.status,
            selected=selected,
            available=registered_codecs(),
        )


def _request_for(wanted: WsUri, subprotocols: tuple[str, ...], headers: tuple[tuple[str, str], ...]) -> UpgradeRequest:
    # Whatever the caller adds may be a credential, which must not outlive the connections that it is for.
    if headers or len(subprotocols) > 1 or wanted.user_info is not None or "?" in wanted.resource_name:
        return UpgradeRequest(wanted, subprotocols=subprotocols, headers=headers)
    return _remembered_request(wanted, subprotocols)


@lru_cache(maxsize=32)
def _remembered_request(wanted: WsUri, subprotocols: tuple[str, ...]) -> UpgradeRequest:
    return UpgradeRequest(wanted, subprotocols=subprotocols)


def _context_for(target: Target, context: ssl.SSLContext | None) -> ssl.SSLContext | None:
    if not target.secure:
        if context is not None:
            raise TransportUrlError("ssl_context is for wss:// URLs; this one has no TLS")
        return None
    if context is None:
        context = tls.default_context()
    tls.check_context(context, target.host)
    return context


def _proxy_for(target: Target, proxy: str | bool | None) -> HttpProxy | None:
    if not proxy:
        return None
    if target.socket_path is not None:
        if proxy is True:
            return None
        raise TransportUrlError("a Unix socket is not reached through a proxy")
    return proxy_from_environment(target) if proxy is True else parse_proxy(proxy)
