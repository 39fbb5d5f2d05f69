"""The reference replays the sequence vectors too, ours included: what a script expects is not our invention.

It runs in this process, on a loop of its own; the steps are those of `runner.py`, in asyncio's words.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgpack
import muxws
import pytest
from muxws import errors
from muxws.peer import Peer
from muxws.transports.memory import memory_pair

from muxws_green.protocol.fragments import MAX_FRAME_BYTES
from tests.conformance.loops import run
from tests.conformance.runner import same
from tests.conformance.test_reference import REFERENCE
from tests.conformance.test_vectors import SEQUENCES, meant

#: What the reference does otherwise, and why we do not follow it.
DIFFERENCES = {
    "odd-pings-and-pongs-change-nothing": "it answers a ping without a nonce by a pong without one",
    "limit-refuses-a-fragmented-open-at-its-first-frame": "late pieces of a refused opening cost it the connection",
    "cancelled-opens-keep-their-place": "it sends all fragments of a cancelled open that was still queued, not one",
}

#: Turns of the loop in which everything has happened that will.
TURNS = 150

#: Scripts count in milliseconds.
SECONDS_EACH = 1 / 1_000


class Error(Exception):
    """What the handlers of the scripts raise."""


class End:
    """One reference peer of a script."""

    def __init__(self, socket: Any, codec: Any, vector: dict[str, Any], *, dialer: bool) -> None:
        self.socket = socket
        self.codec = codec
        self.cursor = 0
        self.handles: dict[int, Any] = {}
        self.closing: asyncio.Task[Any] | None = None
        self.peer = Peer(
            socket,
            codec=codec,
            is_dialer=dialer,
            max_frame_bytes=vector.get("max_frame_bytes", MAX_FRAME_BYTES),
            max_concurrent_streams=vector.get("max_concurrent_streams", 100),
        )
        self.peer.on_stream(self._handle)
        self.serving = asyncio.create_task(self.peer.serve())

    async def _handle(self, payload: Any, stream: Any) -> None:
        self.handles[stream.id] = stream
        if isinstance(payload, dict) and payload.get("handler") == "raise":
            raise Error(payload["message"])
        await stream.closed.wait()

    def stream(self, stream_id: int) -> Any:
        return self.handles.get(stream_id) or self.peer.streams[stream_id]

    def frames(self) -> list[muxws.Frame]:
        return [self.codec.decode(message) for message in self.socket.sent]


class Sequence:
    """One replay."""

    def __init__(self, vector: dict[str, Any], codec: Any, *, swapped: bool) -> None:
        self._steps = vector["steps"]
        self._codec = codec
        left, right = memory_pair()
        ends = End(left, codec, vector, dialer=True), End(right, codec, vector, dialer=False)
        self.ends = dict(zip(("acceptor", "dialer") if swapped else ("dialer", "acceptor"), ends, strict=True))
        self._ids: list[int] = []
        self._labels: dict[str, Any] = {}
        self._tasks: list[asyncio.Task[Any]] = []

    async def run(self) -> None:
        try:
            for number, step in enumerate(self._steps, 1):
                try:
                    # Not wait_for: it may let the loop turn, and steps follow each other in one turn.
                    async with asyncio.timeout(10):
                        await self._step(step)
                except BaseException as error:
                    error.add_note(f"step {number}: {step}")
                    for name, end in self.ends.items():
                        error.add_note(f"{name} sent {end.frames()}")
                    raise
        finally:
            for end in self.ends.values():
                await end.socket.drop()
            await settle()
            tasks = [*self._tasks, *(end.serving for end in self.ends.values())]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _step(self, step: dict[str, Any]) -> None:
        kind = next(key for key in step if key in ("settle", "inject", "call") or key.startswith("expect_"))
        if kind == "settle":
            await settle()
        elif kind == "call":
            await self._call(self.ends[step["peer"]], step)
        elif kind == "inject":
            self.ends[step["peer"]].socket.inject(as_written(self._codec, self._resolved(step["inject"])))
        else:
            await getattr(self, f"_{kind}")(step.get("peer"), step[kind])

    def _resolved(self, envelope: dict[str, Any]) -> dict[str, Any]:
        names = {"stream_ref": "stream", "last_stream_ref": "last_stream"}
        return {
            names.get(name, name): self._ids[value - 1] if name in names else value for name, value in envelope.items()
        }

    async def _expect_frame(self, peer: str, expected: dict[str, Any]) -> None:
        end, expected = self.ends[peer], self._resolved(expected)
        for number, frame in enumerate(end.frames()[end.cursor :], end.cursor + 1):
            if all(same(getattr(frame, name), value) for name, value in expected.items()):
                end.cursor = number
                return
        raise AssertionError(f"no frame matches {expected}")

    async def _expect_no_frame(self, peer: str, expected: dict[str, Any]) -> None:
        expected = self._resolved(expected)
        for frame in self.ends[peer].frames():
            assert not all(same(getattr(frame, name), value) for name, value in expected.items())

    async def _expect_result(self, _peer: None, expected: dict[str, Any]) -> None:
        assert same(await self._labels[expected["ref"]], expected["value"])

    async def _expect_error(self, _peer: None, expected: dict[str, Any]) -> None:
        with pytest.raises(getattr(errors, expected["error"])) as caught:
            await self._labels[expected["ref"]]
        if "code" in expected:
            assert caught.value.code == expected["code"]
        if "payload" in expected:
            assert same(caught.value.payload, expected["payload"])

    async def _expect_headers(self, _peer: None, expected: dict[str, Any]) -> None:
        stream = self.ends[expected["peer"]].stream(self._ids[expected["stream_ref"] - 1])
        if expected["of"] == "reply":
            await stream.reply_headers_arrived.wait()
        assert same(stream.reply_headers if expected["of"] == "reply" else stream.headers, expected["value"])

    async def _expect_closed(self, _peer: None, expected: dict[str, Any]) -> None:
        end = self.ends[expected["peer"]]
        while end.peer.is_open:
            await asyncio.sleep(0)

    async def _call(self, end: End, step: dict[str, Any]) -> None:
        if "raises" in step:
            with pytest.raises(getattr(errors, step["raises"])):
                await self._made(end, step)
            return
        bound = await self._made(end, step)
        if "as" in step:
            self._labels[step["as"]] = bound

    async def _made(self, end: End, step: dict[str, Any]) -> Any:
        arguments: dict[str, Any] = {
            name: step[name] for name in ("payload", "headers", "trailers", "end", "reason", "code") if name in step
        }
        call = step["call"]
        if call == "open":
            stream = end.peer.open(**arguments)
            self._ids.append(stream.id)
            end.handles[stream.id] = stream
            return stream
        if call in ("request", "notify"):
            before = set(end.peer.streams)
            if "timeout_ms" in step:
                arguments["timeout"] = step["timeout_ms"] * SECONDS_EACH
            task = self._start(getattr(end.peer, call)(**arguments))
            while not (opened := set(end.peer.streams) - before):
                await asyncio.sleep(0)
            (stream_id,) = opened
            self._ids.append(stream_id)
            end.handles[stream_id] = end.peer.streams[stream_id]
            return task
        if call == "close":
            end.closing = self._start(end.peer.close(drain=step.get("drain_ms", 10_000) * SECONDS_EACH, **arguments))
            return None
        if call == "await_close":
            assert end.closing is not None
            return await end.closing
        stream = end.stream(self._ids[step["stream_ref"] - 1])
        if call == "iterate":

            async def collect() -> list[Any]:
                return [item async for item in stream]

            return self._start(collect())
        if call in ("send", "reply"):
            arguments.setdefault("payload", None)
        method: Callable[..., Awaitable[Any]] = getattr(stream, call)
        return await method(**arguments)

    def _start(self, work: Any) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(work)
        # Whoever awaits it sees what it raises; asyncio need not say so besides.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._tasks.append(task)
        return task


async def settle() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


def as_written(codec: Any, envelope: dict[str, Any]) -> Any:
    return msgpack.packb(envelope) if codec.binary else json.dumps(envelope)


@pytest.mark.parametrize("roles", ["as written", "swapped"])
@pytest.mark.parametrize("name,codec_name", meant(SEQUENCES))
def test_sequence(name: str, codec_name: str, roles: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)

    async def replay() -> None:
        await Sequence(SEQUENCES[name], REFERENCE[codec_name], swapped=roles == "swapped").run()

    if name in DIFFERENCES:
        with pytest.raises((AssertionError, errors.ConnectionLost)):
            run(replay())
    else:
        run(replay())
