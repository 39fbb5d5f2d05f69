"""A WebSocket echo without streams on the `websockets` library: its threads (`sync`) and its asyncio part."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from websockets.asyncio.client import connect as connect_asyncio
from websockets.asyncio.server import serve as serve_asyncio
from websockets.sync.client import connect as connect_sync
from websockets.sync.server import serve as serve_sync

from tests.benchmarks import workloads as w

RUNNER = "nonblocking"
WORKLOADS = frozenset({"W1", "W3", "W4"})
VARIANTS = ("sync", "asyncio", "asyncio-bytes")


def serve(variant: str) -> None:
    """Serve until the process is ended."""
    if variant == "sync":

        def handle(socket: Any) -> None:
            for message in socket:
                value = json.loads(message)
                if value == "rows":
                    for _ in range(w.ROWS):
                        socket.send(json.dumps(w.SMALL))
                else:
                    socket.send(json.dumps(value))

        with serve_sync(handle, "127.0.0.1", 0, compression=None, max_size=None) as server:
            print(server.socket.getsockname()[1], flush=True)
            server.serve_forever()
        return

    async def connection(socket: Any) -> None:
        async for message in socket:
            if isinstance(message, bytes):
                await socket.send(message)
                continue
            value = json.loads(message)
            if value == "rows":
                for _ in range(w.ROWS):
                    await socket.send(json.dumps(w.SMALL))
            else:
                await socket.send(json.dumps(value))

    async def main() -> None:
        async with serve_asyncio(connection, "127.0.0.1", 0, compression=None, max_size=None) as server:
            print(next(iter(server.sockets)).getsockname()[1], flush=True)
            await asyncio.Future()

    asyncio.run(main())


class Connection:
    """One connection; the thread-based client is called from coroutines, which costs it nothing."""

    def __init__(self, socket: Any, sync: bool) -> None:
        self._socket = socket
        self._sync = sync

    async def _send(self, data: str | bytes) -> None:
        if self._sync:
            self._socket.send(data)
        else:
            await self._socket.send(data)

    async def _receive(self) -> Any:
        return self._socket.recv() if self._sync else await self._socket.recv()

    async def call(self, payload: Any) -> Any:
        if isinstance(payload, bytes):
            await self._send(payload)
            return await self._receive()
        await self._send(json.dumps(payload))
        return json.loads(await self._receive())

    async def rows(self) -> AsyncIterator[Any]:
        await self._send(json.dumps("rows"))
        for _ in range(w.ROWS):
            yield json.loads(await self._receive())

    async def close(self) -> None:
        if self._sync:
            self._socket.close()
        else:
            await self._socket.close()


class Client:
    """Connects to the server."""

    def __init__(self, port: int, variant: str) -> None:
        self._url = f"ws://127.0.0.1:{port}/"
        self._sync = variant == "sync"
        self.binary = variant.endswith("bytes")

    async def connect(self) -> Connection:
        if self._sync:
            return Connection(connect_sync(self._url, compression=None, max_size=None), True)
        return Connection(await connect_asyncio(self._url, compression=None, max_size=None), False)
