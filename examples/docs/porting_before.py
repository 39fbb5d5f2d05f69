"""A server and a client of the asyncio library."""

import asyncio

import muxws
import websockets


async def handle(payload, stream):
    """Count."""
    for number in range(payload["count"]):
        await stream.send(number)


async def main():
    """Run both ends."""

    async def serve(connection):
        await muxws.serve(connection, handler=handle)

    listening = websockets.serve(serve, "127.0.0.1", 0, select_subprotocol=muxws.select_subprotocol)
    async with listening as server:
        port = server.sockets[0].getsockname()[1]
        peer = await muxws.connect(f"ws://127.0.0.1:{port}/")
        print(await peer.request({"count": 1}, timeout=5.0))
        stream = peer.open({"count": 3}, end=True)
        async for number in stream:
            print(number)
        await peer.close()


asyncio.run(main())
