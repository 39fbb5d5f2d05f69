"""How a connection of named calls begins and ends: setup, closing, what is told, and what calls in flight get."""

from __future__ import annotations

import logging
from typing import Any

import gevent
import pytest
from gevent.event import Event

from muxws_green import (
    ConnectionClosed,
    ConnectionGoingAway,
    HandlerStopped,
    HeartbeatTimeoutError,
    RemoteError,
    StreamRefused,
)
from muxws_green.messaging import Message, MessageApp, MessagePeer, ReconnectingClient, connect, serve
from tests.seeds.scripted import Wire, outcome

seed = pytest.mark.seed


def in_flight(peer: MessagePeer, clock: Any) -> Any:
    """A call that has reached the other end and is not answered, as a greenlet."""
    call = outcome(peer.request, "wait")
    clock.settle()
    assert not call.ready()
    return call


def waits(peer: MessagePeer) -> None:
    peer.on("wait", lambda message: Event().wait())


# The end, as both see it


@pytest.mark.parametrize("closer", ["near", "far"])
def test_a_clean_close_is_told_as_none(ends, clock, closer) -> None:
    told: list[Any] = []
    pair = ends()
    assert pair.near.on_close(told.append) == told.append
    getattr(pair, closer).close()
    pair.near.wait_closed(5.0)
    clock.settle()
    assert told == [None]
    assert pair.near.is_closed
    # Registered later it is told all the same.
    pair.near.on_close(told.append)
    clock.settle()
    assert told == [None, None]


def test_on_close_is_a_decorator(ends, clock) -> None:
    told: list[Any] = []
    pair = ends()

    @pair.near.on_close
    def closed(cause: ConnectionClosed | None) -> None:
        told.append(cause)

    pair.near.close()
    clock.settle()
    assert told == [None]


def test_another_end_is_told_with_its_cause_and_calls_in_flight_fail_with_it(clock, raw_server, caller) -> None:
    server = raw_server(Wire.listen)
    told: list[Any] = []
    peer = caller(server.url, lambda peer: peer.on_close(told.append))
    call = in_flight(peer, clock)
    server.last.reset()
    clock.settle()
    (cause,) = told
    assert type(cause) is ConnectionClosed
    assert cause.code == 1006
    assert type(call.value) is ConnectionClosed
    assert call.value.__cause__ is cause
    assert (call.value.code, call.value.was_clean) == (1006, False)


@pytest.mark.parametrize("code", [1000, 1001, 4000])
def test_the_code_of_the_others_close_frame(clock, raw_server, caller, code) -> None:
    server = raw_server(Wire.listen)
    told: list[Any] = []
    peer = caller(server.url, lambda peer: peer.on_close(told.append))
    call = in_flight(peer, clock)
    server.last.close(code, "that is all")
    clock.settle()
    assert (call.value.code, call.value.reason, call.value.was_clean) == (code, "that is all", code == 1000)
    if code == 1000:
        assert told == [None]
    else:
        (cause,) = told
        assert (cause.code, cause.reason) == (code, "that is all")


def test_a_server_that_drains_goes_away(clock, service, caller) -> None:
    server = service()
    told: list[Any] = []
    caller(server.url, lambda peer: peer.on_close(told.append))
    server.stop()
    clock.settle()
    assert [cause.code for cause in told] == [1001]


def test_calls_after_the_end(ends) -> None:
    pair = ends()
    pair.near.close()
    # Nobody has been told yet.
    assert pair.near.is_closed
    pair.near.wait_closed(0)
    for call in (pair.near.request, pair.near.push, pair.near.stream):
        with pytest.raises(ConnectionClosed) as raised:
            call("add")
        assert raised.value.was_clean


def test_nobody_dials_again(clock, raw_server, caller) -> None:
    server = raw_server(Wire.listen)
    peer = caller(server.url)
    server.last.reset()
    clock.advance(600.0)
    assert len(server.wires) == 1
    assert peer.is_closed


def test_callbacks_run_in_their_order_and_one_that_raises_stops_no_other(ends, clock, caplog) -> None:
    ran: list[str] = []

    def fails(error: BaseException) -> Any:
        def callback(_: object) -> None:
            ran.append(type(error).__name__)
            raise error

        return callback

    pair = ends()
    pair.near.on_close(fails(LookupError("kaputt")))
    pair.near.on_close(fails(gevent.Timeout(None)))
    pair.near.on_close(fails(gevent.GreenletExit()))
    pair.near.on_close(lambda cause: ran.append("last"))
    with caplog.at_level(logging.ERROR, "muxws"):
        pair.near.close()
        clock.settle()
    assert ran == ["LookupError", "Timeout", "GreenletExit", "last"]
    assert [type(record.exc_info[1]).__name__ for record in caplog.records] == ["LookupError", "Timeout"]


def test_a_callback_may_wait(ends, clock) -> None:
    ran: list[str] = []
    gate = Event()
    pair = ends()

    @pair.near.on_close
    def first(_: object) -> None:
        gate.wait()
        ran.append("first")

    pair.near.on_close(lambda cause: ran.append("second"))
    pair.near.close()
    pair.near.wait_closed(1.0)
    assert ran == []
    gate.set()
    clock.settle()
    assert ran == ["first", "second"]


def test_wait_closed_has_a_bound(ends, clock) -> None:
    pair = ends()
    began = clock.now()
    with pytest.raises(TimeoutError, match=r"still open after 2\.5 s"):
        pair.near.wait_closed(2.5)
    assert clock.now() - began == 2.5
    with pytest.raises(TimeoutError):
        pair.near.wait_closed(0)
    waiting = outcome(pair.near.wait_closed, float("inf"))
    clock.settle()
    pair.far.close()
    assert waiting.get() is None
    pair.near.wait_closed(0)


@pytest.mark.parametrize("timeout", [-1.0, float("nan"), True, "1"])
def test_a_timeout_is_a_number_of_seconds(ends, timeout) -> None:
    with pytest.raises(ValueError, match="timeout"):
        ends().near.wait_closed(timeout)


def test_close_lets_calls_in_progress_finish_and_takes_no_more(ends, clock) -> None:
    gate = Event()
    pair = ends(lambda peer: peer.on("gate", lambda message: gate.wait()))
    call = outcome(pair.near.request, "gate")
    clock.settle()
    with clock.held():
        closing = outcome(pair.near.close)
        clock.settle()
        assert not closing.ready()
        with pytest.raises(ConnectionGoingAway):
            pair.near.request("gate")
        gate.set()
        assert closing.get() is None
    assert call.get().body is True


def test_close_waits_no_longer_than_it_is_told(ends, clock) -> None:
    pair = ends(waits)
    call = in_flight(pair.near, clock)
    began = clock.now()
    pair.near.close(drain=3.0)
    assert clock.now() - began == 3.0
    assert isinstance(call.get(), ConnectionClosed)
    with pytest.raises(ValueError, match="drain"):
        pair.near.close(drain=-1.0)


def test_a_handler_may_close_its_connection(ends, clock) -> None:
    after: list[str] = []

    def bye(message: Message) -> None:
        message.peer.close()
        after.append("closed")

    pair = ends(lambda peer: peer.on("bye", bye))
    with pytest.raises(ConnectionClosed):
        pair.near.request("bye", timeout=60.0)
    clock.settle()
    assert after == ["closed"]
    assert clock.now() == 0.0


def test_a_callback_may_close_too(ends, clock) -> None:
    pair = ends()
    pair.near.on_close(lambda cause: pair.near.close())
    pair.near.close()
    clock.settle()
    assert pair.near.is_closed


@pytest.mark.parametrize("error", [None, LookupError("kaputt")])
def test_leaving_a_with_closes(ends, clock, error) -> None:
    pair = ends(waits)
    began = clock.now()
    if error is None:
        with pair.near as entered:
            assert entered is pair.near
    else:
        waiting = in_flight(pair.near, clock)
        with pytest.raises(LookupError), pair.near:
            raise error
        # Nothing is waited for after an exception.
        assert isinstance(waiting.get(), ConnectionClosed)
    assert clock.now() == began
    assert pair.near.is_closed


def test_handlers_stop_when_the_connection_ends(ends, clock) -> None:
    stopped: list[Any] = []

    def handler(message: Message) -> None:
        try:
            Event().wait()
        except HandlerStopped as error:
            stopped.append(error.cause)
            raise

    pair = ends(lambda peer: peer.on("wait", handler))
    in_flight(pair.near, clock)
    pair.near.close(drain=0.0)
    clock.settle()
    assert len(stopped) == 1


# The heartbeat


@seed("B: both connect() and serve() peers ping by default")
@seed("B: Every Peer has a heartbeat, on both ends, by default")
@seed("B: Keep heartbeats on for any long-lived connection")
def test_connect_and_serve_ping_by_default(clock, raw_server, raw_client) -> None:
    server = raw_server(Wire.serve)
    with clock.held():
        peer = connect(server.url, clock=clock)
    listening = serve("127.0.0.1", 0, clock=clock)
    dialer = raw_client(f"ws://127.0.0.1:{listening.port}/")
    began = clock.now()
    clock.advance(16.0)
    for wire in (server.last, dialer):
        assert [at - began for at in wire.times("ping")] == [0.0, 5.0, 10.0, 15.0]
        assert [frame["nonce"] for frame in wire.of("ping")] == ["1", "2", "3", "4"]
        assert all("stream" not in frame for frame in wire.of("ping"))
    peer.close()
    listening.drain(0.0)


@seed("B: Turn sending off (heartbeat_interval=None)")
def test_none_sends_no_pings(clock, raw_server, raw_client, caller, service) -> None:
    server = raw_server(Wire.serve)
    caller(server.url, heartbeat_interval=None)
    dialer = raw_client(service(heartbeat_interval=None).url)
    clock.advance(600.0)
    assert server.last.times("ping") == dialer.times("ping") == []


@seed("B: on_close sees a HeartbeatTimeoutError, and a waiting request fails with ConnectionClosedError caused by it")
@seed("B: This is how a scheduler notices that an agent machine is gone: register on_close")
def test_a_silent_end_is_declared_dead(clock, raw_server, raw_client, caller, service) -> None:
    told: dict[str, Any] = {}

    def note(role: str) -> Any:
        return lambda peer: peer.on_close(lambda cause: told.update({role: (clock.now() - began, cause)}))

    began = clock.now()
    server = raw_server(Wire.listen)
    with clock.held():
        dialer = caller(server.url, note("dialer"), heartbeat_interval=2.0, max_missed_pongs=4)
        serving = service(note("acceptor"), heartbeat_interval=2.0, max_missed_pongs=4)
        raw_client(serving.url)
        clock.settle()
        (acceptor,) = serving.peers
        calls = [outcome(peer.request, "anything") for peer in (dialer, acceptor)]
        clock.settle()
    clock.advance(9.75)
    assert told == {}
    clock.advance(0.25)
    assert {role: at for role, (at, _) in told.items()} == {"dialer": 10.0, "acceptor": 10.0}
    for call, role in zip(calls, ("dialer", "acceptor"), strict=True):
        cause = told[role][1]
        assert type(cause) is HeartbeatTimeoutError
        assert type(call.value) is ConnectionClosed
        assert call.value.__cause__ is cause


@seed("B: a zero, NaN or infinite interval, or a negative (or True/False) max_missed_pongs, is refused with ValueError")
@pytest.mark.parametrize(
    "wrong",
    [
        {"heartbeat_interval": 0},
        {"heartbeat_interval": -1.0},
        {"heartbeat_interval": float("nan")},
        {"heartbeat_interval": float("inf")},
        {"heartbeat_interval": True},
        {"max_missed_pongs": -1},
        {"max_missed_pongs": True},
        {"max_missed_pongs": False},
        {"max_missed_pongs": 1.5},
        {"max_missed_pongs": True, "heartbeat_interval": None},
    ],
)
def test_a_wrong_heartbeat_is_refused_before_anything_is_opened(raw_server, wrong) -> None:
    server = raw_server(Wire.listen)
    with pytest.raises(ValueError, match=r"interval|max_missed"):
        connect(server.url, **wrong)
    with pytest.raises(ValueError, match=r"interval|max_missed"):
        ReconnectingClient(server.url, **wrong)
    with pytest.raises(ValueError, match=r"interval|max_missed"):
        MessageApp(**wrong)
    with pytest.raises(ValueError, match=r"interval|max_missed"):
        serve("127.0.0.1", 0, **wrong)
    assert server.wires == []


# Options


@pytest.mark.parametrize("option", ["reconnect", "heartbeat", "ping_interval", "ping_timeout", "on_stream", "on_close"])
def test_options_that_this_layer_sets_are_refused_where_they_are_given(option) -> None:
    options: dict[str, Any] = {option: None}
    with pytest.raises(TypeError, match=f"connect has no option {option}"):
        connect("ws://127.0.0.1:9/", **options)
    with pytest.raises(TypeError, match=f"ReconnectingClient has no option {option}"):
        ReconnectingClient("ws://127.0.0.1:9/", **options)


@pytest.mark.parametrize("option", ["handler", "on_connect", "heartbeat", "ping_interval", "ping_timeout"])
def test_an_application_sets_some_too(option) -> None:
    options: dict[str, Any] = {option: None}
    with pytest.raises(TypeError, match=f"MessageApp has no option {option}"):
        MessageApp(**options)


def test_options_that_nobody_knows() -> None:
    with pytest.raises(TypeError):
        connect("ws://127.0.0.1:9/", colour="red")
    with pytest.raises(TypeError):
        MessageApp(colour="red")


def test_an_application_has_the_options_of_wsgi_applications(clock, service, caller) -> None:
    server = service(max_peers=1)
    caller(server.url)
    with pytest.raises(OSError, match="503"):
        caller(server.url)


def test_an_application_refuses_origins(clock, service, caller) -> None:
    server = service(allowed_origins=["https://example.com"])
    with pytest.raises(OSError, match="403"):
        caller(server.url, headers={"Origin": "https://example.net"})
    assert server.peers == []


# Setup


def test_calls_wait_until_setup_has_run(ends, clock) -> None:
    """The far end may call as soon as there is a connection, which is before this end's `setup` is over."""
    gate = Event()
    called: list[Any] = []

    def slow(peer: MessagePeer) -> None:
        gate.wait()
        peer.on("ready", lambda message: "yes")

    def eager(peer: MessagePeer) -> None:
        called.append(outcome(peer.request, "ready"))

    making = outcome(ends, eager, slow)
    with clock.held():
        clock.settle()
        assert not any(call.ready() for call in called)
        gate.set()
        making.get()
        clock.settle()
    (call,) = called
    assert call.value.body == "yes"


def test_a_call_that_arrives_before_connect_has_returned(clock, raw_server, caller) -> None:
    """It comes in one packet with the acknowledgement of the hello, so that its handler starts first."""

    def calls_at_once(wire: Wire) -> None:
        hello = wire.read()
        wire.send_texts(
            f'{{"type":"data","stream":{hello["stream"]},"end":true}}',
            '{"type":"open","stream":2,"end":true,"headers":{"method":"double"},"payload":21}',
        )
        wire.listen()

    server = raw_server(calls_at_once)
    caller(server.url, lambda peer: peer.on("double", lambda message: 2 * message.body), hello=1)
    clock.settle()
    assert [(answer["stream"], answer["payload"]) for answer in server.last.of("data")] == [(2, 42)]


def test_a_setup_may_call_the_other_end(ends, clock) -> None:
    names: list[Any] = []

    def asks(peer: MessagePeer) -> None:
        names.append(peer.request("name", timeout=5.0).body)

    ends(lambda peer: peer.on("name", lambda message: "far"), asks)
    assert names == ["far"]


class Stray(BaseException):
    pass


@pytest.mark.parametrize("error", [LookupError("kaputt"), Stray("kaputt"), gevent.Timeout(None)])
def test_a_setup_of_connect_that_raises_raises_there(clock, service, caller, error) -> None:
    """The caller is right here to be told, and what he had thrown into it comes out as that same object."""
    calls: list[Any] = []
    server = service(lambda peer: calls.append(outcome(peer.request, "anything")))

    def setup(peer: MessagePeer) -> None:
        clock.settle()
        raise error

    with pytest.raises(type(error)) as raised:
        caller(server.url, setup)
    assert raised.value is error
    clock.settle()
    # The calls that had waited were not carried out, and that is said; then the connection is closed.
    (call,) = calls
    assert isinstance(call.value, StreamRefused)
    assert server.peers[0].is_closed


@pytest.mark.parametrize("error", [LookupError("kaputt"), Stray("kaputt"), gevent.Timeout(None)])
def test_a_setup_of_an_application_that_raises_is_reported_and_the_connection_goes_on(
    clock, service, caller, caplog, error
) -> None:
    def setup(peer: MessagePeer) -> None:
        peer.on("before", lambda message: 1)
        raise error

    with caplog.at_level(logging.ERROR, "muxws"):
        peer = caller(service(setup).url)
        assert peer.request("before").body == 1
    assert [record.exc_info[1] for record in caplog.records] == [error]


def test_a_connection_lost_while_connect_sets_it_up(clock, raw_server, caller) -> None:
    server = raw_server(Wire.listen)
    told: list[Any] = []

    def setup(peer: MessagePeer) -> None:
        server.last.reset()
        clock.settle()
        peer.on_close(told.append)

    peer = caller(server.url, setup)
    clock.settle()
    assert peer.is_closed
    assert [cause.code for cause in told] == [1006]


def test_a_hello_is_a_call_like_any_other(clock, service, caller) -> None:
    seen: list[Message] = []
    server = service(lambda peer: peer.on("hello", lambda message: seen.append(message)))
    peer = caller(server.url, hello={"agent": 7}, hello_headers={"method": "hello"})
    assert [(message.name, message.body) for message in seen] == [("hello", {"agent": 7})]
    assert seen[0].peer is server.peers[0]
    assert not peer.is_closed
    with pytest.raises(RemoteError, match="no header 'method'"):
        caller(server.url, hello={"agent": 7})
    with pytest.raises(RemoteError, match="no method 'hallo'"):
        caller(server.url, hello={"agent": 7}, hello_headers={"method": "hallo"})


def test_representations(ends) -> None:
    pair = ends()
    assert repr(pair.near) == f"<MessagePeer {pair.near.id} open>"
    pair.near.close()
    assert repr(pair.near) == f"<MessagePeer {pair.near.id} closed>"


def test_a_port_of_the_kernels_choice_is_told(clock) -> None:
    server = serve("127.0.0.1", 0, clock=clock)
    try:
        assert server.port > 0
    finally:
        server.drain(0.0)
