"""A reference acceptor: `python -m tests.interop.reference_server <codec> [tls <pem> | unix <path>]`; says its port, or
None where it has none, then obeys.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from typing import Any

import muxws
import websockets

from tests.interop.matter import MAX_STREAMS
from tests.interop.reference import Worker, narrow, obey, say


async def main(codec: str, kind: str = "tcp", place: str = "") -> None:
    muxws.settings.codec = codec
    worker = Worker()

    async def serve(connection: Any) -> None:
        peer = await muxws.accept(connection, max_concurrent_streams=MAX_STREAMS)
        peer.on_stream(worker.act)
        worker.take(peer)
        await peer.serve()

    listener = socket.socket(socket.AF_UNIX if kind == "unix" else socket.AF_INET)
    # What a connection has, it has from its listener.
    narrow(listener)
    listener.bind(place if kind == "unix" else ("127.0.0.1", 0))
    context = None
    if kind == "tls":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(place)
    select: Any = muxws.select_subprotocol
    serving: Any = websockets.unix_serve if kind == "unix" else websockets.serve
    async with serving(serve, sock=listener, ssl=context, select_subprotocol=select, close_timeout=1):
        say(port=None if kind == "unix" else listener.getsockname()[1])
        await obey(worker)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
