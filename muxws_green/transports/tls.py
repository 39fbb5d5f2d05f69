"""TLS on the dialling side, without blocking the hub.

`SSLContext.wrap_socket` of the standard library waits in the kernel and stops every greenlet; so the socket object is
always gevent's, whichever kind of context the caller made. Used by the dialer.
"""

from __future__ import annotations

import ssl

from gevent import ssl as gevent_ssl
from gevent.socket import socket as GeventSocket  # noqa: N812

from muxws_green.errors import TransportUrlError


def default_context() -> ssl.SSLContext:
    """A context that trusts the system's authorities and checks the certificate and the host's name."""
    # gevent.ssl.create_default_context() returns the standard library's class.
    context = gevent_ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_default_certs()
    context.set_alpn_protocols(["http/1.1"])
    return context


def check_context(context: ssl.SSLContext, host: str) -> None:
    """Find out before anything is opened whether `wrap` will work.

    Raises:
        TypeError: Not an `ssl.SSLContext`.
        TransportUrlError: A context for servers, or a host that TLS cannot name.
    """
    if not isinstance(context, ssl.SSLContext):
        raise TypeError(f"ssl_context must be an ssl.SSLContext, not {type(context).__name__}")
    try:
        context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_side=False, server_hostname=host)
    except (ValueError, ssl.SSLError) as error:
        raise TransportUrlError(f"TLS with host {host!r} is not possible: {error}") from error


def wrap(sock: GeventSocket, context: ssl.SSLContext, host: str) -> gevent_ssl.SSLSocket:
    """A TLS socket that has taken the descriptor of `sock` over; `do_handshake()` is still to be called.

    Args:
        sock: A connected socket; empty afterwards.
        context: gevent's or the standard library's.
        host: Sent as SNI and, with `check_hostname`, compared with the certificate; a name or an IP address.
    """
    # Not in the constructor: what interrupts a handshake there leaves an object that nobody can close.
    return gevent_ssl.SSLSocket(
        sock=sock, server_side=False, server_hostname=host, do_handshake_on_connect=False, _context=context
    )
