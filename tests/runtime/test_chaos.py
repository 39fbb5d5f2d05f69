"""Everything at once, by chance: whatever is killed, left or stalled meanwhile, no call hangs and nothing is left.

Each seed makes other limits and another sequence; time is fake, so that a seed does the same each time.
"""

from __future__ import annotations

import gc
import logging
import random
import traceback
from typing import Any

import gevent
import pytest

from muxws_green import ConnectionClosed, ConnectionLost, MuxwsError, Stream
from muxws_green.testing import settle
from tests.runtime.ends import PATIENCE, Ends

#: How many steps each seed takes; about as many calls are under way together as the peer can stand.
STEPS = 150

SIZES = (1, 100, 3_000, 70_000, 200_000)


class Interrupted(BaseException):
    """Thrown into whoever waits."""


class Chaos:
    """One run: starts calls at both ends, interferes with them, and says what it found."""

    def __init__(self, seed: int, made: Ends, clock: Any) -> None:
        self.dice = random.Random(seed)
        self.made = made
        self.clock = clock
        self.peers = (made.near, made.far)
        self.links: list[Any] = [peer._link for peer in self.peers]
        self.lines = (made.near_transport.outgoing, made.far_transport.outgoing)
        self.running: list[gevent.Greenlet[..., Any]] = []
        #: Those that have begun and not ended, in which an exception finds somebody.
        self.inside: list[gevent.Greenlet[..., Any]] = []
        self.surprises: list[str] = []
        for peer in self.peers:
            peer.on_stream(self.handle, stop=self.dice.random() < 0.8)

    def handle(self, payload: Any, stream: Any) -> None:
        kind, count, size = payload["kind"], payload["count"], payload["size"]
        if kind == "echo":
            for row in stream:
                stream.send(row)
        elif kind == "reply":
            stream.reply(payload)
        elif kind == "raise":
            raise ValueError("so")
        elif kind == "rows":
            for _ in range(count):
                stream.send("r" * size)
        elif kind == "sleep":
            self.clock.sleep(count / 1_000)
        elif kind == "cancel":
            stream.cancel()
        else:
            peer = self.peers[stream._link is self.links[1]]
            for _ in stream:
                peer.request({**payload, "kind": "reply"}, timeout=0.5)

    def call(self) -> None:
        """One use of one end, whose end is certain: each stream is ended, left or has a deadline."""
        dice = self.dice
        peer = dice.choice(self.peers)
        payload = {
            "kind": dice.choice(["echo", "reply", "raise", "rows", "sleep", "cancel", "call"]),
            "count": dice.randint(0, 8),
            "size": dice.choice(SIZES),
            "padding": "p" * dice.choice((0, 0, 0, *SIZES)),
        }
        timeout = dice.choice([None, 0.001, 0.02, 0.5])
        which = dice.randrange(8)
        if which == 0:
            peer.request(payload, timeout=timeout)
        elif which == 1:
            peer.notify(payload, wait=dice.random() < 0.5)
        elif which == 2:
            peer.ping(timeout=timeout or 1.0)
        elif which == 3:
            peer.open(payload, end=True).result(timeout)
        elif which == 4:
            with peer.open(payload) as stream:
                stream.send("x" * dice.choice(SIZES))
                stream.receive(timeout or 0.5)
        elif which == 5:
            stream = peer.open(payload)
            self.clock.sleep(dice.random() / 100)
            stream.cancel("r" * dice.randrange(2_000))
        elif which == 6:
            stream = peer.open(payload)
            for _ in range(dice.randrange(5)):
                stream.send("d" * dice.choice(SIZES))
            stream.end()
            for _ in stream:
                if dice.random() < 0.2:
                    break
        else:
            stream = peer.open(payload)
            rows = iter(stream)
            stream.end()
            next(rows, None)

    def run(self, end_at: int | None) -> None:
        dice = self.dice
        for step in range(STEPS):
            if step == end_at:
                self.end()
            self.running.append(gevent.spawn(self.guarded))
            if dice.random() < 0.3:
                self.clock.sleep(dice.random() / 200)
            if self.inside and dice.random() < 0.2:
                thrown = dice.choice([gevent.GreenletExit("stop"), gevent.Timeout(1), Interrupted(), KeyError("mine")])
                self.interrupt(dice.choice(self.inside), thrown)
            if dice.random() < 0.02:
                dice.choice(self.lines).stall()
            if dice.random() < 0.05:
                self.resume()
        self.resume()
        gevent.joinall(self.running, timeout=PATIENCE)
        # Pauses of readers and drains of closes come to their end too.
        self.clock.advance(5.0)

    def interrupt(self, own: gevent.Greenlet[..., Any], thrown: BaseException) -> None:
        if own in self.inside:
            self.inside.remove(own)
            own.kill(thrown, block=False)

    def resume(self) -> None:
        for line in self.lines:
            line.resume()

    def guarded(self) -> None:
        own: Any = gevent.getcurrent()
        self.inside.append(own)
        try:
            self.call()
        except (MuxwsError, BlockingIOError, gevent.Timeout, gevent.GreenletExit, Interrupted, KeyError):
            # What a call may raise, and what was thrown into it.
            pass
        except BaseException:
            self.surprises.append(traceback.format_exc())
        finally:
            if own in self.inside:
                self.inside.remove(own)

    def end(self) -> None:
        how = self.dice.randrange(6)
        near, far = self.peers
        if how == 0:
            self.made.drop()
        elif how == 1:
            gevent.spawn(near.close, drain=0.2)
        elif how == 2:
            gevent.spawn(far.close, drain=0.0)
        elif how == 3:
            self.made.near_transport.inject("{")
        elif how == 4:
            self.links[0]._reader.kill(block=False)
        else:
            gevent.spawn(near.close, drain=0.1)
            gevent.spawn(far.close, drain=0.1)

    def check(self) -> None:
        """No call hangs, none raised what it may not, and every count is back at zero."""
        assert self.surprises == []
        assert [own for own in self.running if not own.dead] == []
        self.running.clear()
        for peer in self.peers:
            # Without a variable, which would keep the last one and what it holds.
            list(map(Stream.cancel, peer.streams.values()))
        self.clock.advance(1.0)
        gc.collect()
        settle()
        for peer, link in zip(self.peers, self.links, strict=True):
            core, stats = link.core, peer.stats
            assert (stats.live_streams, stats.queued_bytes, stats.held_bytes) == (0, 0, 0)
            assert (core._remote_streams, core._assembling_bytes, core.lanes.whole_bytes) == (0, 0, 0)
            assert link.intake.holders == {}
            assert not link.parked
            assert not link.sending
            assert not link.outlet._small
            assert not link.outlet._big
            assert not link.outlet._of_lane
            assert link.pings._pending == {}


@pytest.fixture
def chaos(make, clock):
    # pytest keeps the records of logs, and with them the streams of which they tell.
    logging.disable(logging.CRITICAL)

    def chaos(seed: int) -> Chaos:
        dice = random.Random(-seed)
        made = make(
            clock=clock,
            capacity_bytes=dice.choice([None, 1, 1_000, 70_000]),
            send_buffer_bytes=dice.choice([1_000, 100_000, 16_000_000]),
            receive_buffer_bytes=dice.choice([2_000, 100_000, 16_000_000]),
            receive_pause_timeout=0.05,
            max_concurrent_streams=dice.choice([3, 20, 100]),
            max_payload_bytes=500_000,
        )
        return Chaos(seed, made, clock)

    yield chaos
    logging.disable(logging.NOTSET)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_a_connection_that_lives_on(chaos, seed):
    run = chaos(seed)
    run.run(None)
    assert all(peer.is_open for peer in run.peers)
    run.check()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 108))
def test_a_connection_that_ends_in_the_midst_of_it(chaos, seed):
    run = chaos(seed)
    run.run(run.dice.randrange(STEPS))
    for peer in run.peers:
        assert not peer.is_open
        for call in (peer.open, peer.ping):
            with pytest.raises((ConnectionLost, ConnectionClosed)):
                call()
    run.check()
