"""A real server for a test: on the loopback interface, on a port from the kernel, running from the start."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from gevent import socket as gevent_socket

from muxws_green.api import Server
from muxws_green.testing.listener import BACKLOG, Address, url_place


class LocalServer(Server):
    """A `Server` that is running; what it serves and its options are those of `Server`. Logs nothing unless told to.

    As a context manager it stops on leaving, and cuts off who is still connected.

    Args:
        app_or_handler: An `on_stream` handler, or a WSGI application; see `Server`.
        listen: `(host, port)` with a numeric host, or the path of a Unix socket; None: the loopback interface, with a
            port from the kernel.
        ssl_context: Makes it a TLS server.
        options: The further ones of `Server`, and beside a handler those of `WSGIApp`.

    Attributes:
        url: What to dial. With TLS the host is `localhost`, and else the address itself.

    Raises:
        TypeError, ValueError, CodecNotRegistered, OSError: As `Server`.
    """

    def __init__(
        self,
        app_or_handler: Callable[..., Any],
        *,
        listen: Address | None = None,
        ssl_context: ssl.SSLContext | None = None,
        **options: Any,
    ) -> None:
        listener: Any = listen or ("127.0.0.1", 0)
        if isinstance(listen, str):
            listener = gevent_socket.socket(socket.AF_UNIX)
            listener.bind(listen)
            listener.listen(BACKLOG)
        if ssl_context is not None:
            options["ssl_context"] = ssl_context
        super().__init__(listener, app_or_handler, **{"log": None, **options})
        self.start()
        if isinstance(listen, str):
            self.url = f"ws+unix://{listen}:/"
        elif ssl_context is not None:
            self.url = f"wss://localhost:{self.server_port}/"
        else:
            self.url = f"ws://{url_place(self.socket.getsockname()[:2])}/"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop(0)
