"""Document A, "The heartbeat"."""

from __future__ import annotations

import inspect
from typing import Any

import gevent
import pytest

from muxws_green import (
    CloseReason,
    ConnectionClosed,
    ConnectionLost,
    HeartbeatTimeoutError,
    IdleHeartbeat,
    Peer,
    WSGIApp,
    connect,
)
from tests.seeds.scripted import Wire, mute, outcome, polite
from tests.transports.raw import tcp_pair

seed = pytest.mark.seed


@seed("A: sends its own ping frame rather than a WebSocket control frame")
def test_a_ping_is_a_frame_of_the_protocol(clock, raw_server, dial) -> None:
    """`Wire.read` fails the test on any control frame of WebSocket's but a close."""
    server = raw_server(polite)
    dial(server.url, hello=1, ping_interval=1.0)
    clock.advance(1.0)
    ((at, ping),) = [(at, frame) for at, frame in server.last.log if frame["type"] != "open"]
    assert at == 1.0
    assert ping.keys() == {"type", "nonce"}
    assert ping["type"] == "ping"


@seed("A: Ping an idle socket every")
@seed("A: Declare dead if no pong within")
@seed("A: Both are arguments to connect()")
@seed("A: and the three durations")
def test_the_arguments_and_their_defaults() -> None:
    parameters = inspect.signature(connect).parameters
    assert parameters["ping_interval"].default == 20.0
    assert parameters["ping_timeout"].default == 10.0
    assert parameters["hello_timeout"].default == 10.0
    assert IdleHeartbeat() == IdleHeartbeat(interval=20.0, timeout=10.0)


@seed("A: Ping an idle socket every")
@seed("A: Declare dead if no pong within")
def test_the_defaults_at_work(clock, raw_server) -> None:
    server = raw_server(mute)
    with clock.held():
        peer = connect(server.url, hello=1, clock=clock)
    clock.advance(29.75)
    assert server.wires[0].times("ping") == [20.0]
    assert peer.is_open
    clock.advance(0.25)
    assert not peer.is_open
    assert server.wires[0].gone_at == 30.0
    peer.close()


@seed("A: Both are arguments to connect()")
def test_the_arguments_at_work(clock, raw_server, dial) -> None:
    server = raw_server(mute)
    peer = dial(server.url, hello=1, ping_interval=0.5, ping_timeout=3.0)
    clock.advance(3.25)
    assert server.last.times("ping") == [0.5]
    assert peer.is_open
    clock.advance(0.25)
    assert server.wires[0].gone_at == 3.5


@seed("A: Both are arguments to connect()")
@pytest.mark.parametrize("timeout", [0.0, -1.0, float("nan")])
def test_a_timeout_that_is_none_is_refused_before_the_dial(clock, raw_server, timeout) -> None:
    server = raw_server(polite)
    with pytest.raises(ValueError, match="ping_timeout"):
        connect(server.url, ping_timeout=timeout, clock=clock)
    with pytest.raises(ValueError, match="ping_interval"):
        connect(server.url, ping_interval=float("nan"), clock=clock)
    clock.settle()
    assert server.wires == []


@seed("A: to 0.0 seconds or below")
@pytest.mark.parametrize("options", [{"ping_interval": 0.0}, {"ping_interval": -1.0}, {"heartbeat": None}])
def test_a_dialer_without_a_heartbeat(clock, raw_server, dial, options) -> None:
    server = raw_server(mute)
    told: list[CloseReason] = []
    peer = dial(server.url, hello=1, on_close=told.append, **options)
    clock.advance(100_000.0)
    assert server.last.of("ping") == []
    assert peer.is_open
    assert told == []
    # Those that arrive are answered all the same.
    server.last.write("ping", nonce="theirs")
    clock.settle()
    assert server.last.of("pong") == [{"type": "pong", "nonce": "theirs"}]


@seed("A: to 0.0 seconds or below")
@pytest.mark.parametrize("options", [{"ping_interval": 0.0}, {"ping_interval": -1.0}, {"heartbeat": None}])
def test_an_acceptor_without_a_heartbeat(clock, green_server, dial, options) -> None:
    server = green_server(lambda payload, stream: stream.reply(payload), **options)
    pings: list[Any] = []
    peer = dial(server.url, heartbeat=None)
    peer.on_frame(lambda direction, frame, size: pings.append(frame) if frame.type == "ping" else None)
    clock.advance(100_000.0)
    assert pings == []
    assert peer.ping(timeout=1.0) == 0.0


@seed("A: Only an idle socket is pinged")
@seed("A: measured from the last frame sent or received")
def test_an_idle_socket_is_pinged_at_each_interval(clock, raw_server, dial) -> None:
    """The pong is a frame received, so the next ping comes an interval after it."""
    server = raw_server(polite)
    dial(server.url, hello=1, ping_interval=5.0)
    clock.advance(21.0)
    assert server.last.times("ping") == [5.0, 10.0, 15.0, 20.0]


@seed("A: measured from the last frame sent or received")
@pytest.mark.parametrize("sender", ["dialer", "server"])
def test_the_interval_counts_from_the_last_frame(clock, raw_server, dial, sender) -> None:
    server = raw_server(polite)
    peer = dial(server.url, hello=1, ping_interval=5.0)
    clock.advance(3.0)
    if sender == "dialer":
        peer.notify("a frame")
    else:
        server.last.write("ping", nonce="a frame")
    clock.advance(10.0)
    assert server.last.times("ping") == [8.0, 13.0]


@seed("A: traffic in either direction within the interval is not pinged")
@seed("A: Only an idle socket is pinged")
@pytest.mark.parametrize("traffic", ["calls", "pushes", "both"])
def test_a_busy_connection_is_not_pinged(clock, raw_server, dial, traffic) -> None:
    server = raw_server(polite)
    peer = dial(server.url, hello=1, ping_interval=5.0, on_stream=lambda payload, stream: None)
    stream_id = 2
    for _ in range(30):
        clock.advance(4.0)
        if traffic != "pushes":
            assert peer.request("call", timeout=1.0) == "call"
        if traffic != "calls":
            server.last.write("open", stream=stream_id, payload="push", end=True)
            stream_id += 2
    clock.settle()
    assert clock.now() == 120.0
    assert server.last.of("ping") == []


@seed("A: traffic in either direction within the interval is not pinged")
def test_an_acceptor_does_not_ping_a_busy_connection(clock, green_server, dial) -> None:
    server = green_server(lambda payload, stream: stream.reply(payload), ping_interval=5.0)
    peer = dial(server.url, heartbeat=None)
    seen: list[float] = []
    peer.on_frame(lambda direction, frame, size: seen.append(clock.now()) if frame.type == "ping" else None)
    for _ in range(5):
        clock.advance(4.0)
        assert peer.request("call", timeout=1.0) == "call"
    assert seen == []
    clock.advance(12.0)
    assert seen == [25.0, 25.0 + 5.0]


@seed("A: detected within ping_interval + ping_timeout, 30 seconds")
@seed("A: sent at most one ping_interval")
@pytest.mark.parametrize("interval, timeout", [(20.0, 10.0), (0.5, 0.25), (1.0, 30.0)])
@pytest.mark.parametrize("quiet_for", [0.0, 0.75])
def test_a_dead_socket_is_found_within_the_bound(clock, raw_server, dial, interval, timeout, quiet_for) -> None:
    server = raw_server(mute)
    told: list[tuple[float, CloseReason]] = []
    peer = dial(server.url, hello=1, ping_interval=interval, ping_timeout=timeout)
    peer.on_close(lambda reason: told.append((clock.now(), reason)))
    clock.advance(quiet_for * interval)
    # The last frame that comes; then the machine freezes.
    server.last.write("ping", nonce="last")
    clock.settle()
    last = clock.now()
    clock.advance(interval + timeout)
    assert server.wires[0].times("ping") == [last + interval]
    ((found, reason),) = told
    assert found == last + interval + timeout
    assert reason.code == 1006


@seed("A: detected within ping_interval + ping_timeout, 30 seconds")
def test_an_acceptor_finds_a_dead_dialer(clock, green_server, raw_client) -> None:
    """A machine that has lost its power sends nothing any more, not even the end of the stream."""
    server = green_server(lambda payload, stream: stream.reply(payload), ping_interval=20.0, ping_timeout=10.0)
    client = raw_client(server.url)
    client.write("open", stream=1, payload="hello", end=True)
    clock.settle()
    acceptor = server.peer
    told: list[tuple[float, CloseReason]] = []
    acceptor.on_close(lambda reason: told.append((clock.now(), reason)))
    clock.advance(29.5)
    assert client.times("ping") == [20.0]
    assert told == []
    clock.advance(0.5)
    assert told == [(30.0, CloseReason(1006, "no pong within 10s", False, False))]
    assert isinstance(acceptor.close_cause, HeartbeatTimeoutError)
    assert client.close_code == 1000
    assert server.app.peers == []


@seed("A: does not depend on TCP keepalive")
def test_the_kernel_is_not_asked_to_find_it(clock, raw_server, green_server, dial) -> None:
    import socket

    server = green_server(lambda payload, stream: None)
    peer = dial(server.url)
    for end in (peer, server.peer):
        sock = end._link.transport._sock
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0


@seed("A: marked dead and closed locally")
@seed("A: Without the local close, the read loop would remain blocked")
@pytest.mark.leaks
def test_everything_of_a_dead_socket_ends(clock, raw_server, dial) -> None:
    server = raw_server(mute)
    server.scripts.append(polite)
    peer = dial(server.url, hello=1, ping_interval=2.0, ping_timeout=1.0)
    link = peer._link
    descriptor = link.transport._sock.fileno()
    own = [link._reader, link._writer, link.heartbeat.greenlet]
    stream = peer.open("nobody answers")
    clock.advance(2.75)
    assert not any(greenlet.dead for greenlet in own)
    clock.advance(0.25)
    assert all(greenlet.dead for greenlet in own)
    assert link.transport._sock.fileno() == -1 != descriptor
    assert stream.closed.is_set()
    assert not peer.is_open


@seed("A: follows the same code path as a clean close")
@seed("A: Without the local close, the read loop would remain blocked")
@pytest.mark.parametrize("end", ["silence", "clean close", "reset"])
def test_what_follows_is_the_same_however_a_socket_ends(clock, raw_server, dial, end) -> None:
    server = raw_server(mute, polite)
    order: list[Any] = []
    peer = dial(server.url, hello=1, ping_interval=2.0, ping_timeout=1.0)
    peer.on_close(lambda reason: order.append(("close", reason.will_retry)))
    peer.on_reconnect(lambda attempt, peer: order.append(("reconnect", attempt)))
    waiting = outcome(peer.request, "never answered")
    clock.settle()
    if end == "clean close":
        server.last.close(1000)
    elif end == "reset":
        server.last.reset()
    clock.advance(3.5)
    assert isinstance(waiting.value, ConnectionLost)
    assert waiting.value.__cause__ is peer.close_cause
    assert order == [("close", True), ("reconnect", 1)]
    assert len(server.wires) == 2
    assert peer.is_open


@seed("A: sent with WebSocket code 1000, not 1006")
@seed("A: reports 1006 for the loss")
def test_death_is_1006_here_and_1000_on_the_wire(clock, raw_server, dial) -> None:
    server = raw_server(mute, polite)
    told: list[CloseReason] = []
    peer = dial(server.url, hello=1, ping_interval=2.0, ping_timeout=1.0, on_close=told.append)
    clock.advance(3.0)
    assert told == [CloseReason(1006, "no pong within 1s", False, True)]
    assert server.wires[0].close_code == 1000
    assert type(peer.close_cause) is HeartbeatTimeoutError
    assert isinstance(peer.close_cause, ConnectionClosed)
    assert peer.close_cause.code == 1006


@seed("A: a transport that validates the code rejects such a close")
@pytest.mark.parametrize("code", [1005, 1006, 1015])
def test_no_transport_of_ours_sends_such_a_code(code) -> None:
    from muxws_green.transports.socket import SocketTransport

    near, far = tcp_pair()
    transport = SocketTransport(near, client=True, max_message_bytes=100)
    with pytest.raises(ValueError, match=str(code)):
        transport.close(code, "")
    transport.abort(1000)
    far.close()


@seed("A: sends the same frame on demand, with its own deadline")
def test_ping_sends_the_frame_and_has_a_deadline(clock, raw_server, dial) -> None:
    assert inspect.signature(Peer.ping).parameters["timeout"].default == 5.0
    server = raw_server(mute)
    peer = dial(server.url, hello=1, heartbeat=None)
    for timeout, took in (((), 5.0), ((0.5,), 0.5), ((0.0,), 0.0)):
        began = clock.now()
        with pytest.raises(ConnectionClosed, match="no pong") as info:
            peer.ping(*timeout)
        assert clock.now() - began == took
        assert info.value.code == 1006
    # Its deadline is its own: the connection is left alone.
    assert peer.is_open
    clock.settle()
    pings = server.last.of("ping")
    assert [ping.keys() for ping in pings] == [{"type", "nonce"}] * 3
    assert len({ping["nonce"] for ping in pings}) == 3


@seed("A: returns the round-trip time")
def test_ping_returns_seconds(clock, raw_server, dial) -> None:
    def slow(wire: Wire) -> None:
        wire.greet()
        ping = wire.read()
        clock.sleep(1.5)
        wire.answer(ping)
        wire.serve()

    server = raw_server(slow)
    peer = dial(server.url, hello=1)
    took = peer.ping()
    assert type(took) is float
    assert took == 1.5
    assert peer.stats.last_round_trip == 1.5


@seed("A: returns the round-trip time")
def test_pings_that_overlap_are_told_apart(clock, raw_server, dial) -> None:
    """Neither a pong for another ping nor one that nobody asked for settles it."""

    def reversing(wire: Wire) -> None:
        wire.greet()
        wire.write("pong", nonce="unasked")
        pings = [wire.read(), wire.read()]
        for ping in reversed(pings):
            clock.sleep(1.0)
            wire.answer(ping)
        wire.serve()

    server = raw_server(reversing)
    peer = dial(server.url, hello=1)
    first, second = outcome(peer.ping), outcome(peer.ping)
    gevent.joinall([first, second], timeout=10.0)
    assert (first.value, second.value) == (2.0, 1.0)


@seed("A: Ping an idle socket every")
def test_acceptors_have_the_same_arguments(clock, green_server, raw_client) -> None:
    assert WSGIApp(lambda payload, stream: None)._options.options.heartbeat == IdleHeartbeat(20.0, 10.0)
    server = green_server(lambda payload, stream: None, ping_interval=3.0, ping_timeout=1.0)
    client = raw_client(server.url)
    clock.advance(3.0)
    assert client.times("ping") == [3.0]
