"""Serve one of `apps` under one host, on a listening socket that was opened before: `serve.py HOST APP FD LOG [PEM]`.

Every host serves until it is told to stop by SIGTERM. gunicorn has a command line of its own and is not here.
"""

from __future__ import annotations

import signal
import sys
from typing import Any

import gevent
from gevent import socket, ssl
from gevent.pywsgi import WSGIServer

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
        return SUBPROTOCOL


def make_server(host: str, listener: Any, app: Any, **options: Any) -> Any:
    if host == "pywsgi":
        return WSGIServer(listener, app, **options)
    if host == "server":
        return Server(listener, app, **options)
    from geventwebsocket.handler import WebSocketHandler
    from geventwebsocket.server import WebSocketServer

    from muxws_green.transports.hosts.geventwebsocket import GreenWebSocketHandler

    if host == "gevent-websocket hook":
        return WebSocketServer(listener, app, pre_start_hook=leave_upgrade_to_app, **options)
    if host == "gevent-websocket handler":
        return WSGIServer(listener, app, handler_class=GreenWebSocketHandler, **options)
    if host == "gevent-websocket after":
        return WSGIServer(listener, Selecting(app), handler_class=WebSocketHandler, **options)
    raise ValueError(host)


def main(host: str, app: str, fd: str, log: str, pem: str = "") -> None:
    with open(log, "a", buffering=1) as access:
        options: dict[str, Any] = {"log": access}
        if pem:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(pem)
            options["ssl_context"] = context
        server = make_server(host, socket.socket(fileno=int(fd)), APPS[app](), **options)
        gevent.signal_handler(signal.SIGTERM, server.stop)
        server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
