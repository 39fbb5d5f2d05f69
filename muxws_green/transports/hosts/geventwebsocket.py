"""gevent-websocket as a host: before its upgrade, and after it. Its frames are never used.

Before: its handler answers 101 before the application runs, to any request and with a subprotocol found by a substring
test, so the application can refuse nothing. It is kept from that by `pre_start_hook=leave_upgrade_to_app` on a
`WebSocketServer`, by `WSGIServer(handler_class=GreenWebSocketHandler)`, or under gunicorn by
`-k muxws_green.transports.hosts.geventwebsocket.GreenWebSocketWorker`. The request is then one of pywsgi.

After: `UpgradedHost` takes the socket of an `environ["wsgi.websocket"]`. The handler's closing is silenced: its close
frames have no code.

Importing this module needs neither gevent-websocket nor gunicorn; the two classes come into being when asked for.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from muxws_green.errors import TransportUnsupportedError
from muxws_green.transports.hosts.pywsgi import take_buffered

if TYPE_CHECKING:
    from gevent.socket import socket as GeventSocket  # noqa: N812

    from muxws_green.websocket import UpgradeAnswer


def leave_upgrade_to_app(handler: Any) -> bool:
    """A `pre_start_hook` for gevent-websocket's servers: whether the application is to do the upgrade of this request.

    True for every request that offers a subprotocol of muxws, whatever its version or codec, so that `accept` can
    answer it with 101, 400 or 403. Other WebSocket requests stay with gevent-websocket.
    """
    return "muxws.v" in handler.environ.get("HTTP_SEC_WEBSOCKET_PROTOCOL", "")


@cache
def _handler_class() -> type[Any]:
    from geventwebsocket.handler import WebSocketHandler

    class GreenWebSocketHandler(WebSocketHandler):  # type: ignore[misc]
        """gevent-websocket's handler; upgrades that offer a muxws subprotocol are left to the application."""

        def upgrade_websocket(self) -> Any:
            return None if leave_upgrade_to_app(self) else super().upgrade_websocket()

    return GreenWebSocketHandler


@cache
def _worker_class() -> type[Any]:
    from geventwebsocket.gunicorn.workers import GeventWebSocketWorker

    class GreenWebSocketWorker(GeventWebSocketWorker):  # type: ignore[misc]
        """gevent-websocket's gunicorn worker; upgrades that offer a muxws subprotocol are left to the application."""

        wsgi_handler = _handler_class()

    return GreenWebSocketWorker


def __getattr__(name: str) -> Any:
    """Make `GreenWebSocketHandler` or `GreenWebSocketWorker`; ImportError where what it is made of is not installed."""
    if name == "GreenWebSocketHandler":
        return _handler_class()
    if name == "GreenWebSocketWorker":
        return _worker_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class UpgradedHost:
    """A connection that gevent-websocket has upgraded already.

    Args:
        ws: The object in `environ["wsgi.websocket"]`, not used before.

    Raises:
        TransportUnsupportedError: It is closed, or no WebSocket of gevent-websocket.
    """

    def __init__(self, ws: Any) -> None:
        handler: Any = getattr(ws, "handler", None)
        if not hasattr(handler, "rfile") or not hasattr(handler, "response_headers"):
            raise TransportUnsupportedError(
                f"{type(ws).__name__} is no WebSocket of gevent-websocket; give accept() a WSGI environ instead"
            )
        if ws.closed:
            raise TransportUnsupportedError("this WebSocket is closed, or has been taken over before")
        self.environ: dict[str, Any] = ws.environ
        self.sock: GeventSocket = handler.socket
        self._ws = ws
        self._handler = handler

    @property
    def selected(self) -> str | None:
        """The subprotocol in the 101 that has been sent; None where it names none."""
        for name, value in self._handler.response_headers:
            if name.lower() == b"sec-websocket-protocol":
                return str(value, "latin-1")
        return None

    def switch(self, answer: UpgradeAnswer) -> bytes:
        """Take the socket over; the 101 has been sent."""
        ws, handler = self._ws, self._handler
        ws.closed = True
        ws.stream = ws.raw_read = ws.raw_write = None
        leftover = take_buffered(handler.rfile, self.sock)
        handler.rfile.close()
        handler.close_connection = True
        return leftover

    def finish(self) -> list[bytes]:
        """An empty body, which the handler ignores."""
        # It deletes its entry by the client's address, which all clients of a Unix socket share.
        self._handler.server.clients.setdefault(self._handler.client_address, None)
        return []

    def detach(self) -> bool:
        """Never: the handler closes its socket when the application returns."""
        return False
