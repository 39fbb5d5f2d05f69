"""A plain reference peer that sets and reads the header `method` by itself; it knows nothing of this layer.

`python -m tests.messaging.reference_peer serve|dial`: obeys as `tests.interop.reference` says. As an acceptor it says
its port first, as a dialer it is told to dial first.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Any

import muxws
import websockets

from tests.interop.reference import obey, say


class UnknownMethodError(Exception):
    """Answered to a name that it does not know, under the name that this layer's callers understand."""


class Caller:
    """One reference peer, the methods that it has, and what it can be told to do."""

    def __init__(self) -> None:
        self.peer: Any = None
        self.arrived = asyncio.Event()
        self.heard: list[Any] = []
        self.stopped = asyncio.Event()

    def take(self, peer: Any) -> None:
        self.peer = peer
        self.arrived.set()

    async def act(self, payload: Any, stream: Any) -> None:
        """The `on_stream` handler: the methods, by the header."""
        method = getattr(self, f"method_{stream.headers.get('method')}", None)
        if method is None:
            raise UnknownMethodError(f"the reference has no {stream.headers.get('method')}")
        await method(payload, stream)

    async def method_add(self, payload: Any, stream: Any) -> None:
        await stream.reply(sum(payload))

    async def method_note(self, payload: Any, stream: Any) -> None:
        self.heard.append(payload)

    async def method_count(self, payload: Any, stream: Any) -> None:
        for n in range(payload):
            await stream.send(n)

    async def method_endless(self, payload: Any, stream: Any) -> None:
        try:
            while True:
                await stream.send(payload)
                await asyncio.sleep(0)
        finally:
            self.stopped.set()

    async def method_fails(self, payload: Any, stream: Any) -> None:
        raise LookupError(payload)

    async def method_relay(self, payload: Any, stream: Any) -> None:
        """Call back with what it was given, on the same connection."""
        await stream.reply(await self.peer.request(payload["body"], headers={"method": payload["name"]}))

    # What it is told to do

    async def do_dial(self, url: str) -> None:
        peer = await muxws.connect(url, on_stream=self.act, reconnect=muxws.Reconnect(max_attempts=0))
        self.take(peer)

    async def do_request(self, name: str, body: Any) -> Any:
        await self.arrived.wait()
        try:
            return await self.peer.request(body, headers={"method": name})
        except muxws.RemoteError as error:
            return {"code": int(error.code), "reason": error.reason, "payload": error.payload}

    async def do_push(self, name: str, body: Any) -> None:
        await self.arrived.wait()
        await self.peer.notify(body, headers={"method": name})

    async def do_stream(self, name: str, body: Any, count: int) -> list[Any]:
        """The first `count` answers; then it leaves."""
        await self.arrived.wait()
        stream = self.peer.open(body, headers={"method": name}, end=True)
        answers: list[Any] = []
        async for answer in stream:
            answers.append(answer)
            if len(answers) == count:
                await stream.cancel("seen enough")
                break
        return answers

    async def do_heard(self) -> list[Any]:
        return self.heard

    async def do_wait_stopped(self) -> bool:
        return await self.stopped.wait()


async def main(role: str) -> None:
    muxws.settings.codec = "json"
    caller = Caller()
    if role == "dial":
        await obey(caller)  # type: ignore[arg-type]
        return

    async def serve(connection: Any) -> None:
        peer = await muxws.accept(connection)
        peer.on_stream(caller.act)
        caller.take(peer)
        await peer.serve()

    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    select: Any = muxws.select_subprotocol
    serving: Any = websockets.serve
    async with serving(serve, sock=listener, select_subprotocol=select, close_timeout=1):
        say(port=listener.getsockname()[1])
        await obey(caller)  # type: ignore[arg-type]


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
