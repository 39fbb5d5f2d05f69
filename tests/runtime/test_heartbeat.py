"""The heartbeat greenlet, with policies of an application's: what they are told, and what becomes of what they say."""

from __future__ import annotations

from collections.abc import Callable

import gevent
import pytest
from zope.interface import implementer

from muxws_green.codecs import JsonCodec
from muxws_green.errors import HeartbeatTimeoutError
from muxws_green.interfaces import IHeartbeat, IHeartbeatPolicy
from muxws_green.runtime.options import Options
from muxws_green.runtime.peer import Peer
from muxws_green.testing import established_peer, settle
from muxws_green.transports.memory import memory_pair


@implementer(IHeartbeatPolicy, IHeartbeat)
class Policy:
    """Rests until it hears something, and pings a second later; for one connection."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.at: float | None = None

    def start(self, now: float, nonces: Callable[[], str]) -> Policy:
        return self

    def received(self, now: float) -> None:
        self.heard.append("received")
        self.at = now + 1.0

    def sent(self, now: float) -> None:
        self.heard.append("sent")

    def leaving(self, now: float) -> None:
        pass

    def due(self) -> float | None:
        return self.at

    def look(self, now: float) -> str | None:
        if self.at is None or now < self.at:
            return None
        self.at = None
        return "a nonce"


def test_a_policy_may_rest_until_something_passes(ends, clock):
    made = ends(clock=clock, near_options={"heartbeat": Policy()})
    clock.advance(1000.0)
    assert made.sent == []
    made.far.notify("x")
    settle()
    made.near_transport.sent.clear()
    clock.advance(0.9)
    assert made.sent == []
    clock.advance(0.1)
    assert made.sent == [{"type": "ping", "nonce": "a nonce"}]


def test_what_is_sent_before_anybody_reads_does_not_count(clock):
    policy = Policy()
    left, right = memory_pair()
    near = Peer(Options(codec=JsonCodec(), clock=clock, heartbeat=policy), dialer=False)
    near._attach(left)
    far = established_peer(right, Options(codec=JsonCodec(), clock=clock), dialer=True)
    near.notify("x")
    settle()
    assert len(left.sent) == 1
    assert policy.heard == []
    serving = gevent.spawn(near.serve)
    near.notify("x")
    settle()
    assert policy.heard.count("sent") == 1
    left.drop()
    serving.get(timeout=1)
    assert far.is_closed


def test_a_connection_that_ends_while_it_is_judged_ends_of_that(ends, clock):
    class Deadly(Policy):
        at = 5.0

        def __init__(self) -> None:
            self.heard = []

        def look(self, now: float) -> str | None:
            if now < 5.0:
                return None
            gevent.get_hub().loop.run_callback(made.near_transport.inject_close, 4000, "so")
            raise HeartbeatTimeoutError("dead", code=1006)

    made = ends(clock=clock, near_options={"heartbeat": Deadly()})
    clock.advance(5.0)
    assert made.near.close_cause.code == 4000


def test_what_ends_the_program_while_a_policy_starts_ends_the_connection_and_comes_out():
    class Interrupted(Policy):
        def start(self, now: float, nonces: Callable[[], str]) -> Policy:
            raise KeyboardInterrupt

    left, right = memory_pair()
    far = established_peer(right, Options(codec=JsonCodec()), dialer=False)
    with pytest.raises(KeyboardInterrupt):
        established_peer(left, Options(codec=JsonCodec(), heartbeat=Interrupted()), dialer=True)
    settle()
    assert far.close_cause.code == 1011
