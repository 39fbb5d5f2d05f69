"""zerorpc: msgpack over ZeroMQ on gevent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import zerorpc

from tests.benchmarks import workloads as w

RUNNER = "blocking"
WORKLOADS = frozenset({"W1", "W2", "W3", "W4"})
VARIANTS = ("msgpack",)


class _Service:
    def echo(self, value: Any) -> Any:
        return value

    @zerorpc.stream
    def rows(self) -> Iterator[Any]:
        return iter([w.SMALL] * w.ROWS)


def serve(variant: str) -> None:
    """Serve until the process is ended."""
    server = zerorpc.Server(_Service())
    server.bind("tcp://127.0.0.1:*")
    print(server._events._socket.last_endpoint.decode().rsplit(":", 1)[1], flush=True)
    server.run()


class Connection:
    """One connection."""

    def __init__(self, port: int) -> None:
        self._client = zerorpc.Client(f"tcp://127.0.0.1:{port}", timeout=60)
        self.close = self._client.close

    def call(self, payload: Any) -> Any:
        return self._client.echo(payload)

    def rows(self) -> Iterator[Any]:
        return iter(self._client.rows())


class Client:
    """Connects to the server."""

    binary = True

    def __init__(self, port: int, variant: str) -> None:
        self._port = port

    def connect(self) -> Connection:
        return Connection(self._port)
