"""The reference at work, told from outside what to do; imports nothing of ours.

Standard input brings one command a line, `{"id": …, "do": name, …}`; standard output takes one line for each that has
ended, `{"id": …, "value": …}` or `{"id": …, "error": {…}}`, in the order in which they end. The end of the input ends
the process.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from typing import Any

import muxws
from muxws.codecs.msgpack_ import MsgpackCodec

from tests.interop.matter import MAX_STREAMS, SOCKET_BYTES, UNDER_WAY, blob, digest

muxws.register_codec("msgpack", MsgpackCodec())


class Worker:
    """One reference peer, what its handler does, and what it can be told to do."""

    def __init__(self) -> None:
        self.peer: Any = None
        self.arrived = asyncio.Event()
        self.lost = asyncio.Event()
        self.opened: list[Any] = []
        self.stopped: list[str] = []
        self.closes: list[dict[str, Any]] = []
        self.gates: dict[str, asyncio.Event] = {}
        self.echoed: Any = None
        self.echoes: Any = None
        #: Set when the other side has said that it goes away.
        self.goaway = asyncio.Event()

    def take(self, peer: muxws.Peer) -> None:
        """Look after a peer that serves, or is about to."""
        self.peer = peer
        self.arrived.set()
        peer.on_close(self.on_close)
        peer.on_frame(self.on_frame)

    def on_frame(self, direction: str, frame: muxws.Frame, _size: int) -> None:
        if direction == "rx" and frame.type == "goaway":
            self.goaway.set()

    def on_close(self, reason: Any) -> None:
        self.closes.append({"code": reason.code, "reason": reason.reason, "was_clean": reason.was_clean})
        self.lost.set()

    @property
    def binary(self) -> bool:
        return muxws.settings.codec == "msgpack"

    # What it does for the other side

    async def act(self, payload: Any, stream: muxws.Stream) -> None:
        """The `on_stream` handler."""
        do = payload["do"]
        self.opened.append({"do": do, "headers": stream.headers})
        try:
            await getattr(self, f"act_{do}")(payload, stream)
        except asyncio.CancelledError:
            self.stopped.append(do)
            raise

    async def act_hello(self, payload: Any, stream: muxws.Stream) -> None:
        """Nothing but the end is expected."""

    async def act_echo(self, payload: Any, stream: muxws.Stream) -> None:
        await stream.reply(payload, headers={"echo": payload["n"]}, trailers={"n": payload["n"]})

    async def act_rows(self, payload: Any, stream: muxws.Stream) -> None:
        await stream.send_headers({"kind": "rows"})
        for row in range(payload["count"]):
            await stream.send({"row": row})
        await stream.end(trailers={"rows": payload["count"]})

    async def act_ticks(self, payload: Any, stream: muxws.Stream) -> None:
        """A tick for each item, until it is stopped."""
        async for item in stream:
            await stream.send({"tick": item})

    async def act_fail(self, payload: Any, stream: muxws.Stream) -> None:
        for row in range(payload["rows"]):
            await stream.send({"row": row})
        raise LookupError(payload["message"])

    async def act_fetch(self, payload: Any, stream: muxws.Stream) -> None:
        await stream.reply(blob(payload["size"], binary=self.binary))

    async def act_upload(self, payload: Any, stream: muxws.Stream) -> None:
        await stream.reply(digest(payload["blob"]))

    async def act_gate(self, payload: Any, stream: muxws.Stream) -> None:
        await self.gate(payload["name"]).wait()
        await stream.reply({"passed": payload["name"]})

    def gate(self, name: str) -> asyncio.Event:
        return self.gates.setdefault(name, asyncio.Event())

    # What it is told to do

    async def do_many(self, count: int) -> list[Any]:
        async def one(n: int) -> Any:
            return await self.peer.request({"do": "echo", "n": n}, headers={"n": n})

        return list(await asyncio.gather(*(one(n) for n in range(count))))

    async def do_rows(self, count: int) -> dict[str, Any]:
        stream = self.peer.open({"do": "rows", "count": count}, end=True)
        rows = [item["row"] async for item in stream]
        return {"rows": rows, "reply_headers": stream.reply_headers, "trailers": stream.trailers}

    async def do_ticks(self, count: int) -> list[Any]:
        stream = self.peer.open({"do": "ticks"})
        seen: list[Any] = []
        await stream.send(0)
        async for item in stream:
            seen.append(item["tick"])
            if len(seen) == count:
                break
            await stream.send(len(seen))
        await stream.cancel("seen enough")
        return seen

    async def do_fail(self, rows: int, message: str) -> dict[str, Any]:
        stream = self.peer.open({"do": "fail", "rows": rows, "message": message}, end=True)
        seen: list[Any] = []
        items = aiter(stream)
        try:
            while True:
                seen.append((await anext(items))["row"])
        except muxws.RemoteError as error:
            return {"rows": seen, "code": int(error.code), "reason": error.reason, "payload": error.payload}

    async def do_overtake(self, what: str, size: int, count: int) -> dict[str, Any]:
        """Move a big payload, and make small calls once that is under way."""
        fragments = 0
        small: list[asyncio.Task[Any]] = []
        ended: list[str] = []

        async def call(n: int) -> Any:
            answer = await self.peer.request({"do": "echo", "n": n})
            ended.append("small")
            return answer["n"]

        def watch(direction: str, frame: muxws.Frame, _size: int) -> None:
            nonlocal fragments
            if frame.fragment is None or direction != ("tx" if what == "upload" else "rx"):
                return
            fragments += 1
            if fragments == UNDER_WAY:
                small.extend(asyncio.create_task(call(n)) for n in range(count))

        self.peer.on_frame(watch)
        answer = await self.peer.request(self.order(what, size))
        ended.append("big")
        answers = list(await asyncio.gather(*small))
        return {"ended": ended, "answers": answers, "digest": digest(answer) if what == "fetch" else answer}

    def order(self, what: str, size: int) -> dict[str, Any]:
        if what == "fetch":
            return {"do": "fetch", "size": size}
        return {"do": "upload", "blob": blob(size, binary=self.binary)}

    async def do_echo_blob(self, size: int) -> str:
        return digest(await self.peer.request(blob(size, binary=self.binary)))

    async def do_echo_begin(self, items: list[str]) -> dict[str, Any]:
        """Open a stream that the other side echoes item by item, and leave it open."""
        first, *rest = items
        self.echoed = self.peer.open(first)
        self.echoes = aiter(self.echoed)
        got = [await anext(self.echoes)]
        for item in rest:
            await self.echoed.send(item)
            got.append(await anext(self.echoes))
        return {"got": got}

    async def do_echo_end(self, item: str) -> list[str]:
        await self.goaway.wait()
        await self.echoed.send(item, end=True)
        return [got async for got in self.echoes]

    async def do_gate(self, name: str) -> Any:
        return await self.peer.request({"do": "gate", "name": name})

    async def do_open_gate(self, name: str) -> None:
        self.gate(name).set()

    async def do_ask(self, deed: str, args: dict[str, Any]) -> Any:
        """Have the other side do something to this one."""
        return await self.peer.request({"do": "ask", "deed": deed, "args": args})

    async def do_open(self) -> None:
        self.peer.open({"do": "echo", "n": 0}, end=True)

    async def do_ping(self) -> bool:
        return await self.peer.ping() >= 0

    async def do_close(self, reason: str, drain: float) -> None:
        await self.peer.close(reason=reason, drain=drain)

    async def do_wait_closed(self) -> dict[str, Any]:
        await self.lost.wait()
        return self.closes[-1]

    async def do_facts(self) -> dict[str, Any]:
        return {"opened": self.opened, "stopped": self.stopped, "live": sorted(self.peer.streams)}

    async def do_dial(self, url: str, hello: Any = None, hello_headers: Any = None) -> None:
        """Become a dialer."""
        peer = await muxws.connect(
            url,
            hello=hello,
            hello_headers=hello_headers,
            on_stream=self.act,
            max_concurrent_streams=MAX_STREAMS,
            reconnect=muxws.Reconnect(max_attempts=0),
        )
        connection: Any = peer._socket
        narrow(connection._connection.transport.get_extra_info("socket"))
        self.take(peer)

    async def do_settle(self) -> None:
        """Return when the peer is there and everything that had arrived has been acted upon."""
        await self.arrived.wait()


def narrow(sock: socket.socket) -> None:
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        sock.setsockopt(socket.SOL_SOCKET, option, SOCKET_BYTES)


def say(**line: Any) -> None:
    print(json.dumps(line), flush=True)


async def obey(worker: Worker) -> None:
    """Carry out commands until the input ends, each in a task of its own."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    tasks: set[asyncio.Task[None]] = set()

    async def run(command: dict[str, Any]) -> None:
        number = command.pop("id")
        try:
            value = await getattr(worker, f"do_{command.pop('do')}")(**command)
        except Exception as error:  # whatever it is, the test is to see it
            say(id=number, error={"type": type(error).__name__, "text": str(error)})
        else:
            say(id=number, value=value)

    while line := await reader.readline():
        task = asyncio.create_task(run(json.loads(line)))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
