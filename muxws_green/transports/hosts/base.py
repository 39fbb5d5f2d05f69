"""What the acceptor needs of a host, whichever it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from gevent.socket import socket as GeventSocket  # noqa: N812

if TYPE_CHECKING:
    from muxws_green.websocket import UpgradeAnswer


class Host(Protocol):
    """One request's way to its socket."""

    #: The socket; `SSLSocket` under TLS.
    sock: GeventSocket

    def switch(self, answer: UpgradeAnswer) -> bytes:
        """Send the 101 and take the socket over.

        Returns what the host had read beyond the request. A client that has gone meanwhile raises nothing: the first
        read of the socket will tell.

        Raises TransportUnsupportedError where an answer has begun already.
        """

    def finish(self) -> Any:
        """The connection is over: see that the host reads no second request from it. Returns the WSGI body."""

    def detach(self) -> bool:
        """Let the request end now while the socket lives on; False where the host cannot."""
