"""The reference's acceptor: `python -m tests.processes.reference_server PORT`.

Says its port, and each hello that it was told; answers a unary call with its payload.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import muxws
import websockets


def say(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


async def handle(payload: Any, stream: Any) -> None:
    if stream.id == 1:
        say(hello=payload, headers=dict(stream.headers))
        return
    await stream.reply(payload)


async def serve(connection: Any) -> None:
    await muxws.serve(connection, handler=handle)


async def main(port: str) -> None:
    select: Any = muxws.select_subprotocol
    async with websockets.serve(serve, "127.0.0.1", int(port), select_subprotocol=select) as server:
        say(port=next(iter(server.sockets)).getsockname()[1])
        await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
