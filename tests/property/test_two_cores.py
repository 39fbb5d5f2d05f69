"""Two connected machines, driven at random: whatever either end does, legal or not, both agree about every stream.

Messages lie on a wire of their own for each direction and are delivered in any interleaving. When everything has been
delivered, a stream is live at both ends, in mirrored states, or at neither; a stream that nobody reset has delivered
exactly what was sent, any other a beginning of it; and everything that is counted adds up.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from muxws_green.errors import ConnectionGoingAway, ProtocolError, ResetCode, StreamClosed
from muxws_green.protocol.connection import MAX_QUEUED_PONGS, Violation
from muxws_green.protocol.states import LIVE, StreamState
from muxws_green.protocol.streams import LiveStream
from tests.protocol.cores import CODECS, End, audit, pack

# A failure is made small first, for which Hypothesis takes up to five minutes.
pytestmark = [pytest.mark.slow, pytest.mark.watchdog(400)]

CAP = 260
#: Long enough for several fragments, and now and then for more than the other end takes.
SIZES = st.sampled_from([0, 1, 20, 150, 300, 700, 1_500, 3_000])
MAX_PAYLOAD = 2_500
CODES = st.sampled_from([0, 1, 2, 3, 4, 6, 7, 8])

MIRROR = {
    StreamState.OPEN: StreamState.OPEN,
    StreamState.HALF_CLOSED_LOCAL: StreamState.HALF_CLOSED_REMOTE,
    StreamState.HALF_CLOSED_REMOTE: StreamState.HALF_CLOSED_LOCAL,
}


class Side:
    """One end, what it has sent and heard on each stream, and what is on its way to the other."""

    def __init__(self, end: End) -> None:
        self.end = end
        self.wire: deque[bytes] = deque()
        self.sent: dict[int, list[Any]] = {}
        self.heard: dict[int, list[Any]] = {}
        #: Streams of which this end knows that they did not end by both sides' ends.
        self.failed: set[int] = set()
        self.lives: dict[int, LiveStream] = {}
        self.running: set[int] = set()
        self.ended = False
        reactions = end.recorder.reactions
        reactions["opening"] = lambda live, _headers: self.lives.__setitem__(live.id, live)
        reactions["opened"] = lambda live, payload: self.heard.setdefault(live.id, []).append(payload)
        reactions["payload"] = lambda live, payload, _size: self.heard.setdefault(live.id, []).append(payload)
        reactions["failed"] = lambda live, _error: self.failed.add(live.id)

    @property
    def live(self) -> list[LiveStream]:
        return list(self.end.core.streams.values())

    @property
    def sendable(self) -> list[LiveStream]:
        """Nobody has a stream to send on before its opening payload is whole."""
        able = (StreamState.OPEN, StreamState.HALF_CLOSED_REMOTE)
        return [live for live in self.live if live.state in able and not live.opening]

    def receive(self, message: bytes) -> None:
        self.end.hear_message(message)
        self.end.recorder.calls.clear()


class TwoCores(RuleBasedStateMachine):
    @initialize(
        codec=st.sampled_from(CODECS),
        limits=st.tuples(st.integers(1, 6), st.integers(1, 6)),
        cap=st.sampled_from([CAP, CAP, 65_536]),
        patience=st.sampled_from([3, 10, 30, 1_000]),
    )
    def connect(self, codec: Any, limits: tuple[int, int], cap: int, patience: int) -> None:
        self.codec = codec
        self.sides = [
            Side(End(dialer=dialer, codec=codec, cap=cap, limit=limit, max_payload=MAX_PAYLOAD, buffer=8_192))
            for dialer, limit in zip((True, False), limits, strict=True)
        ]
        self.cap = cap
        self.values = 0
        #: How many values are sent before somebody breaks the connection.
        self.patience = patience

    def value(self, size: int) -> str:
        self.values += 1
        return f"{self.values}:{'é' if self.values % 2 else 'x'}" + "x" * size

    def over(self) -> bool:
        return any(side.end.core.dead for side in self.sides)

    # What an end does

    @precondition(lambda self: not self.over())
    @rule(who=st.booleans(), size=SIZES, end=st.booleans(), headers=st.none() | st.just({"h": 1}))
    def open(self, who: bool, size: int, end: bool, headers: dict[str, Any] | None) -> None:
        side = self.sides[who]
        value = self.value(size)
        try:
            live = side.end.open(value, end=end, headers=headers)
        except ConnectionGoingAway:
            assert side.end.core.goaway_sent or side.end.core.goaway_received
            return
        side.lives[live.id] = live
        side.sent[live.id] = [value]

    @precondition(lambda self: any(side.sendable for side in self.sides))
    @rule(data=st.data(), sizes=st.lists(SIZES, min_size=1, max_size=4), end=st.booleans(), headers=st.booleans())
    def send(self, data: st.DataObject, sizes: list[int], end: bool, headers: bool) -> None:
        side = data.draw(st.sampled_from([side for side in self.sides if side.sendable]))
        live = data.draw(st.sampled_from(side.sendable))
        for number, size in enumerate(sizes, 1):
            value = self.value(size)
            options: dict[str, Any] = {}
            if headers and not live.answered:
                options["headers"] = {"h": 1}
            if end and number == len(sizes):
                options.update(end=True, trailers={"t": 1})
            side.end.send(live, value, **options)
            side.sent.setdefault(live.id, []).append(value)

    @precondition(lambda self: any(side.sendable for side in self.sides))
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        side = data.draw(st.sampled_from([side for side in self.sides if side.sendable]))
        side.end.send(data.draw(st.sampled_from(side.sendable)), end=True)

    @precondition(lambda self: sum(len(side.live) for side in self.sides) > 3)
    @rule(data=st.data(), code=CODES, asked=st.booleans(), size=st.none() | SIZES)
    def reset(self, data: st.DataObject, code: int, asked: bool, size: int | None) -> None:
        side = data.draw(st.sampled_from([side for side in self.sides if side.live]))
        live = data.draw(st.sampled_from(side.live))
        payload: dict[str, Any] = {} if size is None else {"payload": {"message": "x" * size}}
        side.end.core.reset(live, code, "r" * (size or 0), asked=asked, **payload)
        side.failed.add(live.id)

    @precondition(lambda self: not self.over())
    @rule(who=st.booleans(), nonces=st.integers(0, 3))
    def ping_and_misuse(self, who: bool, nonces: int) -> None:
        """Pings, and calls that raise and change nothing."""
        side = self.sides[who]
        for number in range(nonces):
            side.end.core.ping(str(number))
        for live in side.lives.values():
            if live.state not in LIVE:
                side.end.core.reset(live, ResetCode.CANCELLED, None, asked=True)
            if live.state in (StreamState.HALF_CLOSED_LOCAL, StreamState.CLOSED):
                with pytest.raises(StreamClosed):
                    side.end.send(live, 1)
            elif live.answered:
                with pytest.raises(ProtocolError):
                    side.end.send(live, 1, headers={"h": 1})

    @precondition(lambda self: not self.over() and self.values > self.patience)
    @rule(who=st.booleans(), code=st.sampled_from([0, 3]))
    def goaway(self, who: bool, code: int) -> None:
        self.sides[who].end.core.goaway(code, "bye")

    @precondition(lambda self: any(side.running or side.live for side in self.sides))
    @rule(data=st.data())
    def handler(self, data: st.DataObject) -> None:
        """A handler starts on a live stream of the other end's, or one that runs ends."""
        side = data.draw(st.sampled_from(self.sides))
        idle = [live.id for live in side.live if not live.local and live.id not in side.running]
        choices = [*idle, *sorted(side.running)]
        if not choices:
            return
        stream = data.draw(st.sampled_from(choices))
        if stream in side.running:
            side.running.remove(stream)
            side.end.core.handler_ended(side.lives[stream])
        else:
            side.running.add(stream)
            side.end.core.handler_started(side.lives[stream])

    # The wire

    @rule(who=st.booleans())
    def write(self, who: bool) -> None:
        side = self.sides[who]
        batch = side.end.core.take_batch()
        assert all(len(message) <= self.cap for message in batch)
        pieces = [frame.stream for frame in map(side.end.decode, batch) if frame.fragment is not None]
        assert len(pieces) == len(set(pieces))
        side.wire.extend(batch)

    @rule(who=st.booleans(), count=st.integers(1, 20))
    def deliver(self, who: bool, count: int) -> None:
        side, other = self.sides[who], self.sides[not who]
        for _ in range(min(count, len(side.wire))):
            if other.end.core._queued_pongs == MAX_QUEUED_PONGS:
                self.write(not who)
            other.receive(side.wire.popleft())

    @rule(who=st.booleans())
    def write_and_deliver(self, who: bool) -> None:
        self.write(who)
        self.deliver(who, 10_000)

    # What no legal peer sends

    @precondition(lambda self: any(side.live for side in self.sides))
    @rule(
        data=st.data(),
        what=st.sampled_from(["headers", "whole within", "over the cap", "broken payload", "after end", "other type"]),
    )
    def break_a_stream(self, data: st.DataObject, what: str) -> None:
        """Frames that cost one stream; the other end learns of that."""
        side = data.draw(st.sampled_from([side for side in self.sides if side.live]))
        live = data.draw(st.sampled_from(side.live))
        if what == "after end" and live.state is StreamState.HALF_CLOSED_LOCAL:
            # The end alone would close it, and the other end would never know.
            return
        junk: Any = b"\xc1" if self.codec.binary else "["
        piece: dict[str, Any] = {"type": "data", "fragment": junk, "more": True}
        sequences: dict[str, list[dict[str, Any]]] = {
            "headers": [{"type": "data"}, {"type": "data", "headers": {}}],
            "whole within": [piece, {"type": "data", "payload": 1}],
            "over the cap": [{"type": "data", "payload": "x" * self.cap}],
            "broken payload": [{"type": "data", "fragment": junk}],
            "after end": [{"type": "data", "end": True}, {"type": "data", "payload": 1}],
            "other type": [piece, {"type": "data"} if live.local else {**piece, "type": "open", "headers": {}}],
        }
        for envelope in sequences[what]:
            side.end.core.receive(pack(self.codec, {**envelope, "stream": live.id}))
        side.end.recorder.calls.clear()
        assert live.state is StreamState.CLOSED
        assert live.id in side.failed

    @precondition(lambda self: not self.over())
    @rule(who=st.booleans(), data=st.data())
    def say_nothing(self, who: bool, data: st.DataObject) -> None:
        """Frames that change nothing: late ones, unknown ones, pongs for nobody."""
        side = self.sides[who]
        closed = [stream for stream, live in side.lives.items() if live.state not in LIVE]
        others = self.sides[not who].lives
        gone = [stream for stream in closed if stream in others and others[stream].state not in LIVE]
        envelopes: list[dict[str, Any]] = [
            {"type": "novel", "stream": 1},
            {"type": "pong", "nonce": "nobody's"},
            {"type": "ping"},
            {"type": "data", "stream": 0, "payload": 1},
        ]
        envelopes += [{"type": "data", "stream": stream, "payload": 1, "end": True} for stream in closed]
        envelopes += [{"type": "reset", "stream": stream, "code": 1} for stream in gone]
        before = {live.id: live.state for live in side.live}
        envelope = data.draw(st.sampled_from(envelopes))
        side.end.core.receive(pack(self.codec, envelope))
        side.end.recorder.calls.clear()
        assert {live.id: live.state for live in side.live} == before

    @precondition(lambda self: not self.over() and self.values > self.patience)
    @rule(who=st.booleans(), kind=st.sampled_from(["open", "data", "reset", "undecodable", "no type"]))
    def break_the_connection(self, who: bool, kind: str) -> None:
        side = self.sides[who]
        core = side.end.core
        wrong = side.end.ours(1) if kind == "open" else side.end.theirs(10_000)
        message: str | bytes
        if kind == "undecodable":
            message = b"\xc1" if self.codec.binary else "{"
        else:
            message = pack(self.codec, {"type": kind, "stream": wrong} if kind != "no type" else {"stream": 1})
        before = {live.id: live.state for live in side.live}
        queued = core.lanes.queued_bytes
        with pytest.raises(Violation) as caught:
            core.receive(message)
        assert caught.value.close_code == 1002
        assert {live.id: live.state for live in side.live} == before
        assert core.lanes.queued_bytes == queued
        for one in self.sides:
            one.end.core.die()
            one.end.core.goaway(3, "broken")
            one.wire.clear()

    # What always holds

    @invariant()
    def everything_counted_adds_up(self) -> None:
        for side in getattr(self, "sides", ()):
            closed = [stream for stream in side.running if side.lives[stream].state not in LIVE]
            audit(side.end.core, running=len(closed))
            assert side.end.core._remote_streams <= side.end.core._max_concurrent_streams

    def settle(self) -> None:
        """Write and deliver until nothing moves."""
        for _ in range(1_000):
            if not any(side.wire or side.end.core.lanes for side in self.sides):
                return
            for who in (False, True):
                self.write(who)
                self.deliver(who, 10_000)
        raise AssertionError("it never settles")

    @precondition(lambda self: not self.over())
    @rule()
    def agree(self) -> None:
        self.settle()
        one, two = self.sides
        assert {live.id: live.state for live in one.live} == {live.id: MIRROR[live.state] for live in two.live}
        failed = one.failed | two.failed
        for here, there in ((one, two), (two, one)):
            for stream, sent in here.sent.items():
                heard = there.heard.get(stream, [])
                assert heard == sent[: len(heard)]
                assert stream in failed or heard == sent
            assert here.end.core.lanes.queued_bytes == here.end.core.lanes.whole_bytes == 0
            assert here.end.core._assembling_bytes == 0

    def teardown(self) -> None:
        if not hasattr(self, "sides"):
            return
        if not self.over():
            self.agree()
        for side in self.sides:
            side.end.core.die()
            for stream in side.running:
                side.end.core.handler_ended(side.lives[stream])
            side.end.sent()
            audit(side.end.core)
            assert side.end.core._remote_streams == 0


TestTwoCores = TwoCores.TestCase
