"""The asyncio library `muxws`, with its own codecs; without the compression of WebSocket messages, and with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import muxws
import websockets
from muxws.codecs.msgpack_ import MsgpackCodec
from websockets.asyncio.server import serve as serve_websockets

from tests.benchmarks import workloads as w

RUNNER = "nonblocking"
WORKLOADS = frozenset(w.RATE)
VARIANTS = ("json", "msgpack", "json-deflate", "msgpack-deflate")


def _set_up(variant: str) -> str | None:
    codec, _, compression = variant.partition("-")
    muxws.register_codec("msgpack", MsgpackCodec())
    muxws.settings.codec = codec
    return compression or None


def serve(variant: str) -> None:
    """Serve until the process is ended."""
    compression = _set_up(variant)
    peers: set[Any] = set()
    bulk = w.bulk(variant.startswith("msgpack"))

    async def connection(socket: Any) -> None:
        # Its small calls pile up behind bulk beyond the default limit, which would end the measurement.
        peer = await muxws.accept(socket, max_concurrent_streams=100_000)
        peers.add(peer)

        async def handle(payload: Any, stream: Any) -> None:
            if payload == "rows":
                for _ in range(w.ROWS):
                    await stream.send(w.SMALL)
            elif payload == "bulk":
                while True:
                    await stream.send(bulk)
                    while peer._writer.depth_of(stream.id):  # its send queues without a bound
                        await asyncio.sleep(0.001)
            elif payload == "broadcast":
                await asyncio.gather(*[each.notify(w.SMALL) for each in peers])
                await stream.reply(None)
            elif payload == "memory":
                await stream.reply(w.rss_kib())
            else:
                await stream.reply(payload)

        peer.on_stream(handle)
        try:
            await peer.serve()
        finally:
            peers.discard(peer)

    async def main() -> None:
        async with serve_websockets(
            connection,
            "127.0.0.1",
            0,
            select_subprotocol=muxws.select_subprotocol,  # type: ignore[arg-type]
            compression=compression,
            max_size=None,
        ) as server:
            print(next(iter(server.sockets)).getsockname()[1], flush=True)
            await asyncio.Future()

    asyncio.run(main())


class Connection:
    """One connection."""

    def __init__(self) -> None:
        self._pushed = 0
        self._wanted = 0
        self._enough = asyncio.Event()
        self.peer: Any = None

    async def push(self, payload: Any, stream: Any) -> None:
        self._pushed += 1
        if self._pushed == self._wanted:
            self._enough.set()

    async def call(self, payload: Any) -> Any:
        return await self.peer.request(payload)

    async def close(self) -> None:
        await self.peer.close()

    def rows(self) -> AsyncIterator[Any]:
        return self.peer.open("rows", end=True)

    def bulk(self) -> AsyncIterator[Any]:
        return self.peer.open("bulk", end=True)

    async def pushes(self, count: int) -> None:
        self._pushed = 0
        self._wanted = count
        self._enough.clear()
        await self._enough.wait()


class Client:
    """Connects to the server."""

    def __init__(self, port: int, variant: str) -> None:
        compression = _set_up(variant)
        self._url = f"ws://127.0.0.1:{port}/"
        self.binary = variant.startswith("msgpack")
        original = websockets.connect

        def connect(*arguments: Any, **options: Any) -> Any:
            return original(*arguments, compression=compression, max_size=None, **options)

        websockets.connect = connect  # type: ignore[assignment,misc]

    async def connect(self) -> Connection:
        connection = Connection()
        connection.peer = await muxws.connect(self._url, on_stream=connection.push)
        return connection
