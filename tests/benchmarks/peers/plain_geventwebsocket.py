"""A WebSocket echo without streams on gevent-websocket, which has no client; the client is ours by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from gevent import socket
from gevent.pywsgi import WSGIServer
from geventwebsocket.handler import WebSocketHandler

from muxws_green.websocket import ClientHandshake, MessageReader, UpgradeRequest, encode_messages, parse_ws_uri
from tests.benchmarks import workloads as w

RUNNER = "blocking"
WORKLOADS = frozenset({"W1", "W3", "W4"})
VARIANTS = ("json",)


def serve(variant: str) -> None:
    """Serve until the process is ended."""

    def app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        ws = environ["wsgi.websocket"]
        ws.handler.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            message = ws.receive()
            if message is None:
                return []
            value = json.loads(message)
            if value == "rows":
                for _ in range(w.ROWS):
                    ws.send(json.dumps(w.SMALL))
            else:
                ws.send(json.dumps(value))

    server = WSGIServer(("127.0.0.1", 0), app, handler_class=WebSocketHandler, log=None)
    server.start()
    print(server.server_port, flush=True)
    server.serve_forever()


class Connection:
    """One connection."""

    def __init__(self, port: int) -> None:
        self._sock = socket.create_connection(("127.0.0.1", port))
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        handshake = ClientHandshake(UpgradeRequest(parse_ws_uri(f"ws://127.0.0.1:{port}/"), subprotocols=["echo"]))
        self._sock.sendall(handshake.request())
        while handshake.feed(self._sock.recv(65_536)) is None:
            pass
        self._reader = MessageReader(client=True, max_message_bytes=64 * w.MEBIBYTE)
        self._messages: list[Any] = []

    def _receive(self) -> Any:
        while not self._messages:
            self._messages = self._reader.feed(self._sock.recv(65_536))[::-1]
        return json.loads(self._messages.pop())

    def call(self, payload: Any) -> Any:
        self._sock.sendall(encode_messages([json.dumps(payload).encode()], False, True))
        return self._receive()

    def rows(self) -> Iterator[Any]:
        self._sock.sendall(encode_messages([b'"rows"'], False, True))
        for _ in range(w.ROWS):
            yield self._receive()

    def close(self) -> None:
        self._sock.close()


class Client:
    """Connects to the server."""

    binary = False

    def __init__(self, port: int, variant: str) -> None:
        self._port = port

    def connect(self) -> Connection:
        return Connection(self._port)
