"""A pywsgi server that knows its peers, gives a request's head no longer than it needs, and can stop.

pywsgi alone waits for ever for half a request (C27), and when it stops, every WebSocket goes on (C19). Here each
connection is watched until its request is complete, and `drain` sends the peers away, lets what is being answered
finish, and ends what is left. The invariant: a socket has one owner. It is this server's until an application lets its
request end while the peer lives (`Upgraded.detach`); from then on it is the peer's alone.
"""

from __future__ import annotations

import inspect
import logging
import os
import ssl
from collections.abc import Callable
from http.client import HTTPException, LineTooLong
from time import monotonic
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import gevent
from gevent import pywsgi
from gevent.event import Event
from gevent.ssl import SSLContext, SSLSocket

from muxws_green.runtime import roster
from muxws_green.runtime.options import checked_seconds
from muxws_green.transports.acceptor import SERVER_KEY
from muxws_green.transports.descriptors import make_room
from muxws_green.transports.upgradable import upgradable
from muxws_green.websocket.handshake import MAX_HEAD_BYTES

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication
    from gevent.socket import socket as GeventSocket  # noqa: N812

#: How long the greenlets of connections may take to end once their peers are gone, in seconds, before they are killed.
ENDING_SECONDS = 0.5

log = logging.getLogger("muxws.server")


class Server(pywsgi.WSGIServer):
    """A WSGI server for gevent whose peers are closed when it stops, and whose listener may be TCP or Unix, with TLS.

    Views may call `accept(environ)`: the application is wrapped in `upgradable`.

    Args:
        listener: An address, or a listening gevent socket; a bound AF_UNIX socket serves a Unix path.
        application: The WSGI application.
        head_timeout: How many seconds a client may take for the TLS handshake, and then for the head of each request,
            counted from when the server begins to wait for it; 0 or None: for ever.
        ssl_context: Makes it a TLS server. One of the standard library's does not block here.
        certfile: In place of a context, the path of a file with the certificate chain, and the key where there is no
            `keyfile`.
        keyfile: The path of a file with the private key.
        backlog, spawn, log, error_log, environ: As `gevent.pywsgi.WSGIServer` has them. With a pool as `spawn`, each
            peer holds one of its places.

    Raises:
        ValueError: `head_timeout` is negative or no number, or TLS is told twice or by half.
        OSError: A file cannot be read, or is no certificate (`ssl.SSLError`).
    """

    #: Whether it is going away: upgrades are answered with 503 and connections are not kept.
    draining = False

    def __init__(
        self,
        listener: Any,
        application: WSGIApplication,
        head_timeout: float | None = 10.0,
        *,
        ssl_context: ssl.SSLContext | None = None,
        certfile: str | os.PathLike[str] | None = None,
        keyfile: str | os.PathLike[str] | None = None,
        backlog: int | None = None,
        spawn: Any = "default",
        log: Any = "default",
        error_log: Any = "default",
        environ: dict[str, Any] | None = None,
    ) -> None:
        if (keyfile is not None and certfile is None) or (ssl_context is not None and certfile is not None):
            raise ValueError("TLS is told either by ssl_context, or by certfile with or without keyfile")
        make_room()
        self.head_timeout = checked_seconds("head_timeout", head_timeout, allow_none=True)
        self._peers: WeakSet[roster.Drainable] = WeakSet()
        self._connections: set[Any] = set()
        self._waiting: dict[_HeadTimeout, Any] = {}
        self._ended = Event()
        self._drained = Event()
        if ssl_context is None and certfile is not None:
            ssl_context = SSLContext(ssl.PROTOCOL_TLS_SERVER)
            ssl_context.load_cert_chain(certfile, keyfile)
        self._ssl_context = ssl_context
        # What pywsgi does not know it takes for an option of TLS, so nothing else may get there.
        security: Any = {} if ssl_context is None else {"ssl_context": ssl_context}
        super().__init__(
            listener,
            upgradable(application),
            handler_class=_Handler,
            backlog=backlog,
            spawn=spawn,
            log=log,
            error_log=error_log,
            environ=environ,
            **security,
        )
        self.environ[SERVER_KEY] = self

    @property
    def peers(self) -> list[Any]:
        """The peers that its applications have accepted and that are not gone."""
        return [peer for peer in self._peers if not peer.is_closed]

    def enrol(self, peer: roster.Drainable) -> None:
        """Count a peer among its own; `accept` does it."""
        self._peers.add(peer)

    def start(self) -> None:
        """Open the listener and begin to accept; also after `stop`."""
        self.draining = False
        self._drained.clear()
        super().start()

    def drain(self, timeout: float = 10.0) -> None:
        """Stop accepting, let everything finish, and stop; returns as soon as all peers and requests are gone.

        Each peer gets a goaway, may finish its streams, and is closed with 1001; connections that wait for a request
        are closed at once. What is left after `timeout` is cut off, and then `serve_forever` returns. A second call,
        and `stop`, wait for the first, for as long as they were given.

        For SIGTERM: `gevent.signal_handler(signal.SIGTERM, server.drain)`.

        Args:
            timeout: How many seconds streams and requests may take to finish; 0: none.
        """
        if self.draining:
            self._drained.wait(timeout)
            return
        self.draining = True
        deadline = monotonic() + timeout
        try:
            self.stop_accepting()
            if not self.closed:
                self.socket.close()
            self.loop.run_callback(self._end_waiting)
            roster.drain(self._peers, timeout)
            self._end_connections(max(deadline - monotonic(), ENDING_SECONDS))
            # Those that were about to be made when it began.
            roster.drain(self._peers, 0.0)
        finally:
            self.close()
            self._drained.set()

    def stop(self, timeout: float | None = None) -> None:
        """Drain, with 1 second (`stop_timeout`) to finish where `timeout` is None."""
        self.drain(self.stop_timeout if timeout is None else timeout)

    def start_accepting(self) -> None:
        """Listen for connections, but not while draining: a pool that gets a free place calls this too."""
        if not self.draining:
            super().start_accepting()

    def do_handle(self, *args: Any) -> None:
        """Serve one connection, in a greenlet of its own."""
        try:
            self._spawn(self._serve_connection, *args)  # type: ignore[attr-defined]
        except BaseException:
            args[0].close()
            raise

    def _serve_connection(self, sock: GeventSocket, address: Any) -> None:
        greenlet = gevent.getcurrent()
        self._connections.add(greenlet)
        handler: _Handler | None = None
        try:
            if self._ssl_context is not None:
                sock = self._wrap(sock, self._ssl_context)
            handler = _Handler(sock, address, self)
            handler.handle()
        except _HeadTimeout:
            # Whoever takes so long for a request is told nothing.
            pass
        except ssl.SSLError as error:
            # Port scanners, and clients that do not trust the certificate.
            log.debug("no TLS with %s: %s", address, error)
        finally:
            if handler is None or not handler.has_let_go:
                sock.close()
            self._connections.discard(greenlet)
            self._ended.set()

    def _wrap(self, sock: GeventSocket, context: ssl.SSLContext) -> GeventSocket:
        """Make a TLS socket of a client's; what fails or takes too long closes it and is raised."""
        # The context's own wrap_socket would make one that blocks the hub, were it the standard library's.
        wrapped = SSLSocket(sock, server_side=True, do_handshake_on_connect=False, _context=context)
        watch = self._watch()
        try:
            wrapped.do_handshake()
        except BaseException:
            wrapped.close()
            raise
        finally:
            self._unwatch(watch)
        return wrapped

    def _watch(self) -> _HeadTimeout:
        """Give the current greenlet's client `head_timeout`, and only as long as the server is not draining."""
        watch = _HeadTimeout.start_new(self.head_timeout or None)
        self._waiting[watch] = gevent.getcurrent()
        return watch

    def _unwatch(self, watch: _HeadTimeout) -> None:
        self._waiting.pop(watch, None)
        watch.close()

    def _end_waiting(self) -> None:
        # In the hub, so that a greenlet that has gone on to its request is not hit.
        for watch, greenlet in list(self._waiting.items()):
            greenlet.throw(watch)

    def _end_connections(self, timeout: float) -> None:
        """Wait for the greenlets of connections, but for this one, and kill them after `timeout` seconds."""
        current = gevent.getcurrent()
        deadline = monotonic() + timeout
        while len(self._connections) > (current in self._connections):
            left = deadline - monotonic()
            if left <= 0:
                gevent.killall([greenlet for greenlet in self._connections if greenlet is not current], timeout=1.0)
                return
            self._ended.clear()
            self._ended.wait(left)


class _HeadTimeout(gevent.Timeout):
    """The head of a request has not come in time, or nobody waits for it any more."""


class _Head:
    """The headers of one request, as lines; pywsgi bounds each of them, and this all of them together."""

    def __init__(self, rfile: Any) -> None:
        self._rfile = rfile
        self._left = MAX_HEAD_BYTES

    def readline(self, limit: int) -> bytes:
        line: bytes = self._rfile.readline(min(limit, self._left + 1))
        self._left -= len(line)
        if self._left < 0:
            raise LineTooLong("head")
        return line


class _Handler(pywsgi.WSGIHandler):
    """One connection of a `Server`."""

    server: Server
    #: Whether the socket belongs to somebody else by now.
    has_let_go = False
    _head_watch: _HeadTimeout | None = None

    def handle(self) -> None:
        try:
            super().handle()
        finally:
            self._unwatch()

    def handle_one_request(self) -> Any:
        return None if self.server.draining else super().handle_one_request()

    def read_requestline(self) -> str:
        self._head_watch = self.server._watch()
        return super().read_requestline()

    def read_request(self, raw_requestline: str) -> Any:
        rfile: Any = self.rfile
        self.rfile = _Head(rfile)  # type: ignore[assignment]  # all of it that `read_request` uses
        try:
            return super().read_request(raw_requestline)
        except HTTPException as error:
            # Too many headers. A ValueError is what is answered with 400 and logged without a traceback.
            raise ValueError(str(error)) from None
        finally:
            self.rfile = rfile
            self._unwatch()

    def let_go(self) -> bool:
        """Leave the socket to whoever has taken it over; not where a pool counts connections."""
        if self.server.pool is not None:
            return False
        self.has_let_go = True
        self.socket = None  # type: ignore[assignment]
        return True

    def _unwatch(self) -> None:
        if self._head_watch is not None:
            self.server._unwatch(self._head_watch)
            self._head_watch = None


def is_wsgi(target: Callable[..., Any]) -> bool:
    """Whether a callable of two arguments is a WSGI application; otherwise it handles streams.

    By the names of its parameters, since both kinds are called with two: `environ` or `env` first, or `start_response`
    second.

    Raises:
        TypeError: It does not name two parameters, so that nobody can tell; wrap it in `WSGIApp` or `upgradable`.
    """
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [name for name, parameter in inspect.signature(target).parameters.items() if parameter.kind in kinds]
    if len(names) < 2:
        raise TypeError(
            f"{target!r} may be a WSGI application or a handler of streams; say which with upgradable() or WSGIApp()"
        )
    return names[0] in ("environ", "env") or names[1] == "start_response"
