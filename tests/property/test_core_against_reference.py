"""Our machine and a peer of the reference, connected and driven at random: both agree about every stream.

The reference runs on an asyncio loop that is turned step by step, over its own transport in memory, so that what either
end does falls between any two steps of the other. Nothing here breaks a rule, so neither may complain.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import muxws
import muxws.errors
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from muxws.peer import Peer
from muxws.transports.memory import MemorySocket

from muxws_green.errors import ConnectionGoingAway
from muxws_green.protocol.states import StreamState
from muxws_green.protocol.streams import LiveStream
from tests.differential.reference import PAIRS
from tests.protocol.cores import End, audit

# A failure is made small first, for which Hypothesis takes up to five minutes.
pytestmark = [pytest.mark.slow, pytest.mark.watchdog(400)]

SIZES = st.sampled_from([0, 1, 20, 150, 300, 700, 1_500, 3_000])
MAX_PAYLOAD = 2_500
CODES = st.sampled_from([0, 1, 2, 3, 4, 6, 7, 8])
HEADERS = st.sampled_from([None, None, {"h": 1}, {}])

MIRROR = {
    "open": StreamState.OPEN,
    "half_closed_local": StreamState.HALF_CLOSED_REMOTE,
    "half_closed_remote": StreamState.HALF_CLOSED_LOCAL,
}


def at_once(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run what the reference declares async and does without waiting."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    coroutine.close()
    raise AssertionError("it waits")


class Reference:
    """A peer of the reference, all whose streams are read by somebody.

    Args:
        codec: The reference's.
        dialer: Its role.
        cap: Its `max_frame_bytes`.
        limit: Its `max_concurrent_streams`.
    """

    def __init__(self, codec: Any, *, dialer: bool, cap: int, limit: int) -> None:
        self.loop = asyncio.new_event_loop()
        self.socket = MemorySocket()
        self.peer = Peer(
            self.socket,
            codec=codec,
            is_dialer=dialer,
            max_frame_bytes=cap,
            max_payload_bytes=MAX_PAYLOAD,
            max_concurrent_streams=limit,
        )
        self.peer.on_stream(self._handle)
        self.heard: dict[int, list[Any]] = {}
        self.failed: set[int] = set()
        self.taken = 0
        self.pings: list[asyncio.Task[float]] = []
        self.tasks: list[asyncio.Task[Any]] = [self.loop.create_task(self.peer.serve())]

    async def _handle(self, payload: Any, stream: Any) -> None:
        self.heard[stream.id] = [payload]
        self.tasks.append(stream.handler_task)
        self.read(stream)
        await asyncio.Event().wait()

    def read(self, stream: Any) -> None:
        self.tasks.append(self.loop.create_task(self._read(stream, self.heard.setdefault(stream.id, []))))

    async def _read(self, stream: Any, heard: list[Any]) -> None:
        try:
            async for payload in stream:
                heard.append(payload)  # noqa: PERF401  # each as it comes
        except muxws.errors.StreamReset:
            self.failed.add(stream.id)

    @property
    def sendable(self) -> list[Any]:
        able = ("open", "half_closed_remote")
        return [stream for stream in self.peer._streams.values() if stream.state in able and not stream._opening]

    def turn(self, count: int = 1) -> None:
        """Let its loop run everything that is ready, `count` times."""
        for _ in range(count):
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()

    def settle(self) -> None:
        """Turn until nothing has come of it for a while."""
        quiet = 0
        while quiet < 8:
            before = len(self.socket.sent), self.socket._inbox.qsize()
            self.turn()
            quiet = quiet + 1 if before == (len(self.socket.sent), self.socket._inbox.qsize()) else 0

    def take(self, count: int) -> list[Any]:
        """The next messages that it has sent."""
        messages = self.socket.sent[self.taken : self.taken + count]
        self.taken += len(messages)
        return messages

    def ping(self) -> None:
        self.pings.append(self.loop.create_task(self.peer.ping(timeout=60.0)))

    def close(self) -> None:
        tasks = [*self.tasks, *self.pings]
        for task in tasks:
            task.cancel()
        self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self.loop.close()


class AgainstReference(RuleBasedStateMachine):
    reference: Reference | None = None

    @initialize(
        name=st.sampled_from(sorted(PAIRS)),
        dialer=st.booleans(),
        cap=st.sampled_from([260, 260, 65_536]),
        limits=st.tuples(st.integers(1, 6), st.integers(1, 6)),
        patience=st.sampled_from([3, 10, 30, 1_000]),
    )
    def connect(self, name: str, dialer: bool, cap: int, limits: tuple[int, int], patience: int) -> None:
        ours, theirs = PAIRS[name]
        self.end = End(dialer=dialer, codec=ours, cap=cap, limit=limits[0], max_payload=MAX_PAYLOAD, buffer=8_192)
        self.reference = self.ref = Reference(theirs, dialer=not dialer, cap=cap, limit=limits[1])
        self.cap = cap
        self.patience = patience
        self.values = 0
        self.pings = 0
        #: What was sent on each stream, by our end and by theirs, and what ours has heard.
        self.sent: tuple[dict[int, list[Any]], dict[int, list[Any]]] = ({}, {})
        self.heard: dict[int, list[Any]] = {}
        self.failed: set[int] = set()
        self.pongs = 0
        self.answered: set[int] = set()
        reactions = self.end.recorder.reactions
        reactions["opened"] = lambda live, payload: self.heard.setdefault(live.id, []).append(payload)
        reactions["answered"] = self.note_answer
        reactions["payload"] = lambda live, payload, _size: self.heard.setdefault(live.id, []).append(payload)
        reactions["failed"] = lambda live, _error: self.failed.add(live.id)
        reactions["pong"] = lambda _nonce: setattr(self, "pongs", self.pongs + 1)

    def note_answer(self, live: LiveStream, _headers: dict[str, Any] | None) -> None:
        assert live.local
        assert live.id not in self.answered
        self.answered.add(live.id)

    def value(self, size: int) -> str:
        self.values += 1
        return f"{self.values}:{'é' if self.values % 2 else 'x'}" + "x" * size

    @property
    def sendable(self) -> list[LiveStream]:
        able = (StreamState.OPEN, StreamState.HALF_CLOSED_REMOTE)
        return [live for live in self.end.core.streams.values() if live.state in able and not live.opening]

    # Our end

    @rule(size=SIZES, end=st.booleans(), headers=HEADERS)
    def open(self, size: int, end: bool, headers: dict[str, Any] | None) -> None:
        value = self.value(size)
        try:
            live = self.end.open(value, end=end, headers=headers)
        except ConnectionGoingAway:
            return
        self.sent[0][live.id] = [value]

    @precondition(lambda self: self.sendable)
    @rule(data=st.data(), sizes=st.lists(SIZES, max_size=4), end=st.booleans(), headers=HEADERS)
    def send(self, data: st.DataObject, sizes: list[int], end: bool, headers: dict[str, Any] | None) -> None:
        live = data.draw(st.sampled_from(self.sendable))
        for size in sizes:
            value = self.value(size)
            self.end.send(live, value, headers=None if live.answered else headers)
            self.sent[0].setdefault(live.id, []).append(value)
        if end:
            self.end.send(live, end=True, trailers={"t": 1}, headers=None if live.answered else headers)

    @precondition(lambda self: len(self.end.core.streams) > 1)
    @rule(data=st.data(), code=CODES, asked=st.booleans(), size=st.none() | SIZES)
    def reset(self, data: st.DataObject, code: int, asked: bool, size: int | None) -> None:
        live = data.draw(st.sampled_from(list(self.end.core.streams.values())))
        payload: dict[str, Any] = {} if size is None else {"payload": {"message": "x" * size}}
        self.end.core.reset(live, code, "because", asked=asked, **payload)
        self.failed.add(live.id)

    @precondition(lambda self: self.values > self.patience)
    @rule()
    def goaway(self) -> None:
        self.end.core.goaway(0, "bye")

    # Their end

    @rule(size=SIZES, end=st.booleans(), headers=HEADERS)
    def they_open(self, size: int, end: bool, headers: dict[str, Any] | None) -> None:
        value = self.value(size)
        try:
            stream = self.ref.peer.open(value, end=end, headers=headers)
        except muxws.errors.ConnectionGoingAway:
            return
        self.sent[1][stream.id] = [value]
        self.ref.read(stream)

    @precondition(lambda self: self.ref.sendable)
    @rule(data=st.data(), sizes=st.lists(SIZES, max_size=4), end=st.booleans(), headers=HEADERS)
    def they_send(self, data: st.DataObject, sizes: list[int], end: bool, headers: dict[str, Any] | None) -> None:
        stream = data.draw(st.sampled_from(self.ref.sendable))
        for size in sizes:
            value = self.value(size)
            at_once(stream.send(value, headers=None if stream._sent_a_frame else headers))
            self.sent[1].setdefault(stream.id, []).append(value)
        if end:
            at_once(stream.end(trailers={"t": 1}, headers=None if stream._sent_a_frame else headers))

    @precondition(lambda self: len(self.ref.peer._streams) > 1)
    @rule(data=st.data(), code=CODES)
    def they_reset(self, data: st.DataObject, code: int) -> None:
        streams = [stream for stream in self.ref.peer._streams.values() if not stream._opening]
        if streams:
            stream = data.draw(st.sampled_from(streams))
            at_once(stream.reset(muxws.ResetCode(code), "because"))
            self.ref.failed.add(stream.id)

    @precondition(lambda self: self.values > self.patience)
    @rule()
    def they_say_goaway(self) -> None:
        self.ref.peer._send_goaway(muxws.ResetCode.NO_ERROR, "bye")

    @rule(who=st.booleans())
    def ping(self, who: bool) -> None:
        if who:
            self.ref.ping()
        else:
            self.pings += 1
            self.end.core.ping(str(self.pings))

    # Between them

    @rule()
    def write(self) -> None:
        """Hand one batch of ours over. It lies there until their loop turns."""
        batch = self.end.core.take_batch()
        for message in batch:
            assert len(message) <= self.cap
            self.ref.socket.inject(message if self.end.codec.binary else message.decode())
        if any(frame.type == "open" and frame.more for frame in map(self.end.decode, batch)):
            # The reference takes the piece of an open that it has refused meanwhile for another open, and ends the
            # connection. So it is heard before the next piece leaves.
            self.ref.settle()
            self.read(1_000_000)

    @rule(count=st.integers(1, 5))
    def turn(self, count: int) -> None:
        self.ref.turn(count)

    @rule(count=st.integers(1, 20))
    def read(self, count: int) -> None:
        """Receive what they have sent, or a part of it."""
        for message in self.ref.take(count):
            self.end.core.receive(message)

    @invariant()
    def everything_counted_adds_up(self) -> None:
        if self.reference is not None:
            audit(self.end.core)
            assert self.ref.peer.is_open

    @rule()
    def agree(self) -> None:
        moving = True
        while moving:
            self.write()
            self.ref.settle()
            moving = bool(self.end.core.lanes) or self.ref.taken < len(self.ref.socket.sent)
            self.read(1_000_000)
        # After its goaway the reference goes on collecting an open of which our end will send no more.
        going = self.ref.peer._goaway.sent
        theirs = {
            stream.id: stream.state.value
            for stream in self.ref.peer._streams.values()
            if not (going and stream._opening)
        }
        assert {live.id: live.state for live in self.end.core.streams.values()} == {
            stream: MIRROR[state] for stream, state in theirs.items()
        }
        failed = self.failed | self.ref.failed
        for sent, heard in ((self.sent[0], self.ref.heard), (self.sent[1], self.heard)):
            for stream, values in sent.items():
                got = heard.get(stream, [])
                assert got == values[: len(got)]
                assert stream in failed or got == values
        assert self.end.core.lanes.queued_bytes == self.end.core._assembling_bytes == 0
        assert self.pongs == self.pings
        assert all(ping.done() for ping in self.ref.pings)

    def teardown(self) -> None:
        if self.reference is None:
            return
        try:
            self.agree()
        finally:
            self.reference.close()


TestAgainstReference = AgainstReference.TestCase
