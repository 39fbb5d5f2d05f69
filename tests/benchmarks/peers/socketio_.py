"""python-socketio with its gevent server, over WebSocket; the client runs on patched threads, as its documents say."""

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

from typing import Any  # noqa: E402

import socketio  # noqa: E402
from gevent.pywsgi import WSGIServer  # noqa: E402
from geventwebsocket.handler import WebSocketHandler  # noqa: E402

from tests.benchmarks import workloads as w  # noqa: E402

RUNNER = "blocking"
WORKLOADS = frozenset({"W1", "W2", "W4"})
VARIANTS = ("json",)


def serve(variant: str) -> None:
    """Serve until the process is ended."""
    sio = socketio.Server(async_mode="gevent", max_http_buffer_size=64 * w.MEBIBYTE)

    @sio.event
    def echo(sid: str, value: Any) -> Any:
        return value

    server = WSGIServer(("127.0.0.1", 0), socketio.WSGIApp(sio), handler_class=WebSocketHandler, log=None)
    server.start()
    print(server.server_port, flush=True)
    server.serve_forever()


class Connection:
    """One connection."""

    def __init__(self, port: int) -> None:
        self._client = socketio.Client()
        self._client.connect(f"http://127.0.0.1:{port}", transports=["websocket"])
        self.close = self._client.disconnect

    def call(self, payload: Any) -> Any:
        return self._client.call("echo", payload)


class Client:
    """Connects to the server."""

    binary = False

    def __init__(self, port: int, variant: str) -> None:
        self._port = port

    def connect(self) -> Connection:
        return Connection(self._port)
