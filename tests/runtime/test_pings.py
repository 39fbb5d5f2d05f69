"""`Peer.ping` and the answers to the remote's (PROTOCOL §7)."""

from __future__ import annotations

import gevent
import pytest

from muxws_green import ConnectionClosed, ConnectionLost, IdleHeartbeat
from muxws_green.testing import settle
from tests.runtime.ends import PATIENCE, Gate, outcome


def test_it_measures_the_round_trip(ends, clock):
    made = ends(clock=clock)
    made.near_transport.outgoing.delay(0.25, clock)
    made.far_transport.outgoing.delay(0.5, clock)
    assert made.near.ping() == 0.75
    assert made.far.ping() == 0.75


def test_it_is_a_frame_with_a_nonce_nobody_can_guess(ends):
    made = ends()
    nonces = set()
    for _ in range(3):
        made.near.ping()
    for frame in made.sent:
        assert set(frame) == {"type", "nonce"}
        assert len(frame["nonce"]) >= 16
        nonces.add(frame["nonce"])
    assert len(nonces) == 3


@pytest.mark.slow
def test_past_its_deadline_it_raises_and_leaves_the_connection_alone(ends, clock):
    made = ends(clock=clock)
    made.far_transport.outgoing.stall()
    with pytest.raises(ConnectionClosed, match=r"no pong within 5\.0 s") as caught:
        made.near.ping()
    assert not isinstance(caught.value, ConnectionLost)
    assert (caught.value.code, caught.value.was_clean) == (1006, False)
    assert clock.now() == 5.0
    assert made.near.is_open
    # A pong that comes too late is dropped, and settles no other.
    second = outcome(made.near.ping, timeout=60.0)
    settle()
    late = made.sent[0]["nonce"]
    made.inject(type="pong", nonce=late)
    settle()
    assert not second.dead
    made.far_transport.outgoing.resume()
    assert second.get(timeout=PATIENCE) == 0.0


def test_a_pong_at_the_moment_of_the_deadline_wins(ends, clock):
    made = ends(clock=clock)
    pings = made.near._link.pings
    made.far_transport.outgoing.stall()
    clock.call_later(5.0, lambda: [pings.settle(nonce) for nonce in pings._pending])
    assert made.near.ping(timeout=5.0) == 5.0


@pytest.mark.parametrize("timeout", [-1, float("nan"), None, "soon", True])
def test_a_wrong_deadline_sends_nothing(ends, timeout):
    made = ends()
    with pytest.raises(ValueError, match="timeout"):
        made.near.ping(timeout=timeout)
    settle()
    assert made.sent == []


def test_an_infinite_deadline_waits_for_ever(ends, clock):
    made = ends(clock=clock)
    made.far_transport.outgoing.delay(1e6, clock)
    assert made.near.ping(timeout=float("inf")) == 1e6


def test_many_at_once_are_told_apart(ends, clock):
    made = ends(clock=clock)
    made.far_transport.outgoing.stall()
    pings = [outcome(made.near.ping, timeout=60.0) for _ in range(5)]
    settle()
    nonces = [frame["nonce"] for frame in made.sent]
    for number in (3, 1, 4):
        clock.advance(1.0)
        made.inject(type="pong", nonce=nonces[number])
    settle()
    assert [each.value if each.dead else None for each in pings] == [None, 2.0, None, 1.0, 3.0]
    made.far_transport.outgoing.resume()
    gevent.joinall(pings, timeout=PATIENCE)
    assert [each.value for each in pings] == [3.0, 2.0, 3.0, 1.0, 3.0]


@pytest.mark.parametrize("how", ["lost", "closed", "violation"])
def test_it_fails_with_the_connection(ends, clock, how):
    made = ends(clock=clock)
    made.far_transport.outgoing.stall()
    ping = outcome(made.near.ping, timeout=1e6)
    settle()
    if how == "lost":
        made.drop()
    elif how == "closed":
        made.near.close(drain=0.0, reason="enough")
    else:
        made.near_transport.inject("{")
    error = ping.get(timeout=PATIENCE)
    assert type(error) is ConnectionClosed
    assert error.code == {"lost": 1006, "closed": 1000, "violation": 1002}[how]
    assert error.__cause__.code == error.code


@pytest.mark.parametrize("thrown", [gevent.Timeout(5), gevent.GreenletExit("stop"), KeyError("mine")])
def test_what_is_thrown_into_it_comes_out_and_harms_nothing(ends, thrown):
    made = ends()
    made.far_transport.outgoing.stall()
    ping = outcome(made.near.ping)
    settle()
    ping.kill(thrown, block=False)
    assert ping.get(timeout=PATIENCE) is thrown
    assert made.near._link.pings._pending == {}
    made.far_transport.outgoing.resume()
    assert made.near.ping() >= 0.0


def test_the_remotes_are_answered_at_once_whatever_the_handlers_do(ends):
    made, gate = ends(), Gate()
    made.near.on_stream(gate)
    made.far.open()
    gate.reached()
    for nonce in ("a", "", "ü" * 100):
        made.inject(type="ping", nonce=nonce)
    # Its stream, if any, is not looked at.
    made.inject(type="ping", nonce="b", stream=99)
    settle()
    assert made.sent == [{"type": "pong", "nonce": nonce} for nonce in ("a", "", "ü" * 100, "b")]


def test_a_pong_that_nobody_waits_for_is_dropped(ends):
    made = ends()
    made.far.on_stream(Gate())
    stream = made.near.open()
    settle()
    made.inject(type="pong", nonce="nobody's", stream=stream.id)
    made.inject(type="pong")
    settle()
    assert made.near.is_open
    assert stream.state.value == "open"


@pytest.mark.slow
def test_it_neither_settles_nor_is_settled_by_the_heartbeats(ends, clock):
    made = ends(clock=clock, near_options={"heartbeat": IdleHeartbeat(10.0, 60.0)})
    made.far_transport.outgoing.stall()
    clock.advance(10.5)
    (beat,) = made.sent
    ping = outcome(made.near.ping, timeout=60.0)
    settle()
    assert len(made.sent) == 2
    made.inject(type="pong", nonce=beat["nonce"])
    settle()
    assert not ping.dead
    assert made.near.stats.last_round_trip == 0.5
    clock.advance(1.0)
    made.inject(type="pong", nonce=made.sent[1]["nonce"])
    assert ping.get(timeout=PATIENCE) == 1.0


def test_it_overtakes_everything_that_is_queued(ends):
    made = ends(capacity_bytes=1)
    made.far.on_stream(Gate())
    made.near.open("x" * 2_000_000)
    gevent.sleep(0)
    assert made.near.ping() >= 0.0
    kinds = [frame["type"] for frame in made.sent]
    assert kinds.index("ping") <= 4


def test_it_does_not_count_as_a_stream_and_nothing_of_it_is_kept(ends):
    made = ends()
    for _ in range(100):
        made.near.ping()
    assert made.near._link.pings._pending == {}
    assert made.near.stats.streams_opened == 0
