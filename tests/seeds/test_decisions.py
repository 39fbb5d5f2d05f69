"""What is right where the two documents cannot both hold: three decisions about the heartbeat, under both policies.

What postpones a ping, what saves a peer, and when the wait for an answer begins.
"""

from __future__ import annotations

import sys
from typing import Any

import gevent
import pytest
from gevent.event import Event

from muxws_green import CloseReason, CountingHeartbeat, HeartbeatTimeoutError, IdleHeartbeat, Stream
from tests.seeds.scripted import Wire, mute, never_acknowledges, outcome, polite

seed = pytest.mark.seed

needs_siocoutq = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what has been acknowledged")

IDLE = IdleHeartbeat(interval=5.0, timeout=2.0)
#: Dead 4 seconds after the first ping that nothing answers.
COUNTED = CountingHeartbeat(interval=2.0, max_missed=1)

POLICIES = pytest.mark.parametrize("policy", [IDLE, COUNTED], ids=["idle", "counting"])


class Told:
    """What `on_close` was told, and when."""

    def __init__(self, clock, peer, server=None) -> None:
        self.at: list[float] = []
        self.reasons: list[CloseReason] = []
        self.causes: list[Any] = []
        if server is not None:
            # What comes after the first loss does not matter.
            server.refuse()

        @peer.on_close
        def closed(reason: CloseReason) -> None:
            self.at.append(clock.now())
            self.reasons.append(reason)
            self.causes.append(peer.close_cause)


# What postpones a ping


@seed("decided: a frame sent restarts it only if something has been received")
@pytest.mark.parametrize("every", [0.5, 1.0, 4.0])
def test_sending_alone_does_not_put_a_ping_off_for_ever(clock, raw_server, dial, every) -> None:
    """A machine that has died takes what it is sent, or its kernel does: the bound holds all the same."""
    server = raw_server(mute)
    peer = dial(server.url, hello=1, heartbeat=IDLE)
    told = Told(clock, peer, server)

    def sender() -> None:
        while not told.at:
            clock.sleep(every)
            if peer.is_open:
                peer.notify("one way")

    sending = gevent.spawn(sender)
    clock.advance(every + 5.0 + 2.0)
    assert server.wires[0].times("ping") == [every + 5.0]
    assert told.at == [every + 5.0 + 2.0]
    assert isinstance(told.causes[0], HeartbeatTimeoutError)
    clock.advance(every)
    sending.join(1.0)


@seed("decided: a frame sent restarts it only if something has been received")
def test_a_healthy_remote_that_is_only_sent_to_is_pinged_and_lives(clock, raw_server, dial) -> None:
    def answers_pings_only(wire: Wire) -> None:
        wire.greet()
        while True:
            frame = wire.read()
            if frame["type"] == "ping":
                wire.answer(frame)

    server = raw_server(answers_pings_only)
    peer = dial(server.url, hello=1, heartbeat=IDLE)
    told = Told(clock, peer, server)
    for _ in range(60):
        clock.advance(1.0)
        peer.notify("one way")
    assert told.at == []
    # The pong comes with the ping, and the next frame that is sent after it restarts the interval.
    assert server.last.times("ping") == [6.0 + 5.0 * n for n in range(11)]


@seed("decided: a frame sent restarts it only if something has been received")
def test_pings_of_ours_count_for_nothing(clock, raw_server, dial) -> None:
    """What they bring does: without it the interval would run from the ping."""

    def answers_late(wire: Wire) -> None:
        wire.greet()
        while True:
            frame = wire.read()
            clock.sleep(1.5)
            wire.answer(frame)

    server = raw_server(answers_late)
    dial(server.url, hello=1, heartbeat=IDLE)
    clock.advance(19.0)
    assert server.last.times("ping") == [5.0, 11.5, 18.0]


# What saves a peer


@seed("decided: Any message received after the ping was queued saves it")
@pytest.mark.parametrize(
    "peep", [{"type": "of-the-future"}, {"type": "ping", "nonce": "n"}, {"type": "pong", "nonce": "x"}]
)
def test_any_frame_saves_an_idle_peer(clock, raw_server, dial, peep) -> None:
    def peeps(wire: Wire) -> None:
        wire.greet()
        while True:
            if wire.read()["type"] == "ping":
                clock.sleep(1.5)
                wire.write(peep["type"], **{key: value for key, value in peep.items() if key != "type"})

    server = raw_server(peeps)
    peer = dial(server.url, hello=1, heartbeat=IDLE)
    told = Told(clock, peer, server)
    clock.advance(100.0)
    assert told.at == []
    assert peer.is_open


@seed("decided: Any message received after the ping was queued saves it")
def test_parts_of_a_message_save_an_idle_peer(clock, raw_server, dial) -> None:
    """On a line so slow that a frame takes a minute, and nothing else can come meanwhile."""
    server = raw_server(mute)
    got: list[Any] = []
    peer = dial(server.url, hello=1, heartbeat=IDLE, on_stream=lambda payload, stream: got.append(payload))
    told = Told(clock, peer, server)
    text = b'{"type":"open","stream":2,"payload":"' + b"y" * 300 + b'","end":true}'
    whole = b"\x81\x7e" + len(text).to_bytes(2, "big") + text
    for start in range(0, len(whole), 10):
        server.last.sock.sendall(whole[start : start + 10])
        clock.advance(1.75)
    assert clock.now() > 60.0
    assert told.at == []
    assert got == ["y" * 300]


@seed("decided: Any message received after the ping was queued saves it")
def test_what_came_before_the_ping_does_not(clock, raw_server, dial) -> None:
    server = raw_server(mute)
    peer = dial(server.url, hello=1, heartbeat=IDLE)
    told = Told(clock, peer, server)
    clock.advance(4.75)
    server.last.write("pong", nonce="early")
    clock.advance(6.75)
    assert server.wires[0].times("ping") == [9.75]
    assert told.at == []
    clock.advance(0.25)
    assert told.at == [11.75]


@seed("decided: One ping outstanding at most")
def test_one_ping_at_a_time(clock, raw_server, dial) -> None:
    server = raw_server(mute)
    peer = dial(server.url, hello=1, heartbeat=IdleHeartbeat(interval=1.0, timeout=50.0))
    told = Told(clock, peer, server)
    clock.advance(51.0)
    assert server.wires[0].times("ping") == [1.0]
    assert told.at == [51.0]


# When the wait begins


#: Both would call a remote dead 0.75 seconds after a ping.
HASTY_IDLE = IdleHeartbeat(interval=1.0, timeout=0.75)
HASTY_COUNTED = CountingHeartbeat(interval=0.375, max_missed=1)

HASTY = pytest.mark.parametrize("policy", [HASTY_IDLE, HASTY_COUNTED], ids=["idle", "counting"])

LINE_BYTES_A_SECOND = 262_144


def slow_line(clock, until: float = float("inf")):
    """A server that takes so much a second and answers each ping when it gets to it; after `until` it takes nothing."""

    def script(wire: Wire) -> None:
        wire.throttle = LINE_BYTES_A_SECOND
        while clock.now() < until:
            frame = wire.read()
            if frame["type"] == "ping":
                wire.answer(frame)

    return script


@pytest.mark.slow
@needs_siocoutq
@HASTY
@seed("decided: While bytes queued before it are still leaving")
def test_a_slow_line_is_no_dead_remote(clock, raw_server, dial, policy) -> None:
    """What the kernel holds before a ping takes longer to leave than the ping may stay unanswered."""
    server = raw_server(slow_line(clock), receive_buffer_bytes=65_536)
    peer = dial(server.url, heartbeat=policy)
    told = Told(clock, peer, server)
    left: list[float] = []
    peer.on_frame(lambda direction, frame, size: left.append(clock.now()) if frame.type == "ping" else None)
    peer.notify("x" * 8_000_000)
    clock.advance(20.0)
    assert told.at == []
    assert peer.is_open
    assert peer.stats.queued_bytes > 0
    took = [arrived - sent for sent, arrived in zip(left, server.last.times("ping"), strict=False)]
    assert max(took) > policy_wait(policy)


@pytest.mark.slow
@needs_siocoutq
@HASTY
@seed("decided: from the moment nothing moves any more")
def test_a_line_that_stops_is_found_dead_from_when_it_stopped(clock, raw_server, dial, policy) -> None:
    server = raw_server(slow_line(clock, until=10.0), receive_buffer_bytes=65_536)
    peer = dial(server.url, heartbeat=policy)
    told = Told(clock, peer, server)
    peer.notify("x" * 8_000_000)
    clock.advance(9.75)
    assert told.at == []
    clock.advance(10.0)
    (at,) = told.at
    # The kernels go on for half a second with what the program had made room for; then the wait begins, unless a
    # ping was on its way and acknowledged earlier.
    assert 10.0 < at <= 10.5 + policy_wait(policy) + policy.interval
    assert isinstance(told.causes[0], HeartbeatTimeoutError)
    assert peer.stats.queued_bytes == 0


def policy_wait(policy) -> float:
    """For how long a ping may stay unanswered."""
    return policy.timeout if isinstance(policy, IdleHeartbeat) else (policy.max_missed + 1) * policy.interval


@POLICIES
@seed("decided: None where unknown")
def test_where_nobody_knows_what_has_left(clock, raw_server, dial, policy, monkeypatch) -> None:
    """Then the wait begins when the ping is handed over, and a remote that takes nothing is found as on Linux."""
    from muxws_green.transports import socket as socket_module

    monkeypatch.setattr(socket_module, "unacknowledged_bytes", lambda sock: None)
    server = raw_server(Wire.listen)
    peer = dial(server.url, heartbeat=policy)
    told = Told(clock, peer, server)
    assert peer._link.transport.unacknowledged() is None
    clock.advance(20.0)
    assert told.at == [7.0 if policy is IDLE else 4.0]


@pytest.mark.slow
@POLICIES
@seed("decided: It does not run while our own reader is paused")
def test_a_paused_reader_kills_nobody(clock, raw_server, dial, policy) -> None:
    """Pongs lie in the socket, and it is our application that does not let them be read."""
    gate = Event()
    got: list[Any] = []

    def consumer(payload: Any, stream: Stream) -> None:
        gate.wait()
        got.extend(stream)

    def floods(wire: Wire) -> None:
        wire.greet()
        wire.write("open", stream=2, payload="flood")
        for _ in range(20):
            wire.write("data", stream=2, payload="x" * 10_000)
        wire.serve()

    server = raw_server(floods)
    peer = dial(
        server.url,
        hello=1,
        heartbeat=policy,
        on_stream=consumer,
        receive_buffer_bytes=50_000,
        receive_pause_timeout=10_000.0,
    )
    told = Told(clock, peer, server)
    clock.advance(300.0)
    assert peer._link.intake.paused
    assert told.at == []
    gate.set()
    clock.settle()
    assert not peer._link.intake.paused
    assert len(got) == 20
    clock.advance(300.0)
    assert told.at == []
    assert peer.is_open


@POLICIES
@seed("decided: It does not run while our own reader is paused")
def test_a_remote_that_dies_during_a_pause_is_found_after_it(clock, raw_server, dial, policy) -> None:
    gate = Event()

    def consumer(payload: Any, stream: Stream) -> None:
        gate.wait()
        for _ in stream:
            pass

    def floods(wire: Wire) -> None:
        wire.greet()
        wire.write("open", stream=2, payload="flood")
        for _ in range(20):
            wire.write("data", stream=2, payload="x" * 10_000)
        wire.listen()

    server = raw_server(floods)
    peer = dial(
        server.url,
        hello=1,
        heartbeat=policy,
        on_stream=consumer,
        receive_buffer_bytes=50_000,
        receive_pause_timeout=10_000.0,
    )
    told = Told(clock, peer, server)
    clock.advance(100.0)
    assert told.at == []
    gate.set()
    clock.advance(20.0)
    (at,) = told.at
    # What was still in the socket counts as heard when it is read.
    assert 100.0 < at <= 100.0 + (7.0 if policy is IDLE else 6.0)


@POLICIES
@seed("decided: nor in the turn after a hub that was blocked")
@pytest.mark.parametrize("blocked", [3.0, 30.0, 3_000.0])
def test_a_hub_that_was_blocked_kills_nobody(clock, raw_server, dial, policy, blocked) -> None:
    """The pong came in time and lies in the socket; nobody could read it."""
    server = raw_server(polite)
    peer = dial(server.url, hello=1, heartbeat=policy)
    told = Told(clock, peer, server)
    interval = policy.interval
    for _ in range(5):
        with clock.held():
            # Up to the moment at which a ping leaves, and then no turn of the hub until it is long overdue.
            clock.advance(interval)
            peer.open("so that something is under way", end=True)
            clock.jump(blocked)
            clock.settle()
        assert told.at == []
    assert peer.is_open
    assert len(server.wires) == 1


@POLICIES
@seed("decided: nor in the turn after a hub that was blocked")
def test_a_dead_remote_does_not_hide_behind_a_blocked_hub(clock, raw_server, dial, policy) -> None:
    server = raw_server(Wire.listen)
    peer = dial(server.url, heartbeat=policy)
    told = Told(clock, peer, server)
    clock.advance(policy.interval)
    clock.jump(1_000.0)
    clock.advance(20.0)
    assert len(told.at) == 1
    assert told.at[0] <= 1_000.0 + policy.interval + 7.0


# And what the decisions leave as it was


@seed("decided: its first ping is queued behind the hello")
def test_the_first_ping_goes_behind_the_hello(clock, raw_server, dial) -> None:
    server = raw_server(polite)
    dial(server.url, hello="x" * 100_000, heartbeat=COUNTED)
    kinds = [frame["type"] for _, frame in server.last.log]
    assert kinds[0] == "open"
    assert server.last.of("ping")[0] == {"type": "ping", "nonce": "1"}
    assert server.last.times("ping")[0] == 0.0


@seed("decided: neither settles the other")
def test_a_ping_of_ones_own_and_those_of_the_heartbeat(clock, raw_server, dial) -> None:
    """Pongs of the heartbeat do not settle `ping()`, nor is its nonce ever theirs."""

    def answers_numbers(wire: Wire) -> None:
        wire.greet()
        while True:
            frame = wire.read()
            if frame["type"] == "ping" and frame["nonce"].isdigit() and len(frame["nonce"]) < 5:
                wire.answer(frame)

    server = raw_server(answers_numbers)
    peer = dial(server.url, hello=1, heartbeat=CountingHeartbeat(interval=0.5))
    waiting = outcome(peer.ping, 3.0)
    clock.advance(2.75)
    assert not waiting.dead
    assert len(server.last.of("ping")) > 4
    own = [frame["nonce"] for frame in server.last.of("ping") if len(frame["nonce"]) > 4]
    assert len(own) == 1
    server.last.write("pong", nonce=own[0])
    clock.settle()
    assert waiting.value == 2.75


@pytest.mark.slow
@seed("decided: A close frame 1000 is tried once")
def test_nothing_is_flushed_into_a_socket_that_is_full(clock, raw_server, dial) -> None:
    """In the middle of a frame no close frame may be written, and nobody waits until one could."""
    server = raw_server(lambda wire: None)
    peer = dial(server.url, heartbeat=IDLE)
    told = Told(clock, peer, server)
    peer.notify("x" * 20_000_000)
    clock.advance(7.0)
    assert told.at == [7.0]
    assert peer._link is None
    wire = server.wires[0]
    taken = 0
    wire.sock.settimeout(5.0)
    while data := wire.sock.recv(65_536):
        taken += len(data)
    # What the kernels had taken is all that ever comes, and the end of it is the middle of a frame.
    assert 0 < taken < 19_000_000


@seed("decided: The heartbeat starts with the reader")
def test_a_remote_that_dies_during_the_hello(clock, raw_server, dial) -> None:
    """The heartbeat begins with the reader, so that the hello's own time is not all there is."""
    server = raw_server(polite, never_acknowledges)
    peer = dial(server.url, hello=1, hello_timeout=3_600.0, heartbeat=IDLE)
    told = Told(clock, peer)
    server.wires[0].reset()
    clock.advance(7.25)
    assert told.at == [0.0, 7.25]
    assert isinstance(told.causes[1], HeartbeatTimeoutError)
    assert peer.supervisor.attempt == 1
