"""Serve one of `apps` under one host, on a listening socket that was opened before: `serve.py HOST APP FD LOG [PEM]`.

Every host serves until SIGTERM. gunicorn has a command line of its own and is not here. Nothing
is monkey-patched but for the host `pywsgi patched`.
"""

from __future__ import annotations

import sys

if "pywsgi patched" in sys.argv:
    from gevent import monkey

    monkey.patch_all()

import signal
import socket as stdlib_socket
import ssl as stdlib_ssl
import wsgiref.simple_server
from typing import Any

import gevent
from gevent import socket, ssl
from gevent.pywsgi import WSGIServer

from muxws_green.runtime.roster import drain_all
from muxws_green.transports.hosts.geventwebsocket import leave_upgrade_to_app
from muxws_green.transports.server import Server
from tests.hosts.apps import APPS, SUBPROTOCOL


class Selecting:
    """gevent-websocket asks the application which subprotocol to select, by the path."""

    def __init__(self, app: Any) -> None:
        self._app = app

    def __call__(self, environ: Any, start_response: Any) -> Any:
        return self._app(environ, start_response)

    def app_protocol(self, path: str) -> str:
        select = getattr(self._app, "app_protocol", None)
        return SUBPROTOCOL if select is None else select(path)


def make_server(host: str, listener: Any, app: Any, **options: Any) -> Any:
    if host in ("pywsgi", "pywsgi patched", "pywsgi with stdlib TLS"):
        return WSGIServer(listener, app, **options)
    if host == "server":
        return Server(listener, app, **options)
    from geventwebsocket.handler import WebSocketHandler
    from geventwebsocket.server import WebSocketServer

    from muxws_green.transports.hosts.geventwebsocket import GreenWebSocketHandler

    if host == "gevent-websocket hook":
        return WebSocketServer(listener, app, pre_start_hook=leave_upgrade_to_app, **options)
    if host == "gevent-websocket server after":
        return WebSocketServer(listener, Selecting(app), **options)
    if host == "gevent-websocket attribute":
        server = WSGIServer(listener, app, handler_class=WebSocketHandler, **options)
        vars(server)["pre_start_hook"] = leave_upgrade_to_app
        return server
    if host == "gevent-websocket handler":
        return WSGIServer(listener, app, handler_class=GreenWebSocketHandler, **options)
    if host == "gevent-websocket blind":
        return WSGIServer(listener, app, handler_class=WebSocketHandler, **options)
    if host == "gevent-websocket after":
        return WSGIServer(listener, Selecting(app), handler_class=WebSocketHandler, **options)
    raise ValueError(host)


def serve_wsgiref(fd: int, app: Any) -> None:
    """One request by the standard library's server, which knows nothing of gevent."""
    handler = wsgiref.simple_server.WSGIRequestHandler
    server = wsgiref.simple_server.WSGIServer(("", 0), handler, bind_and_activate=False)
    server.socket.close()
    server.socket = stdlib_socket.socket(fileno=fd)
    server.server_name, server.server_port = "localhost", 0
    server.setup_environ()
    server.set_app(app)
    handler.log_message = lambda *args: None  # type: ignore[method-assign]
    server.serve_forever()


def main(host: str, app: str, fd: str, log: str, pem: str = "") -> None:
    if host == "wsgiref":
        serve_wsgiref(int(fd), APPS[app]())
    with open(log, "a", buffering=1) as access:
        options: dict[str, Any] = {"log": access}
        if pem:
            kind = stdlib_ssl.SSLContext if host == "pywsgi with stdlib TLS" else ssl.SSLContext
            context = kind(stdlib_ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(pem)
            options["ssl_context"] = context
        server = make_server(host, socket.socket(fileno=int(fd)), APPS[app](), **options)
        if isinstance(server, Server):
            gevent.signal_handler(signal.SIGTERM, server.drain)
        else:
            gevent.signal_handler(signal.SIGTERM, lambda: (drain_all(), server.stop()))
        server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
