"""gunicorn's `-k gevent` worker, which parses HTTP by itself.

Its parser reads ahead into a buffer, which holds the first frames of a hasty client. When the application returns, the
worker reads the socket for the next request, and a descriptor that is closed by then would be reported as an error; so
the parser is left with a source that is at its end. The 101 goes out through gunicorn and is in its access log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse
    from gevent.socket import socket as GeventSocket  # noqa: N812

    from muxws_green.websocket import UpgradeAnswer


class _AtItsEnd:
    """Stands in for a socket whose other side has closed it."""

    def recv(self, size: int) -> bytes:
        return b""


class GunicornHost:
    """One request under gunicorn's own parser. Made by `find`."""

    #: An empty body, as all has been said.
    finish: Callable[[], list[bytes]] = staticmethod(list)

    def __init__(self, sock: GeventSocket, unreader: Any, start_response: StartResponse) -> None:
        self.sock = sock
        self._unreader = unreader
        self._start_response = start_response

    @classmethod
    def find(cls, environ: dict[str, Any], start_response: StartResponse) -> GunicornHost | None:
        """The host of this request, or None where it is another one."""
        sock = environ.get("gunicorn.socket")
        unreader = getattr(getattr(environ.get("wsgi.input"), "reader", None), "unreader", None)
        return None if sock is None or unreader is None else cls(sock, unreader, start_response)

    def switch(self, answer: UpgradeAnswer) -> bytes:
        """Send the 101 through gunicorn and take what its parser has read ahead."""
        write = self._start_response(f"{answer.status} {answer.reason}", answer.headers)
        try:
            write(b"")
        except OSError:
            # The client has gone; gunicorn must not try again to send the head when the application returns.
            response = getattr(write, "__self__", None)
            if response is not None:
                response.headers_sent = True
        leftover: bytes = self._unreader.buf.getvalue()
        self._unreader.buf.seek(0)
        self._unreader.buf.truncate()
        self._unreader.sock = _AtItsEnd()
        return leftover

    def detach(self) -> bool:
        """Never: the worker closes its socket when the application returns."""
        return False
