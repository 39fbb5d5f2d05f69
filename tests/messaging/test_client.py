"""The reconnecting client where document B leaves off: races, phases, callbacks that wait, calls from odd places."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import gevent
import pytest
from gevent.event import Event

from muxws_green import (
    CodecNotRegistered,
    ConnectionClosed,
    ConnectionGoingAway,
    NotConnectedError,
    StreamRefused,
    TransportUrlError,
)
from muxws_green.messaging import ConnectionEvent, Message, MessagePeer, ReconnectingClient
from muxws_green.messaging.client import CALLBACK_SECONDS
from tests.seeds.scripted import Wire, never_acknowledges, outcome, polite, resets_hello

CONNECTED, DISCONNECTED, RECONNECTED = ConnectionEvent


def start(client: ReconnectingClient) -> list[ConnectionEvent]:
    """Start it; the events that it will have told."""
    events: list[ConnectionEvent] = []
    client.on_event(events.append)
    client.start()
    return events


def connected(client: ReconnectingClient) -> list[ConnectionEvent]:
    events = start(client)
    client.wait_connected(5.0)
    return events


# What is set up, and when


def test_setup_runs_once_for_each_connection_and_never_for_a_failed_dial(clock, raw_server, client) -> None:
    set_up: list[MessagePeer] = []
    server = raw_server(resets_hello, never_acknowledges, Wire.drop, polite)
    server.refuse()
    agent = client(server.url, setup=set_up.append, hello=1, hello_timeout=2.0)
    events = start(agent)
    clock.advance(1.0)
    server.open()
    agent.wait_connected(30.0)
    clock.settle()
    assert len(server.wires) == 4
    assert len(set_up) == 1
    assert events == [CONNECTED]
    server.last.reset()
    clock.settle()
    agent.wait_connected(30.0)
    clock.settle()
    assert len(set_up) == 2
    assert set_up[0] is not set_up[1]
    assert set_up[0].id != set_up[1].id
    assert set_up[0].peer is set_up[1].peer is agent.peer


def test_calls_that_arrive_before_setup_has_run_wait_for_it(clock, service, client) -> None:
    gate = Event()
    calls: list[Any] = []
    server = service(lambda peer: calls.append(outcome(peer.request, "ready")))

    def setup(peer: MessagePeer) -> None:
        gate.wait()
        peer.on("ready", lambda message: "yes")

    agent = client(server.url, setup=setup)
    events = start(agent)
    with clock.held():
        clock.settle()
        (call,) = calls
        assert not call.ready()
        # The client is not connected before that either.
        assert not agent.is_connected
        with pytest.raises(NotConnectedError):
            agent.request("echo")
        gate.set()
        clock.settle()
        assert call.value.body == "yes"
        assert agent.is_connected
    assert events == [CONNECTED]


def test_a_call_of_a_server_that_has_not_acknowledged_the_hello_yet(clock, raw_server, client) -> None:
    def calls_first(wire: Wire) -> None:
        hello = wire.read()
        wire.write("open", stream=2, payload=20, headers={"method": "double"}, end=True)
        wire.write("data", stream=hello["stream"], end=True)
        wire.serve()

    server = raw_server(calls_first)
    agent = client(server.url, hello=1, setup=lambda peer: peer.on("double", lambda message: 2 * message.body))
    connected(agent)
    clock.settle()
    (answer,) = server.last.of("data")
    assert (answer["stream"], answer["payload"]) == (2, 40)


def test_calls_of_a_connection_whose_hello_fails_are_not_carried_out_on_the_next(clock, raw_server, client) -> None:
    handled: list[Any] = []

    def calls_and_drops(wire: Wire) -> None:
        wire.read()
        wire.write("open", stream=2, payload="lost", headers={"method": "note"}, end=True)
        wire.drop()

    server = raw_server(calls_and_drops, polite)
    agent = client(
        server.url, hello=1, setup=lambda peer: peer.on("note", lambda message: handled.append(message.body))
    )
    connected(agent)
    clock.settle()
    assert len(server.wires) == 2
    assert handled == []


def test_a_setup_may_call_the_server(clock, service, client) -> None:
    names: list[Any] = []
    server = service(lambda peer: peer.on("name", lambda message: "server"))
    agent = client(server.url, setup=lambda peer: names.append(peer.request("name", timeout=5.0).body))
    connected(agent)
    assert names == ["server"]


def test_a_connection_lost_during_setup_is_not_told_of(clock, raw_server, client) -> None:
    closes: list[Any] = []
    server = raw_server(Wire.serve)

    def setup(peer: MessagePeer) -> None:
        peer.on_close(closes.append)
        if len(server.wires) == 1:
            server.last.reset()
            with pytest.raises(ConnectionClosed):
                peer.request("anything", timeout=60.0)

    agent = client(server.url, setup=setup)
    events = connected(agent)
    clock.settle()
    assert events == [CONNECTED]
    assert len(server.wires) == 2
    assert [cause.code for cause in closes] == [1006]


def test_a_kill_of_setup_leaves_a_client_that_carries_on(clock, service, client) -> None:
    def setup(peer: MessagePeer) -> None:
        peer.on("before", lambda message: 1)
        raise gevent.GreenletExit

    server = service()
    agent = client(server.url, setup=setup)
    events = connected(agent)
    assert server.peers[0].request("before").body == 1
    clock.settle()
    assert events == [CONNECTED]


# Races


def test_connections_that_come_and_go_while_a_callback_waits(clock, raw_server, client) -> None:
    """The first one's callback stands still. What is lost before it could be told of is nobody's business."""
    gate = Event()
    set_up: list[MessagePeer] = []
    closes: list[tuple[str, Any]] = []

    def setup(peer: MessagePeer) -> None:
        set_up.append(peer)
        peer.on_close(lambda cause: closes.append((peer.id, cause)))

    server = raw_server(Wire.serve)
    agent = client(server.url, setup=setup)
    agent.on_event(lambda event: gate.wait() if event is CONNECTED else None)
    events: list[tuple[ConnectionEvent, str]] = []
    agent.on_event(lambda event: events.append((event, agent.peer.id)))
    agent.start()
    agent.wait_connected(5.0)
    first = set_up[0]
    server.last.reset()
    clock.advance(0.5)
    assert len(server.wires) == 2
    assert agent.peer.is_open
    # There is a connection, but nobody has set it up: calls are refused, and calls on the old one too.
    assert not agent.is_connected
    with pytest.raises(NotConnectedError):
        agent.request("echo", 1)
    with pytest.raises(ConnectionClosed) as raised:
        first.request("echo", 1)
    assert raised.value.__cause__ is not None
    server.last.close(4001, "go away")
    clock.advance(0.5)
    assert len(server.wires) == 3
    assert set_up == [first]
    assert closes == []

    gate.set()
    clock.settle()
    assert [event for event, _ in events] == [CONNECTED, DISCONNECTED, RECONNECTED]
    assert len(set_up) == 2
    assert set_up[1].id == agent.peer.id
    # Its own cause, not that of the one in between.
    ((closed, cause),) = closes
    assert closed == first.id
    assert cause.code == 1006
    assert agent.request("echo", 2).body == 2
    assert [frame["payload"] for wire in server.wires for frame in wire.of("open")] == [2]


def test_calls_are_refused_from_the_very_loss_on(clock, raw_server, client) -> None:
    """Those that were in flight are the first to know, before any callback has had its turn."""
    server = raw_server(Wire.listen)
    agent = client(server.url)
    found: list[Any] = []

    def call_again() -> None:
        with pytest.raises(ConnectionClosed):
            agent.request("anything")
        found.append(list(events))
        found.append(agent.is_connected)
        with pytest.raises(NotConnectedError):
            agent.request("anything")

    events = connected(agent)
    calling = outcome(call_again)
    clock.settle()
    server.last.reset()
    assert calling.get() is None
    assert found == [[CONNECTED], False]
    clock.settle()
    assert events == [CONNECTED, DISCONNECTED]


def test_calls_are_refused_while_a_connection_that_broke_a_rule_is_parted_from(clock, raw_server, client) -> None:
    server = raw_server(lambda wire: None)
    agent = client(server.url)
    events = connected(agent)
    with clock.held():
        # Nobody answers the close frame, so that the parting takes its second.
        server.last.send_texts('{"type":"data","stream":99}')
        clock.settle()
        assert events == [CONNECTED]
        assert not agent.is_connected
        with pytest.raises(NotConnectedError):
            agent.request("anything")
        waiting = outcome(agent.wait_connected, 60.0)
        clock.settle()
        assert not waiting.ready()
    assert waiting.get() is None
    assert clock.now() == 1.5


def test_a_server_that_goes_away_takes_no_new_calls(clock, service, client) -> None:
    gate = Event()
    server = service(lambda peer: peer.on("gate", lambda message: gate.wait()))
    agent = client(server.url)
    events = connected(agent)
    call = outcome(agent.request, "gate")
    clock.settle()
    with clock.held():
        closing = gevent.spawn(server.peers[0].close)
        clock.settle()
        with pytest.raises(ConnectionGoingAway):
            agent.request("gate")
        assert events == [CONNECTED]
        gate.set()
        assert call.get().body is True
        closing.get()
    agent.wait_connected(5.0)
    assert len(server.peers) == 2


# Closing one connection


def test_closing_one_connection_is_a_loss_like_any_other(clock, service, client) -> None:
    server = service(lambda peer: peer.on("echo", lambda message: message.body))
    set_up: list[MessagePeer] = []
    closes: list[Any] = []

    def setup(peer: MessagePeer) -> None:
        set_up.append(peer)
        peer.on_close(closes.append)

    agent = client(server.url, setup=setup)
    events = connected(agent)
    with set_up[0]:
        pass
    assert set_up[0].is_closed
    set_up[0].wait_closed(0)
    set_up[0].close()
    agent.wait_connected(5.0)
    assert clock.now() == 0.5
    assert agent.request("echo", 1).body == 1
    clock.settle()
    assert events == [CONNECTED, DISCONNECTED, RECONNECTED]
    assert closes == [None]
    assert len(server.peers) == 2


def test_leaving_a_with_over_one_connection_by_an_exception_waits_for_nothing(clock, service, client) -> None:
    server = service(lambda peer: peer.on("wait", lambda message: Event().wait()))
    set_up: list[MessagePeer] = []
    agent = client(server.url, setup=set_up.append)
    connected(agent)
    call = outcome(agent.request, "wait")
    clock.settle()
    with pytest.raises(LookupError), set_up[0]:
        raise LookupError
    assert clock.now() == 0.0
    assert isinstance(call.get(), ConnectionClosed)


@pytest.mark.parametrize("where", ["handler", "setup", "event", "on_close", "reader"])
def test_closing_one_connection_from_within_it(clock, service, client, where) -> None:
    server = service()
    set_up: list[MessagePeer] = []

    def close_first() -> None:
        if len(set_up) == 1:
            set_up[0].close()

    def setup(peer: MessagePeer) -> None:
        set_up.append(peer)
        peer.on("close", lambda message: close_first() if where == "handler" else None)
        if where == "setup":
            close_first()
        if where == "on_close":
            peer.on_close(lambda cause: peer.close())

    agent = client(
        server.url,
        setup=setup,
        incoming_headers_interceptors=[lambda headers, stream: close_first() if where == "reader" else None],
    )
    if where == "event":
        agent.on_event(lambda event: close_first())
    events = connected(agent)
    if where in ("handler", "reader"):
        server.peers[0].push("close")
        clock.settle()
    if where == "on_close":
        server.peers[0].close()
    clock.advance(1.0)
    agent.wait_connected(5.0)
    assert len(server.peers) == 2
    assert server.peers[0].is_closed
    clock.settle()
    assert events == [CONNECTED, DISCONNECTED, RECONNECTED]


# The end, in every phase


PHASES: dict[str, Callable[[Any], Any]] = {
    "before its first turn": lambda make: make(polite),
    "dialling": lambda make: make(lambda wire: None, upgrade=False),
    "hello": lambda make: make(never_acknowledges),
    "backing off": lambda make: make(resets_hello),
    "connected": lambda make: make(polite),
    "lost": lambda make: make(polite, resets_hello),
}


@pytest.fixture
def in_phase(clock, raw_server, client) -> Callable[..., Any]:
    """A client that has been brought to a phase, its server, and the events that it has told."""

    def make(phase: str, **options: Any) -> Any:
        server = PHASES[phase](raw_server)
        agent = client(server.url, hello=1, **options)
        events = start(agent)
        if phase != "before its first turn":
            with clock.held():
                clock.settle()
        if phase == "lost":
            server.last.reset()
            clock.advance(0.75)
        return agent, server, events

    return make


def is_over(clock: Any, agent: ReconnectingClient, server: Any, events: list[ConnectionEvent]) -> bool:
    """Whether nothing comes of it any more."""
    clock.settle()
    dials, told = len(server.wires), list(events)
    clock.advance(600.0)
    with pytest.raises(NotConnectedError, match="stopped"):
        agent.wait_connected(5.0)
    with pytest.raises(NotConnectedError, match="stopped"):
        agent.request("anything")
    with pytest.raises(RuntimeError, match="once"):
        agent.start()
    assert not agent.is_connected
    assert repr(agent) == "<ReconnectingClient stopped>"
    return len(server.wires) == dials and events == told


@pytest.mark.leaks
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("stoppers", [1, 2])
def test_stop_in_every_phase(clock, in_phase, phase, stoppers) -> None:
    agent, server, events = in_phase(phase)
    waiting = outcome(agent.wait_connected)
    if phase != "before its first turn":
        clock.settle()
    if stoppers == 2:
        gevent.joinall([gevent.spawn(agent.stop) for _ in range(stoppers)], raise_error=True)
    agent.stop()
    assert clock.now() == (0.75 if phase == "lost" else 0.0)
    if phase == "connected":
        assert waiting.get() is None
        assert events == [CONNECTED, DISCONNECTED]
        assert server.last.close_code == 1000
    else:
        assert isinstance(waiting.get(), NotConnectedError)
        assert events == ([CONNECTED, DISCONNECTED] if phase == "lost" else [])
    assert is_over(clock, agent, server, events)
    assert server.wires == [] or server.last.over.is_set() or phase == "dialling"


def test_stop_before_start(clock, raw_server, client) -> None:
    server = raw_server(polite)
    agent = client(server.url)
    agent.stop()
    agent.stop()
    events: list[ConnectionEvent] = []
    assert is_over(clock, agent, server, events)


def stops(agent_of: list[ReconnectingClient], returned: list[str], where: str) -> Any:
    """What stops the client when it is called, whatever it is called with."""

    def stop(*_: Any) -> bool:
        agent_of[0].stop()
        returned.append(where)
        return True

    return stop


@pytest.mark.leaks
@pytest.mark.parametrize(
    "where",
    ["connected", "disconnected", "reconnected", "setup", "on_close", "handler", "retry_if", "reader", "opener"],
)
def test_stop_from_every_kind_of_callback(clock, service, client, where) -> None:
    agents: list[ReconnectingClient] = []
    returned: list[str] = []
    stop = stops(agents, returned, where)
    server = service(lambda peer: peer.on("echo", lambda message: message.body))

    def setup(peer: MessagePeer) -> None:
        if where == "setup":
            stop()
        if where == "on_close":
            peer.on_close(stop)
        peer.on("stop", stop if where == "handler" else lambda message: None)

    agent = client(
        server.url,
        setup=setup,
        retry_if=stop if where == "retry_if" else None,
        incoming_headers_interceptors=[stop] if where == "reader" else [],
        open_interceptors=[stop] if where == "opener" else [],
    )
    agents.append(agent)
    agent.on_event(lambda event: stop() if event.value == where else None)
    events = start(agent)
    with clock.held():
        clock.settle()
    if where in ("disconnected", "on_close", "retry_if", "reconnected"):
        if where == "retry_if":
            server.stop()
        else:
            server.peers[0].close()
        clock.advance(1.0)
    if where in ("handler", "reader"):
        server.peers[0].push("stop")
        clock.advance(5.0)
    if where == "opener":
        # It has stopped the client, which then cannot make the call.
        with pytest.raises((ConnectionClosed, ConnectionGoingAway)):
            agent.request("echo", 1)
    clock.settle()
    assert returned == [where]
    expected = {
        "setup": [],
        "reconnected": [CONNECTED, DISCONNECTED, RECONNECTED, DISCONNECTED],
    }
    assert events == expected.get(where, [CONNECTED, DISCONNECTED])
    agent.stop()
    with pytest.raises(NotConnectedError):
        agent.wait_connected(1.0)
    connections = len(server.peers)
    clock.advance(600.0)
    assert len(server.peers) == connections
    assert events == expected.get(where, [CONNECTED, DISCONNECTED])
    assert agent.peer.is_closed


def test_stop_lets_calls_in_progress_finish_and_refuses_new_ones_at_once(clock, service, client) -> None:
    gate = Event()
    server = service(lambda peer: peer.on("gate", lambda message: gate.wait()))
    agent = client(server.url)
    events = connected(agent)
    call = outcome(agent.request, "gate")
    clock.settle()
    with clock.held():
        stopping = [outcome(agent.stop), outcome(agent.stop)]
        clock.settle()
        assert not any(greenlet.ready() for greenlet in stopping)
        with pytest.raises(NotConnectedError, match="stopped"):
            agent.request("gate")
        assert not agent.is_connected
        gate.set()
        gevent.joinall(stopping)
        assert call.get().body is True
        assert events == [CONNECTED, DISCONNECTED]
    assert clock.now() == 0.0


def test_stop_waits_for_calls_no_longer_than_it_is_told(clock, service, client) -> None:
    server = service(lambda peer: peer.on("gate", lambda message: Event().wait()))
    agent = client(server.url)
    connected(agent)
    call = outcome(agent.request, "gate")
    clock.settle()
    agent.stop(drain=3.0)
    assert clock.now() == 3.0
    assert isinstance(call.value, ConnectionClosed)
    for wrong in (-1.0, float("nan"), True):
        with pytest.raises(ValueError, match="drain"):
            agent.stop(drain=wrong)


def test_a_wrong_drain_stops_nothing(clock, service, client) -> None:
    agent = client(service().url)
    connected(agent)
    with pytest.raises(ValueError, match="drain"):
        agent.stop(drain=-1.0)
    assert agent.is_connected


def test_stop_returns_when_everything_has_been_told(clock, service, client) -> None:
    gate = Event()
    told: list[ConnectionEvent] = []

    def slow(event: ConnectionEvent) -> None:
        if event is DISCONNECTED:
            gate.wait()
        told.append(event)

    agent = client(service().url)
    agent.on_event(slow)
    agent.start()
    agent.wait_connected(5.0)
    with clock.held():
        stopping = [outcome(agent.stop), outcome(agent.stop)]
        clock.settle()
        assert not any(greenlet.ready() for greenlet in stopping)
        gate.set()
        gevent.joinall(stopping)
    assert told == [CONNECTED, DISCONNECTED]


def test_stop_does_not_wait_for_ever_for_a_callback(clock, service, client, caplog) -> None:
    gate = Event()
    agent = client(service().url)
    agent.on_event(lambda event: gate.wait())
    agent.start()
    agent.wait_connected(5.0)
    with caplog.at_level(logging.WARNING, "muxws"):
        agent.stop()
    assert clock.now() == CALLBACK_SECONDS
    assert "does not wait any longer" in caplog.text
    assert agent.peer.is_closed
    gate.set()
    clock.settle()


def test_stop_in_the_reader_holds_up_nothing(clock, service, client) -> None:
    """Not even where a callback that stands still is yet to be told of the end."""
    gate = Event()
    returned: list[bool] = []

    def stop(*_: object) -> None:
        agent.stop()
        returned.append(gate.is_set())

    server = service()
    agent = client(server.url, incoming_headers_interceptors=[stop])
    agent.on_event(lambda event: gate.wait())
    agent.start()
    agent.wait_connected(5.0)
    with clock.held():
        server.peers[0].push("anything")
        clock.settle()
        assert returned == [False]
    gate.set()


def test_who_waits_for_a_connection_does_not_wait_for_the_drain(clock, service, client) -> None:
    """It is being set up when the client is stopped, and a call of the server takes its time to finish."""
    gate = Event()
    server = service(lambda peer: outcome(peer.request, "slow"))

    def setup(peer: MessagePeer) -> None:
        peer.on("slow", lambda message: gate.wait())
        gate.wait()

    agent = client(server.url, setup=setup)
    agent.start()
    waiting = outcome(agent.wait_connected)
    with clock.held():
        clock.settle()
        stopping = outcome(agent.stop)
        clock.settle()
        assert not stopping.ready()
        assert isinstance(waiting.value, NotConnectedError)
        gate.set()
        stopping.get()


def test_calls_that_wait_for_a_setup_which_will_not_run_are_refused(clock, service, client) -> None:
    """Stopped between a connection and its setup: the server is told that its call was not taken."""
    gate = Event()
    calls: list[Any] = []
    server = service(lambda peer: calls.append(outcome(peer.request, "anything")))
    agent = client(server.url)
    agent.on_event(lambda event: gate.wait() if event is DISCONNECTED else None)
    connected(agent)
    server.peers[0].close()
    clock.advance(0.5)
    assert len(server.peers) == 2
    with clock.held():
        stopping = outcome(agent.stop)
        clock.settle()
        gate.set()
        assert stopping.get() is None
        assert isinstance(calls[1].value, StreamRefused)
    assert clock.now() == 0.5


def test_a_client_belongs_to_the_thread_that_started_it(clock, service, client) -> None:
    agent = client(service().url)
    connected(agent)
    raised: list[Any] = []

    def other_thread() -> None:
        for call in (agent.stop, agent.wait_connected, lambda: agent.request("x")):
            try:
                call()
            except RuntimeError as error:
                raised.append("run_threadsafe" in str(error))

    thread = threading.Thread(target=other_thread)
    thread.start()
    gevent.get_hub().threadpool.apply(thread.join, (10.0,))
    assert raised == [True, True, True]
    # And nothing has changed.
    assert agent.is_connected


# Starting


def test_a_client_is_started_once(clock, raw_server, client) -> None:
    server = raw_server(polite)
    agent = client(server.url, hello=1)
    connected(agent)
    with pytest.raises(RuntimeError, match="once"):
        agent.start()
    clock.advance(60.0)
    assert len(server.wires) == 1


@pytest.mark.parametrize(
    "url,options,error",
    [
        ("http://127.0.0.1/", {}, TransportUrlError),
        ("ws://127.0.0.1:9/", {"codec": "cbor"}, CodecNotRegistered),
        ("ws://127.0.0.1:9/", {"colour": "red"}, TypeError),
        ("ws://127.0.0.1:9/", {"open_timeout": -1.0}, ValueError),
    ],
)
def test_start_raises_for_what_can_never_work(client, url, options, error) -> None:
    agent = client(url, **options)
    for _ in range(2):
        with pytest.raises(error):
            agent.start()
    assert agent.peer is None


@pytest.mark.parametrize(
    "options",
    [{"initial_backoff": 0}, {"initial_backoff": -1}, {"jitter": 1.5}, {"jitter": -0.1}, {"max_backoff": float("nan")}],
)
def test_a_wrong_backoff_is_refused_where_the_client_is_made(client, options) -> None:
    with pytest.raises(ValueError, match="must"):
        client("ws://127.0.0.1:9/", **options)


def test_a_client_that_is_not_started(client) -> None:
    agent = client("ws://127.0.0.1:9/")
    assert agent.peer is None
    assert not agent.is_connected
    for call in (agent.request, agent.push, agent.stream):
        with pytest.raises(NotConnectedError, match="not started"):
            call("anything")
    with pytest.raises(NotConnectedError, match="not started"):
        agent.wait_connected()


def test_representations(clock, service, client) -> None:
    agent = client(service().url)
    assert repr(agent) == "<ReconnectingClient not connected>"
    connected(agent)
    assert repr(agent) == "<ReconnectingClient connected>"


# Waiting to be connected


def test_wait_connected_returns_at_once_where_it_is(clock, service, client) -> None:
    agent = client(service().url)
    connected(agent)
    agent.wait_connected(0)
    agent.wait_connected()


def test_many_wait_and_go_on_together(clock, raw_server, client) -> None:
    server = raw_server(polite)
    server.refuse()
    agent = client(server.url, hello=1)
    agent.start()
    waiting = [outcome(agent.wait_connected, timeout) for timeout in (None, 60.0, float("inf"), 1.0)]
    clock.advance(2.0)
    assert [greenlet.ready() for greenlet in waiting] == [False, False, False, True]
    assert isinstance(waiting[3].value, TimeoutError)
    with pytest.raises(TimeoutError):
        agent.wait_connected(0)
    server.open()
    clock.advance(2.0)
    assert [greenlet.value for greenlet in waiting[:3]] == [None] * 3


@pytest.mark.parametrize("timeout", [-1.0, float("nan"), True, "1"])
def test_its_timeout_is_a_number_of_seconds(clock, service, client, timeout) -> None:
    agent = client(service().url)
    agent.start()
    with pytest.raises(ValueError, match="timeout"):
        agent.wait_connected(timeout)


@pytest.mark.parametrize("where", ["setup", "event"])
def test_waiting_for_the_connection_where_it_is_told_of_raises_in_place_of_hanging(
    clock, service, client, caplog, where
) -> None:
    agents: list[ReconnectingClient] = []
    server = service()
    agent = client(server.url, setup=lambda peer: agents[0].wait_connected() if where == "setup" else None)
    agents.append(agent)
    agent.on_event(lambda event: agent.wait_connected())
    with caplog.at_level(logging.ERROR, "muxws"):
        connected(agent)
        server.peers[0].close()
        agent.wait_connected(5.0)
        clock.settle()
    errors = [record.exc_info[1] for record in caplog.records]
    assert {type(error) for error in errors} == {RuntimeError}
    assert all("would wait for itself" in str(error) for error in errors)
    # Once for each setup, and for the event that says that there is no connection.
    assert len(errors) == (3 if where == "setup" else 1)


def test_a_client_that_gives_up(clock, raw_server, client) -> None:
    """The application's own `retry_if` may say that it is of no use to go on."""
    server = raw_server(polite, resets_hello)
    agent = client(server.url, hello=1, retry_if=lambda error: not isinstance(error, StreamRefused))
    events = connected(agent)
    server.last.reset()
    clock.settle()
    waiting = outcome(agent.wait_connected)
    with pytest.raises(NotConnectedError, match="dials no more") as raised:
        agent.wait_connected(60.0)
    assert isinstance(raised.value.__cause__, StreamRefused)
    assert isinstance(waiting.get(), NotConnectedError)
    with pytest.raises(NotConnectedError, match="dials no more"):
        agent.request("anything")
    clock.settle()
    assert events == [CONNECTED, DISCONNECTED]
    agent.stop()
    assert events == [CONNECTED, DISCONNECTED]


# Events


def test_who_listens_later_hears_of_what_happens_later(clock, service, client) -> None:
    server = service()
    agent = client(server.url)
    connected(agent)
    late: list[ConnectionEvent] = []
    assert agent.on_event(late.append) == late.append
    server.peers[0].close()
    agent.wait_connected(5.0)
    clock.settle()
    assert late == [DISCONNECTED, RECONNECTED]


def test_a_callback_of_events_may_call_and_wait(clock, service, client) -> None:
    server = service(lambda peer: peer.on("echo", lambda message: message.body))
    agent = client(server.url)
    answers: list[Any] = []

    @agent.on_event
    def resync(event: ConnectionEvent) -> None:
        if event is not DISCONNECTED:
            answers.append(agent.request("echo", event.value).body)

    connected(agent)
    clock.settle()
    server.peers[0].close()
    agent.wait_connected(5.0)
    clock.settle()
    assert answers == ["connected", "reconnected"]


def test_both_ends_of_a_client_call_both_ways(clock, service, client) -> None:
    def on_server(peer: MessagePeer) -> None:
        peer.on("outer", lambda message: [*message.peer.request("inner", message.body).body, "outer"])

    server = service(on_server)

    def inner(message: Message) -> Any:
        return [message.body, "inner"]

    agent = client(server.url, setup=lambda peer: peer.on("inner", inner))
    connected(agent)
    assert agent.request("outer", 1).body == [1, "inner", "outer"]
    assert list(agent.stream("outer", 2)) == [[2, "inner", "outer"]]
