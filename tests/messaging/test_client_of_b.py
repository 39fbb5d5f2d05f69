"""Document B, "Calling Back: the Reconnecting Client", and the client's half of "What We Test"."""

from __future__ import annotations

import inspect
import logging
import random
from itertools import count
from typing import Any

import gevent
import pytest

from muxws_green import ConnectionClosed, HeartbeatTimeoutError, NotConnectedError, Reconnect, backoff_delay
from muxws_green.messaging import ConnectionEvent, Message, MessagePeer, ReconnectingClient
from muxws_green.protocol import backoff
from tests.seeds.scripted import Wire, outcome, polite

seed = pytest.mark.seed

CONNECTED, DISCONNECTED, RECONNECTED = ConnectionEvent


def echo(peer: MessagePeer) -> None:
    peer.on("echo", lambda message: message.body)


def refuses(wire: Wire) -> None:
    """Vanish before the upgrade."""
    wire.reset()


# Backoff

#: The schedule of a client that says nothing about it.
SCHEDULE = Reconnect(initial_delay=0.5, max_delay=30.0, jitter=0.1)


@seed("B: Wait initial_backoff (0.5 s) after the first failure, then double it")
@seed("B: never more than max_backoff (30 s)")
@seed("B: up to jitter (0.1 means +/-10%)")
def test_a_client_has_these_defaults() -> None:
    parameters = inspect.signature(ReconnectingClient).parameters
    defaults = {
        name: parameter.default for name, parameter in parameters.items() if parameter.default is not parameter.empty
    }
    assert defaults == {
        "setup": None,
        "initial_backoff": 0.5,
        "max_backoff": 30.0,
        "jitter": 0.1,
        "heartbeat_interval": 5.0,
        "max_missed_pongs": 3,
    }


@seed("B: backoff_delay doubles from 0.5 s and caps at 30 s (no jitter)")
@seed("B: base delay")
def test_delays_double_up_to_the_cap() -> None:
    exact = [backoff.backoff_delay(attempt, SCHEDULE, lambda: 0.0) for attempt in range(9)]
    assert exact == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]


@seed("B: stays within +/-jitter of that (and really varies)")
@seed("B: with 10% jitter, somewhere in")
@pytest.mark.parametrize(
    "attempt,least,most",
    [(0, 0.45, 0.55), (1, 0.9, 1.1), (2, 1.8, 2.2), (3, 3.6, 4.4), (6, 27.0, 33.0), (60, 27.0, 33.0)],
)
def test_jitter(attempt: int, least: float, most: float) -> None:
    draw = random.Random(7)
    delays = [backoff_delay(attempt, SCHEDULE, lambda: draw.uniform(-1.0, 1.0)) for _ in range(1000)]
    assert least <= min(delays) < max(delays) <= most
    assert max(delays) - min(delays) > 0.9 * (most - least)


@seed("B: does not overflow after thousands of attempts")
def test_thousands_of_attempts() -> None:
    assert backoff_delay(5000, SCHEDULE, lambda: 0.0) == 30.0
    assert backoff_delay(10**9, SCHEDULE, lambda: 0.0) == 30.0


@seed(
    "B: With connect swapped for a script (so only timers move the clock), dials happen at exactly 0, 0.5, 1.5, 3.5 s"
)
@seed("B: after a good connection drops the waits start again from 0.5 s")
@seed("B: Start over after success.")
def test_dials_happen_at_exactly_these_times(clock, raw_server, client) -> None:
    def is_lost(wire: Wire) -> None:
        wire.upgrade()
        wire.read()
        wire.reset()

    server = raw_server(refuses, refuses, refuses, is_lost, refuses, refuses, refuses, upgrade=False)
    agent = client(server.url)
    agent.start()
    agent.wait_connected(10.0)
    assert server.dials == [0.0, 0.5, 1.5, 3.5]
    agent.push("something to read")
    clock.advance(3.5)
    assert server.dials == [0.0, 0.5, 1.5, 3.5, 4.0, 5.0, 7.0]


@seed("B: time ---> dial  x . x . . x . . . . x . . . . . . . . x")
@seed("B: A server that is down for an hour gets one knock every 30 seconds, not a flood.")
def test_the_timeline_of_a_server_that_is_down_for_an_hour(clock, raw_server, client) -> None:
    server = raw_server(refuses, upgrade=False)
    client(server.url).start()
    clock.advance(3600.0)
    assert server.dials[:6] == [0.0, 0.5, 1.5, 3.5, 7.5, 15.5]
    assert set(server.gaps[6:]) == {30.0}
    assert len(server.dials) == 6 + (3600 - 31) // 30 + 1


@seed("B: Once a call gets through, the next drop starts again from 0.5 s.")
def test_the_server_comes_back_and_the_waits_begin_anew(clock, raw_server, client) -> None:
    server = raw_server(polite)
    server.refuse()
    agent = client(server.url, hello=1)
    agent.start()
    clock.advance(4.0)
    server.open()
    agent.wait_connected(10.0)
    assert clock.now() == 7.5
    server.last.reset()
    clock.advance(1.0)
    assert server.gaps == [0.5]


@seed("B: three agents losing the same server, with jitter")
@seed('B: jitter spreads their redials out instead of having them all knock at once (a "thundering herd")')
def test_a_hundred_agents_do_not_knock_at_once(clock, raw_server, client) -> None:
    server = raw_server(polite)
    agents = [client(server.url, jitter=0.1, hello=1) for _ in range(100)]
    with clock.held():
        for agent in agents:
            agent.start()
        for agent in agents:
            agent.wait_connected(5.0)
        first = list(server.wires)
        for wire in first:
            wire.reset()
    clock.advance(1.0)
    knocks = sorted(wire.opened_at for wire in server.wires[100:])
    assert len(knocks) == 100
    assert 0.45 <= knocks[0] < knocks[-1] <= 0.55
    assert knocks[-1] - knocks[0] > 0.05
    assert len(set(knocks)) == 100


# Events


@seed("B: A client started before its server connects once the server appears")
@seed("B: a server restarted on the same port is redialled, giving events CONNECTED, DISCONNECTED, RECONNECTED")
@seed("B: setup's handlers work on the new connection")
@seed("B: CONNECTED The first successful connection")
@seed("B: DISCONNECTED A connection that was up has gone")
@seed("B: RECONNECTED Any later successful connection")
@seed("B: A dial that is refused fires nothing -- there was no connection to lose.")
@seed("B: setup runs on every new Peer, so the handlers it registers are there again after each reconnect")
def test_a_server_that_turns_up_late_and_restarts(clock, service, client) -> None:
    server = service(echo)
    server.stop()
    events: list[ConnectionEvent] = []
    set_up: list[MessagePeer] = []

    def setup(peer: MessagePeer) -> None:
        set_up.append(peer)
        peer.on("whoami", lambda message: f"connection {len(set_up)}")

    agent = client(server.url, setup=setup)
    agent.on_event(events.append)
    agent.start()
    clock.advance(2.0)
    assert events == []
    assert set_up == []

    server.open()
    agent.wait_connected(5.0)
    assert clock.now() == 3.5
    assert agent.request("echo", "hello").body == "hello"
    assert server.peers[0].request("whoami").body == "connection 1"
    assert events == [CONNECTED]

    server.stop()
    clock.advance(0.25)
    assert events == [CONNECTED, DISCONNECTED]
    server.open()
    agent.wait_connected(5.0)
    clock.settle()
    assert events == [CONNECTED, DISCONNECTED, RECONNECTED]
    assert agent.request("echo", "hello again").body == "hello again"
    assert server.peers[1].request("whoami").body == "connection 2"
    assert len(set_up) == 2

    server.stop()
    server.open()
    agent.wait_connected(5.0)
    clock.settle()
    assert events[3:] == [DISCONNECTED, RECONNECTED]


@seed("B: on_event(cb) tells you what is happening, with a ConnectionEvent")
@pytest.mark.parametrize("event", ConnectionEvent)
def test_events_print_as_b_shows_them(event: ConnectionEvent) -> None:
    assert f"client: {event}" == f"client: {event.name.lower()}"
    assert str(event) == event.value


@seed("B: the heartbeat gives up -- it redials")
def test_a_dead_server_is_found_by_the_heartbeat_and_dialled_anew(clock, raw_server, client) -> None:
    server = raw_server(Wire.listen)
    closes: list[tuple[float, Any]] = []
    events: list[tuple[float, ConnectionEvent]] = []
    agent = client(
        server.url,
        heartbeat_interval=5.0,
        setup=lambda peer: peer.on_close(lambda cause: closes.append((clock.now(), cause))),
    )
    agent.on_event(lambda event: events.append((clock.now(), event)))
    agent.start()
    with clock.held():
        agent.wait_connected(5.0)
        waiting = outcome(agent.request, "anything")
    clock.advance(19.0)
    assert not waiting.ready()
    clock.advance(1.5)
    assert isinstance(waiting.value, ConnectionClosed)
    assert isinstance(waiting.value.__cause__, HeartbeatTimeoutError)
    ((at, cause),) = closes
    assert at == 20.0
    assert isinstance(cause, HeartbeatTimeoutError)
    assert cause is waiting.value.__cause__
    assert events == [(0.0, CONNECTED), (20.0, DISCONNECTED), (20.5, RECONNECTED)]
    assert server.dials == [0.0, 20.5]


# While the line is down


@seed("B: request and push raise NotConnectedError while down")
@seed("B: while there is no connection they raise NotConnectedError at once")
@seed("B: Nothing is queued up to be sent later, and nothing is replayed after reconnecting")
def test_calls_while_down_raise_at_once_and_are_never_sent(clock, raw_server, client) -> None:
    server = raw_server(Wire.serve)
    server.refuse()
    agent = client(server.url)
    agent.start()
    clock.advance(1.0)

    def all_raise() -> None:
        before = clock.now()
        for call in (agent.request, agent.push, agent.stream):
            with pytest.raises(NotConnectedError) as raised:
                call("start job 7", 1)
            assert isinstance(raised.value.__cause__, OSError)
        assert clock.now() == before

    all_raise()
    server.open()
    agent.wait_connected(5.0)
    assert agent.request("now", 2).body == 2
    lost = server.last
    server.refuse()
    lost.reset()
    clock.advance(1.0)
    all_raise()
    server.open()
    agent.wait_connected(5.0)
    assert agent.request("then", 3).body == 3
    # Only what was called while there was a connection has ever been on one.
    assert [frame["headers"] for wire in server.wires for frame in wire.of("open")] == [
        {"method": "now"},
        {"method": "then"},
    ]


@seed("B: wait_connected times out with TimeoutError")
@seed("B: (it raises TimeoutError if the time runs out)")
def test_wait_connected_times_out(clock, raw_server, client) -> None:
    server = raw_server(polite)
    server.refuse()
    agent = client(server.url)
    agent.start()
    with pytest.raises(TimeoutError) as raised:
        agent.wait_connected(timeout=7.25)
    assert clock.now() == 7.25
    assert isinstance(raised.value.__cause__, ConnectionRefusedError)


# The end


@seed("B: stop() cancels the redial loop (a server that appears afterwards is never dialled)")
@seed("B: stop() cancels the redial loop (even mid-backoff) and closes the connection.")
def test_stop_in_the_midst_of_a_wait_dials_no_more(clock, raw_server, client) -> None:
    server = raw_server(polite)
    server.refuse()
    events: list[ConnectionEvent] = []
    agent = client(server.url)
    agent.on_event(events.append)
    agent.start()
    clock.advance(1.0)
    agent.stop()
    assert clock.now() == 1.0
    server.open()
    clock.advance(600.0)
    assert server.wires == []
    assert events == []


@seed("B: closes a live connection with one DISCONNECTED")
@seed("B: is safe to call twice")
@seed("B: If one was up, that sends one last DISCONNECTED; after that the client is silent for good")
def test_stop_closes_a_live_connection(clock, service, client) -> None:
    server = service(echo)
    events: list[ConnectionEvent] = []
    closes: list[Any] = []
    agent = client(server.url, setup=lambda peer: peer.on_close(closes.append))
    agent.on_event(events.append)
    agent.start()
    agent.wait_connected(5.0)
    agent.stop()
    assert events == [CONNECTED, DISCONNECTED]
    assert closes == [None]
    agent.stop()
    clock.advance(600.0)
    assert events == [CONNECTED, DISCONNECTED]
    assert len(server.peers) == 1
    assert server.peers[0].is_closed


@seed("B: (it cannot be started again)")
def test_a_stopped_client_cannot_be_started_again(service, client) -> None:
    agent = client(service(echo).url)
    agent.start()
    agent.stop()
    with pytest.raises(RuntimeError, match="make another"):
        agent.start()


@seed("B: wakes wait_connected waiters")
@seed("B: anyone in wait_connected gets NotConnectedError")
def test_stop_wakes_who_waits_for_a_connection(clock, raw_server, client) -> None:
    server = raw_server(polite)
    server.refuse()
    agent = client(server.url)
    agent.start()
    waiting = [outcome(agent.wait_connected), outcome(agent.wait_connected, 60.0)]
    clock.advance(1.0)
    assert not any(greenlet.ready() for greenlet in waiting)
    agent.stop()
    gevent.joinall(waiting)
    assert [type(greenlet.value) for greenlet in waiting] == [NotConnectedError] * 2
    assert clock.now() == 1.0


# What raises


class Stray(BaseException):
    """What no `except Exception` catches, as a `gevent.Timeout` of the application's is not caught."""


@seed("B: A setup or event callback that raises is reported to the loop, and the client carries on.")
@seed("B: one that raises is reported to the loop and the others still run")
@pytest.mark.parametrize("error", [LookupError("kaputt"), Stray("kaputt"), gevent.Timeout(None)])
def test_what_callbacks_raise_is_reported_and_the_client_carries_on(clock, service, client, caplog, error) -> None:
    server = service(echo)
    counter = count(1)

    def setup(peer: MessagePeer) -> None:
        peer.on("before", lambda message: "registered")
        peer.on_close(fails)
        peer.on_close(closes.append)
        next(counter)
        raise error

    def fails(_: object) -> None:
        raise error

    closes: list[Any] = []
    events: list[ConnectionEvent] = []
    agent = client(server.url, setup=setup)
    agent.on_event(fails)
    agent.on_event(events.append)
    with caplog.at_level(logging.ERROR, "muxws"):
        agent.start()
        agent.wait_connected(5.0)
        assert agent.request("echo", 1).body == 1
        assert server.peers[0].request("before").body == "registered"
        server.peers[0].close()
        agent.wait_connected(5.0)
        assert agent.request("echo", 2).body == 2
        agent.stop()
    assert events == [CONNECTED, DISCONNECTED, RECONNECTED, DISCONNECTED]
    assert closes == [None, None]
    assert next(counter) == 3
    # Twice setup, four times an event, twice on_close.
    reported = [record.exc_info[1] for record in caplog.records if record.exc_info]
    assert reported == [error] * 8


@seed("B: request and push work just like a Peer's")
def test_calls_of_a_client_are_a_peers(service, client) -> None:
    heard: list[Any] = []
    heard_all = gevent.event.Event()

    def setup(peer: MessagePeer) -> None:
        echo(peer)

        @peer.on("note")
        def note(message: Message) -> None:
            heard.append(message.body)
            heard_all.set()

    agent = client(service(setup).url)
    agent.start()
    agent.wait_connected(5.0)
    answer = agent.request("echo", {"n": 1}, timeout=5.0)
    assert (answer.name, answer.body) == ("echo", {"n": 1})
    agent.push("note", [1])
    assert heard_all.wait(5.0)
    assert heard == [[1]]
