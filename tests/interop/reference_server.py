"""A reference acceptor: `python -m tests.interop.reference_server <codec>`; says its port, then obeys."""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Any

import muxws
import websockets

from tests.interop.matter import MAX_STREAMS
from tests.interop.reference import Worker, narrow, obey, say


async def main(codec: str) -> None:
    muxws.settings.codec = codec
    worker = Worker()

    async def serve(connection: Any) -> None:
        peer = await muxws.accept(connection, max_concurrent_streams=MAX_STREAMS)
        peer.on_stream(worker.act)
        worker.take(peer)
        await peer.serve()

    listener = socket.socket()
    # What a connection has, it has from its listener.
    narrow(listener)
    listener.bind(("127.0.0.1", 0))
    select: Any = muxws.select_subprotocol
    async with websockets.serve(serve, sock=listener, select_subprotocol=select, close_timeout=1):
        say(port=listener.getsockname()[1])
        await obey(worker)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
