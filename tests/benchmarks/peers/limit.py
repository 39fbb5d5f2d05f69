"""How fast it could be: gevent, length-prefixed JSON over TCP, no WebSocket, no streams, replies batched."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any

from gevent import socket
from gevent.server import StreamServer

from tests.benchmarks import workloads as w

RUNNER = "blocking"
WORKLOADS = frozenset({"W1", "W3", "W4"})
VARIANTS = ("json",)

_BATCH_BYTES = 65_536
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_decode = json.JSONDecoder().decode


def _frame(value: Any) -> bytes:
    data = _encode(value).encode()
    return struct.pack(">I", len(data)) + data


class _Reader:
    def __init__(self, sock: Any) -> None:
        self._sock = sock
        self._data = b""
        self._at = 0

    def values(self) -> Iterator[Any]:
        unpack = struct.Struct(">I").unpack_from
        while True:
            data, at, end = self._data, self._at, len(self._data)
            while at + 4 <= end:
                (length,) = unpack(data, at)
                if at + 4 + length > end:
                    break
                start = at + 4
                at = start + length
                self._at = at
                yield _decode(data[start:at].decode())
            rest = data[at:]
            missing = (unpack(rest)[0] + 4 - len(rest)) if len(rest) >= 4 else 4
            chunks = [rest]
            while missing > 0:
                chunk = self._sock.recv(131_072)
                if not chunk:
                    return
                chunks.append(chunk)
                missing -= len(chunk)
            self._data, self._at = b"".join(chunks), 0


def serve(variant: str) -> None:
    """Serve until the process is ended."""

    def connection(sock: Any, _address: Any) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for value in _Reader(sock).values():
            if value != "rows":
                sock.sendall(_frame(value))
                continue
            batch: list[bytes] = []
            size = 0
            for _ in range(w.ROWS):
                frame = _frame(w.SMALL)
                batch.append(frame)
                size += len(frame)
                if size > _BATCH_BYTES:
                    sock.sendall(b"".join(batch))
                    batch, size = [], 0
            sock.sendall(b"".join(batch))

    server = StreamServer(("127.0.0.1", 0), connection)
    server.start()
    print(server.server_port, flush=True)
    server.serve_forever()


class Connection:
    """One connection."""

    def __init__(self, port: int) -> None:
        self._sock = socket.create_connection(("127.0.0.1", port))
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._values = _Reader(self._sock).values()

    def call(self, payload: Any) -> Any:
        self._sock.sendall(_frame(payload))
        return next(self._values)

    def rows(self) -> Iterator[Any]:
        self._sock.sendall(_frame("rows"))
        for _ in range(w.ROWS):
            yield next(self._values)

    def close(self) -> None:
        self._sock.close()


class Client:
    """Connects to the server."""

    binary = False

    def __init__(self, port: int, variant: str) -> None:
        self._port = port

    def connect(self) -> Connection:
        return Connection(self._port)
