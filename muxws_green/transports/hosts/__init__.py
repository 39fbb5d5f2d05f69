"""How to get at the socket below a WSGI request: one module for each kind of host, found by what the request offers.

The invariant of every host: after `switch` nothing of the host reads or writes the socket any more, whatever it does
when the application returns. `SERVER_SOFTWARE` is never looked at. Called by the acceptor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gevent.socket import socket as GeventSocket  # noqa: N812

from muxws_green.errors import TransportUnsupportedError
from muxws_green.transports.hosts.base import Host
from muxws_green.transports.hosts.gunicorn import GunicornHost
from muxws_green.transports.hosts.pywsgi import PywsgiHost

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse

_HOSTS = "gevent.pywsgi, muxws_green.Server, gunicorn with -k gevent, gevent_wsgi or gevent_pywsgi, or gevent-websocket"


def find_host(environ: dict[str, Any], start_response: StartResponse) -> Host:
    """The host of this request.

    Args:
        environ: The request.
        start_response: The server's own or one that passes on to it.

    Raises:
        TransportUnsupportedError: No socket can be had, or not one of gevent's; the message says what would work.
    """
    host = PywsgiHost.find(environ, start_response) or GunicornHost.find(environ, start_response)
    if host is None:
        raise TransportUnsupportedError(f"this WSGI server does not give its socket away; serve with {_HOSTS}")
    if isinstance(host.sock, GeventSocket):
        return host
    if hasattr(host.sock, "do_handshake"):
        raise TransportUnsupportedError(
            "the server's TLS socket is the standard library's and would block every greenlet; "
            "give the server a gevent.ssl.SSLContext"
        )
    raise TransportUnsupportedError(
        f"the server's socket is not one of gevent's and would block every greenlet; serve with {_HOSTS}"
    )


def read_no_further(start_response: StartResponse | None) -> None:
    """Have the host close the connection after the answer to this request, where `start_response` is the host's own."""
    response: Any = getattr(start_response, "__self__", None)
    if hasattr(response, "force_close"):
        response.force_close()
    elif hasattr(response, "close_connection"):
        response.close_connection = True
