"""Hosts on `gevent.pywsgi`: its server, gunicorn's workers around it, our own, and gevent-websocket's handler where
that has left the upgrade to the application.

For a request that asks for a WebSocket `wsgi.input` is the bare reader on the socket. It may have read the first frames
together with the head of the request; whatever is left in it would be parsed as the next request, and so would what
arrives later, unless the reader is closed: a closed reader ends the connection for pywsgi, without a word in its logs.
Closing it also frees its buffer, and lets a close of the socket close the descriptor.
"""

from __future__ import annotations

from collections.abc import Callable
from email.message import Message
from io import BufferedReader
from operator import attrgetter
from types import FunctionType
from typing import TYPE_CHECKING, Any

from gevent.pywsgi import WSGIHandler

from muxws_green.errors import TransportUnsupportedError

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse
    from gevent.socket import socket as GeventSocket  # noqa: N812

    from muxws_green.websocket import UpgradeAnswer


#: In place of the headers of requests that were upgraded.
_NO_HEADERS = Message()


class PywsgiHost:
    """One request on pywsgi. Made by `find`."""

    #: An empty body, as all has been said. A function of nobody's: whoever keeps it keeps nothing of the request.
    finish: Callable[[], list[bytes]] = staticmethod(list)

    def __init__(
        self, sock: GeventSocket, rfile: BufferedReader, start_response: StartResponse, handler: WSGIHandler | None
    ) -> None:
        self.sock = sock
        self._rfile = rfile
        self._start_response = start_response
        self._handler = handler

    @classmethod
    def find(cls, environ: dict[str, Any], start_response: StartResponse) -> PywsgiHost | None:
        """The host of this request, or None where it is no pywsgi."""
        handler: Any = getattr(start_response, "__self__", None)
        if hasattr(handler, "connection_upgraded"):
            return cls(handler.socket, handler.rfile, start_response, handler)
        # `start_response` has been wrapped on its way here.
        rfile = environ.get("wsgi.input")
        sock = getattr(getattr(rfile, "raw", None), "_sock", None)
        if isinstance(rfile, BufferedReader) and sock is not None and environ.get("wsgi.input_terminated") is False:
            return cls(sock, rfile, start_response, None)
        return None

    def switch(self, answer: UpgradeAnswer) -> bytes:
        """Send the 101, have pywsgi log it in the end, and leave it nothing to read."""
        handler = self._handler
        if handler is not None and handler.headers_sent:
            raise TransportUnsupportedError("an answer to this request has begun already")
        leftover = take_buffered(self._rfile, self.sock)
        try:
            if handler is not None and _is_unchanged(handler):
                _answer_for(handler, answer)
            else:
                self._start_response(f"{answer.status} {answer.reason}", answer.headers)(b"")
        except OSError:
            # The client has gone; the first read says so to whoever serves the connection.
            pass
        self._rfile.close()
        if handler is not None:
            handler.close_connection = True
        return leftover

    def detach(self) -> bool:
        """Only the handler of our own server can let go of its socket."""
        let_go = getattr(self._handler, "let_go", None)
        return let_go is not None and let_go()


#: What pywsgi does of a request once the application has it.
_methods = attrgetter(
    "start_response",
    "write",
    "_write_with_headers",
    "finalize_headers",
    "_sendall",
    "_write",
    "handle_one_response",
    "run_application",
    "process_result",
    "log_request",
    "format_request",
)
_METHODS = _methods(WSGIHandler)
#: Whether they are those that pywsgi defines. Instruments put their own into its class, before this import or later.
_METHODS_ARE_PYWSGIS = all(
    type(method) is FunctionType and method.__code__.co_filename == WSGIHandler.__init__.__code__.co_filename
    for method in _METHODS
)


def _is_unchanged(handler: Any) -> bool:
    """Whether a handler is pywsgi's or our server's, with nothing in it that somebody else has put there."""
    kind = type(handler)
    is_known = kind is WSGIHandler or hasattr(kind, "let_go")
    return is_known and _METHODS_ARE_PYWSGIS and bool(_methods(kind) == _METHODS)


def _answer_for(handler: Any, answer: UpgradeAnswer) -> None:
    """Write the 101 in place of a handler, so that it takes it for its own and logs it.

    Its own way takes several times as long, and leaves a dozen objects with each connection, as do the headers of the
    request, which are in the environ too.
    """
    handler._orig_status = f"{answer.status} {answer.reason}"
    handler.status = handler._orig_status.encode("latin-1")
    handler.code = answer.status
    handler.headers_sent = True
    handler.headers = _NO_HEADERS
    lines = "".join([f"{name}: {value}\r\n" for name, value in answer.headers])
    head = f"HTTP/1.1 {handler._orig_status}\r\n{lines}\r\n".encode("latin-1")
    sent = handler.socket.send(head)
    if sent < len(head):
        handler.socket.sendall(head[sent:])
    handler.response_length += len(head)


def take_buffered(rfile: BufferedReader, sock: GeventSocket) -> bytes:
    """Take what `rfile` has read of `sock` and nobody has used yet. Leaves `sock` without a timeout."""
    raw: Any = rfile.raw
    # Where nothing is buffered `peek` reads the socket once, unless the `SocketIO` in between believes that a read has
    # timed out. Another kind of object reads a socket that does not wait.
    can_be_told = getattr(raw, "_timeout_occurred", None) is False
    if can_be_told:
        raw._timeout_occurred = True
    else:
        sock.settimeout(0.0)
    try:
        # A TLS socket that has nothing raises SSLWantReadError.
        buffered = rfile.peek()
    except OSError:
        buffered = b""
    finally:
        sock.settimeout(None)
        if can_be_told:
            raw._timeout_occurred = False
    return rfile.read(len(buffered)) if buffered else b""
