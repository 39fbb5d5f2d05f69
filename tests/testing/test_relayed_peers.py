"""Peers with a relay between them: what each fault does to a connection of this library, at which fake time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import gevent
import pytest
from gevent import socket as gevent_socket
from gevent.event import Event

from muxws_green import ConnectionLost, HeartbeatTimeoutError, IdleHeartbeat, Peer, Reconnect, Server, connect
from muxws_green.testing import FakeClock, Relay, settle
from tests.transports.raw import client_context, server_context


@pytest.fixture(autouse=True)
def _bounded():
    with gevent.Timeout(20, ref=False):
        yield


@pytest.fixture
def clock() -> Iterator[FakeClock]:
    with FakeClock() as clock:
        yield clock


def echo(payload, stream) -> None:
    stream.reply(payload)


@pytest.fixture
def relay(clock) -> Iterator[Relay]:
    """A relay before a server that echoes."""
    server = Server(("127.0.0.1", 0), echo, log=None, clock=clock, heartbeat=None)
    server.start()
    with Relay(
        f"ws://127.0.0.1:{server.server_port}/", clock=clock, capacity_bytes=4096, socket_buffer_bytes=65_536
    ) as relay:
        yield relay
    server.stop(0)


@pytest.fixture
def dial(relay, clock) -> Iterator[Callable[..., Peer]]:
    peers: list[Peer] = []

    def dial(**options) -> Peer:
        peer = connect(relay.url, clock=clock, **{"heartbeat": None, "reconnect": Reconnect(jitter=0.0), **options})
        peers.append(peer)
        return peer

    yield dial
    for peer in peers:
        peer.close(drain=0.0)


def lost(peer: Peer, clock: FakeClock) -> list[float]:
    """When the peer loses its connections."""
    times: list[float] = []
    peer.on_close(lambda reason: times.append(clock.now()))
    return times


def next_connection(peer: Peer) -> Event:
    """Set once the peer has reconnected."""
    reconnected = Event()
    peer.on_reconnect(lambda attempt, peer: reconnected.set())
    return reconnected


def test_a_delay_is_the_round_trip(relay, dial):
    peer = dial()
    relay.to_server.delay(0.3)
    relay.to_client.delay(0.2)
    assert peer.ping() == pytest.approx(0.5)


def test_a_remote_that_vanished_is_found_dead_on_time_and_dialled_again(relay, dial, clock):
    peer = dial(heartbeat=IdleHeartbeat(20.0, 10.0))
    times = lost(peer, clock)
    reconnected = next_connection(peer)
    clock.advance(7.0)
    assert peer.request("x") == "x"
    relay.both.drop()
    clock.advance(29.9)
    assert peer.is_open
    relay.both.restore()
    relay.connections[0].both.drop()
    reconnected.wait()
    assert times == [37.0]
    assert isinstance(peer.close_cause, HeartbeatTimeoutError)
    assert relay.gaps == [37.25]
    assert peer.request("y") == "y"


def test_one_direction_that_is_stalled_is_enough_to_be_dead(relay, dial, clock):
    peer = dial(heartbeat=IdleHeartbeat(20.0, 10.0))
    times = lost(peer, clock)
    relay.to_client.stall()
    clock.advance(31.0)
    assert times == [30.0]


def test_a_reset_is_a_loss_and_what_was_asked_fails(relay, dial, clock):
    peer = dial()
    relay.to_client.stall()
    failed: list[ConnectionLost] = []

    def call() -> None:
        with pytest.raises(ConnectionLost) as caught:
            peer.request("x")
        failed.append(caught.value)

    calling = gevent.spawn(call)
    settle()
    relay.both.restore()
    reconnected = next_connection(peer)
    relay.reset()
    calling.get()
    assert failed[0].__cause__ is peer.close_cause
    assert peer.close_cause is not None
    assert peer.close_cause.code == 1006
    reconnected.wait()
    assert clock.now() == 0.25


def test_a_cut_in_the_middle_of_a_frame_loses_the_payload_and_nothing_else(relay, dial):
    peer = dial()
    relay.connections[0].to_client.cut_after(10)
    with pytest.raises(ConnectionLost):
        peer.request("x" * 1000)
    assert relay.connections[0].to_client.delivered_bytes < 1000
    next_connection(peer).wait()
    assert peer.request("y") == "y"


def test_where_connections_are_refused_each_attempt_comes_later(relay, dial, clock):
    peer = dial()
    reconnected = next_connection(peer)
    relay.refuse()
    relay.reset()
    # The attempts are at 0.25, 0.75, 1.75 and 3.75.
    clock.advance(2.0)
    relay.admit()
    assert not reconnected.is_set()
    reconnected.wait()
    assert clock.now() == 3.75
    assert len(relay.connections) == 2


def test_a_server_that_says_nothing_is_given_up_in_time(relay, dial, clock):
    relay.mute()
    with pytest.raises(TimeoutError):
        dial(open_timeout=10.0)
    assert clock.now() == 10.0
    settle()
    assert relay.live == []


def test_a_server_that_hangs_up_is_dialled_ever_more_rarely(relay, dial, clock):
    peer = dial()
    relay.hang_up()
    relay.reset()
    clock.advance(4.0)
    assert relay.gaps == [0.25, 0.5, 1.0, 2.0]
    assert not peer.is_open


@pytest.mark.slow
def test_big_payloads_on_a_slow_line_do_not_kill_the_connection(relay, dial, clock):
    peer = dial(heartbeat=IdleHeartbeat(1.0, 1.0))
    times = lost(peer, clock)
    relay.both.throttle(200_000)
    assert len(peer.request("x" * 200_000)) == 200_000
    assert clock.now() > 2.0
    assert times == []


def test_a_stall_makes_senders_wait(relay, dial):
    peer = dial(send_buffer_bytes=100_000)
    relay.to_server.stall()
    stream = peer.open()
    sender = gevent.spawn(lambda: [stream.send("x" * 60_000) for _ in range(40)])
    settle()
    assert not sender.ready()
    relay.to_server.resume()
    assert len(sender.get()) == 40
    stream.cancel()


@pytest.mark.parametrize("kind", ["tls", "unix"])
def test_tls_and_unix_sockets_pass_too(kind, clock, tmp_path):
    if kind == "unix":
        listener = gevent_socket.socket(gevent_socket.AF_UNIX)
        listener.bind(str(tmp_path / "s"))
        listener.listen(16)
        server = Server(listener, echo, log=None, clock=clock)
        target = f"ws+unix://{tmp_path / 's'}:/"
    else:
        server = Server(("127.0.0.1", 0), echo, log=None, clock=clock, ssl_context=server_context())
        server.start()
        target = f"wss://localhost:{server.server_port}/"
    server.start()
    with Relay(target, clock=clock) as relay:
        relay.to_client.delay(0.1)
        with connect(relay.url, clock=clock, ssl_context=client_context() if kind == "tls" else None) as peer:
            before = clock.now()
            assert peer.request("through") == "through"
            assert clock.now() - before == pytest.approx(0.1)
    server.stop(0)
