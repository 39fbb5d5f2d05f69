"""What keeps a dialer connected, where the requirement documents leave off: odd orders, kills, calls from inside."""

from __future__ import annotations

import math

import gevent
import pytest
from gevent.event import Event

from muxws_green import (
    CloseReason,
    ConnectionClosed,
    ConnectionLost,
    ProtocolError,
    Reconnect,
    StreamRefused,
    connect,
)
from muxws_green.api.dialing import keep_connected
from muxws_green.runtime.supervisor import Supervisor, SupervisorState
from muxws_green.transports.dialer import Dialer
from tests.alive import alive
from tests.seeds.phases import PHASES, Phase
from tests.seeds.scripted import Wire, drops_hello, never_acknowledges, outcome, polite, resets_hello


def supervisor_greenlets() -> list[gevent.Greenlet]:
    return [found for found in alive(gevent.Greenlet) if not found.dead and found.name.startswith("supervisor ")]


# The first dial


def test_a_first_dial_that_fails_tells_nobody_but_the_caller(clock) -> None:
    told: list[CloseReason] = []
    with pytest.raises(OSError, match="refused"):
        connect("ws://127.0.0.1:9/", clock=clock, on_close=told.append)
    clock.settle()
    assert told == []


@pytest.mark.parametrize("script", [resets_hello, drops_hello])
def test_a_first_hello_that_fails_tells_nobody_but_the_caller(clock, raw_server, script) -> None:
    told: list[CloseReason] = []
    server = raw_server(script)
    with pytest.raises(StreamRefused if script is resets_hello else ConnectionLost), clock.held():
        connect(server.url, hello=1, clock=clock, on_close=told.append)
    clock.advance(60.0)
    assert told == []
    assert len(server.wires) == 1
    assert server.last.over.is_set()


def test_what_is_thrown_into_connect_comes_out_at_once_and_ends_the_attempt(clock, raw_server) -> None:
    told: list[CloseReason] = []
    server = raw_server(never_acknowledges)
    caller = outcome(connect, server.url, hello=1, clock=clock, on_close=told.append)
    with clock.held():
        clock.settle()
        own = gevent.Timeout()
        caller.kill(own, block=False)
        clock.settle()
        assert caller.value is own
        assert server.last.over.is_set()
        assert server.last.close_code == 1000
    clock.advance(60.0)
    assert told == []
    assert len(server.wires) == 1


def test_connect_in_a_callback_of_the_hub_says_so(clock, raw_server) -> None:
    server = raw_server(polite)
    raised: list[BaseException] = []

    def call() -> None:
        try:
            connect(server.url, clock=clock)
        except BaseException as error:
            raised.append(error)

    gevent.get_hub().loop.run_callback(call)
    clock.settle()
    (error,) = raised
    assert isinstance(error, RuntimeError)
    assert "a callback of the hub must not wait" in str(error)


def test_many_may_wait_for_the_first_connection(clock, raw_server) -> None:
    server = raw_server(polite)
    peer = keep_connected(server.url, on_established=lambda session: None, hello=1, clock=clock)
    assert peer.supervisor is not None
    waiting = [outcome(peer.supervisor.wait_first) for _ in range(3)]
    clock.settle()
    assert peer.is_open
    assert [(each.dead, each.value) for each in waiting] == [(True, None)] * 3
    peer.close(drain=0.0)


@pytest.mark.parametrize("delay", [math.nan, 0.0, 2.5])
def test_a_policy_that_makes_a_delay_of_nan_dials_at_once(clock, raw_server, delay) -> None:
    class Odd(Reconnect):
        def delay(self, attempts, draw):
            return delay

    server = raw_server(polite)
    peer = connect(server.url, hello=1, clock=clock, reconnect=Odd())
    server.last.drop()
    if delay == 2.5:
        clock.settle()
        assert len(server.wires) == 1
        clock.advance(2.5)
    clock.settle()
    assert len(server.wires) == 2
    assert peer.is_open
    peer.close(drain=0.0)


def test_a_supervisor_killed_in_its_first_attempt_lets_connect_raise(clock, raw_server) -> None:
    server = raw_server(never_acknowledges)
    before = supervisor_greenlets()
    caller = outcome(connect, server.url, hello=1, clock=clock)
    with clock.held():
        clock.settle()
        (greenlet,) = [found for found in supervisor_greenlets() if found not in before]
        greenlet.kill(block=False)
        clock.settle()
        assert isinstance(caller.value, ConnectionClosed)
        assert server.last.over.is_set()


def test_so_does_one_that_was_killed_before_it_ran(clock, raw_server, monkeypatch) -> None:
    def start_and_kill(supervisor: Supervisor) -> None:
        start(supervisor)
        supervisor.greenlet.kill(block=False)

    start = Supervisor.start
    monkeypatch.setattr(Supervisor, "start", start_and_kill)
    server = raw_server(polite)
    caller = outcome(connect, server.url, clock=clock)
    with clock.held():
        clock.settle()
        assert isinstance(caller.value, ConnectionClosed)
    assert server.wires == []


@pytest.mark.parametrize("headers, error", [({"x": object()}, TypeError), ({"x": "y" * 70_000}, ProtocolError)])
@pytest.mark.parametrize("payload", [1, "z" * 70_000])
def test_hello_headers_that_cannot_be_sent_raise_before_anything_is_opened(
    clock, raw_server, headers, error, payload
) -> None:
    server = raw_server(polite)
    with pytest.raises(error):
        connect(server.url, hello=payload, hello_headers=headers, clock=clock)
    clock.settle()
    assert server.wires == []


# Attempts that fail in odd ways


def acknowledges_and_breaks_a_rule(wire: Wire) -> None:
    hello = wire.read()
    ack = f'{{"type":"data","stream":{hello["stream"]},"end":true}}'
    wire.send_texts(ack, '{"type":"data","stream":99}')
    wire.listen()


def breaks_a_rule(wire: Wire) -> None:
    wire.read()
    wire.send_texts('{"type":"data","stream":99}')
    wire.listen()


@pytest.mark.parametrize("script", [acknowledges_and_breaks_a_rule, breaks_a_rule])
def test_a_rule_broken_with_the_acknowledgement_is_a_failed_attempt(clock, raw_server, dial, script) -> None:
    server = raw_server(polite, script)
    told: list[CloseReason] = []
    back: list[int] = []
    peer = dial(server.url, hello=1, on_close=told.append, on_reconnect=lambda attempt, _: back.append(attempt))
    server.wires[0].reset()
    clock.advance(4.0)
    assert server.gaps == [0.25, 0.5, 1.0, 2.0]
    assert back == []
    assert peer.supervisor.attempt == 4
    # The remote is told which rule it broke, and the peer's owner too.
    assert [wire.close_code for wire in server.wires[1:]] == [1002] * 4
    assert [frame["code"] for wire in server.wires[1:] for frame in wire.of("goaway")] == [3] * 4
    assert [reason.code for reason in told] == [1006, 1002, 1002, 1002, 1002]
    assert all(reason.will_retry for reason in told)


def test_retry_if_is_not_asked_after_close(clock, raw_server, dial) -> None:
    asked: list[Exception] = []
    server = raw_server(polite, never_acknowledges)

    def judge(error: Exception) -> bool:
        asked.append(error)
        return True

    peer = dial(server.url, hello=1, retry_if=judge)
    server.wires[0].reset()
    clock.advance(0.25)
    peer.close()
    clock.advance(60.0)
    assert asked == []
    assert len(server.wires) == 2


def test_retry_if_is_not_asked_where_the_dial_fails_in_the_turn_of_a_close(
    clock, raw_server, dial, monkeypatch
) -> None:
    asked: list[Exception] = []
    told: list[CloseReason] = []
    server = raw_server(polite)

    def judge(error: Exception) -> bool:
        asked.append(error)
        return False

    peer = dial(server.url, hello=1, retry_if=judge, on_close=told.append)

    def fails(self: Dialer) -> None:
        peer.close()
        raise OSError("just then")

    monkeypatch.setattr(Dialer, "dial", fails)
    server.last.reset()
    clock.advance(60.0)
    assert asked == []
    assert peer.supervisor.state is SupervisorState.STOPPED
    assert [reason.code for reason in told] == [1006, 1000]


def test_close_between_acknowledgement_and_established(clock, raw_server, dial) -> None:
    """The acknowledgement has been read, and whoever waits for it has not run yet."""
    server = raw_server(polite, acknowledges_and_pings)
    told: list[CloseReason] = []
    back: list[int] = []
    peer = dial(server.url, hello=1, on_close=told.append, on_reconnect=lambda attempt, _: back.append(attempt))

    @peer.on_frame
    def close_at_ping(direction: str, frame, size: int) -> None:
        if frame.type == "ping":
            peer.close(reason="enough")

    server.wires[0].reset()
    clock.advance(60.0)
    assert len(server.wires) == 2
    assert back == []
    assert [(reason.code, reason.will_retry) for reason in told] == [(1006, True), (1000, False)]
    assert told[-1].reason == "enough"
    assert server.last.close_code == 1000
    assert peer.supervisor.state is SupervisorState.STOPPED


def acknowledges_and_pings(wire: Wire) -> None:
    hello = wire.read()
    wire.send_texts(f'{{"type":"data","stream":{hello["stream"]},"end":true}}', '{"type":"ping","nonce":"n"}')
    wire.serve()


# What the application does in callbacks


@pytest.mark.parametrize("error", [ValueError, gevent.Timeout])
def test_callbacks_that_raise_are_logged_and_change_nothing(clock, raw_server, dial, caplog, error) -> None:
    told: list[str] = []

    def raises(*arguments: object) -> None:
        told.append("raised")
        raise error

    def judge(failure: Exception) -> bool:
        raises()
        return False

    server = raw_server(polite, resets_hello, polite)
    peer = dial(server.url, hello=1, on_close=raises, on_reconnect=raises, retry_if=judge)
    peer.on_close(lambda reason: told.append("close"))
    peer.on_reconnect(lambda attempt, peer: told.append("reconnect"))
    server.wires[0].reset()
    clock.advance(10.0)
    assert peer.is_open
    # The loss, the failed hello (and, who knows when, whether it is worth another try), and the return.
    assert [each for each in told if each != "raised"] == ["close", "close", "reconnect"]
    assert told.count("raised") == 4
    logged = [record.exc_info[0] for record in caplog.records if record.exc_info]
    assert logged == [error] * 4


# What it shows


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.name)
def test_what_a_peer_shows_in_each_phase(clock, dial, phase: Phase, tmp_path) -> None:
    with phase.enter(clock, dial, tmp_path) as (peer, far):
        supervisor = peer.supervisor
        assert supervisor.state == phase.state
        assert supervisor.next_delay == (0.25 if phase.name == "backing off" else None)
        assert supervisor.attempt == (1 if phase.name == "given up" else 0)
        assert peer.is_open is (phase.state == "established")
        assert peer.is_closed is (phase.name == "given up")
        assert (peer.close_cause is None) is (phase.name == "established")
        assert (supervisor.last_error is None) is (phase.name == "established")
        assert peer.stats.reconnects == (1 if phase.name == "established again" else 0)
        assert peer.ready() is peer.is_closed
        peer.close()
        assert supervisor.state == ("given_up" if phase.name == "given up" else "stopped")
        assert supervisor.next_delay is None
        assert not peer.is_open
        assert peer.is_closed
        assert peer.ready()
        assert peer.close_cause is not None
        far.go_on()


# Kills


def test_a_killed_supervisor_says_that_nothing_dials_any_more(clock, raw_server, dial) -> None:
    server = raw_server(polite)
    told: list[CloseReason] = []
    before = supervisor_greenlets()
    peer = dial(server.url, hello=1, on_close=told.append)
    (greenlet,) = [found for found in supervisor_greenlets() if found not in before]
    server.refuse()
    server.last.reset()
    clock.advance(1.0)
    greenlet.kill(block=False)
    clock.advance(60.0)
    assert [reason.will_retry for reason in told] == [True, False]
    assert peer.is_closed
    assert peer.supervisor.state is SupervisorState.STOPPED


def test_a_supervisor_killed_while_established_leaves_the_connection_alone(clock, raw_server, dial) -> None:
    server = raw_server(polite)
    told: list[CloseReason] = []
    before = supervisor_greenlets()
    peer = dial(server.url, hello=1, on_close=told.append)
    (greenlet,) = [found for found in supervisor_greenlets() if found not in before]
    greenlet.kill(block=False)
    clock.settle()
    assert peer.request("still here", timeout=1.0) == "still here"
    assert told == []
    server.last.reset()
    clock.advance(60.0)
    assert [reason.will_retry for reason in told] == [False]
    assert len(server.wires) == 1


@pytest.mark.parametrize("kill_before_start", [False, True])
def test_callbacks_behind_one_that_is_killed_still_run_in_order(clock, raw_server, dial, kill_before_start) -> None:
    server = raw_server(polite)
    peer = dial(server.url, hello=1)
    ran: list[str] = []

    @peer.on_close
    def hangs(reason: CloseReason) -> None:
        ran.append("a")
        if reason.will_retry:
            Event().wait()

    peer.on_close(lambda reason: ran.append("b"))
    peer.on_close(lambda reason: ran.append("c"))
    peer.on_reconnect(lambda attempt, peer: ran.append("back"))
    server.last.reset()
    clock.advance(1.0)
    assert ran == ["a"]
    greenlet = peer._callbacks._greenlet
    assert greenlet is not None
    greenlet.kill(block=False)
    if kill_before_start:
        # The one that takes over is killed before it has run.
        gevent.get_hub().loop.run_callback(lambda: peer._callbacks._greenlet.kill(block=False))
    clock.settle()
    assert ran == ["a", "b", "c", "back"]


# Schedules of one's own


class Fixed:
    """A backoff policy of the application's."""

    def __init__(self, *delays: float) -> None:
        self.delays = list(delays)
        self.asked: list[int] = []

    def delay(self, attempts: int, draw) -> float:
        self.asked.append(attempts)
        return self.delays[attempts]

    def should_retry(self, attempts: int) -> bool:
        return attempts < len(self.delays)


def test_a_policy_of_ones_own(clock, raw_server, dial) -> None:
    server = raw_server(polite, resets_hello)
    told: list[CloseReason] = []
    policy = Fixed(3.0, 1.0, 2.0)
    peer = dial(server.url, hello=1, reconnect=policy, on_close=told.append)
    server.wires[0].reset()
    clock.advance(60.0)
    assert policy.asked == [0, 1, 2]
    assert server.dials == [0.0, 3.0, 4.0, 6.0]
    assert [reason.will_retry for reason in told] == [True, True, True, False]
    assert peer.supervisor.state is SupervisorState.GIVEN_UP


def test_a_policy_that_raises_ends_the_peer_and_says_so(clock, raw_server, dial, expected_hub_errors) -> None:
    server = raw_server(polite)
    told: list[CloseReason] = []
    policy = Fixed(1.0)
    peer = dial(server.url, hello=1, reconnect=policy, on_close=told.append)
    policy.delays = [None]  # type: ignore[list-item]
    server.last.reset()
    clock.advance(60.0)
    assert [reason.will_retry for reason in told] == [True, False]
    assert peer.is_closed
    (error,) = expected_hub_errors
    assert isinstance(error.error, TypeError)


def test_an_infinite_delay_waits_for_reconnect_now(clock, raw_server, dial) -> None:
    server = raw_server(polite)
    peer = dial(server.url, hello=1, reconnect=Reconnect(initial_delay=1e308, factor=1e10, max_delay=float("inf")))
    server.refuse()
    server.last.reset()
    clock.advance(10.0)
    # The first delay is finite and after it come infinite ones.
    assert peer.supervisor.state is SupervisorState.BACKING_OFF
    assert peer.reconnect_now()
    clock.settle()
    assert peer.supervisor.next_delay == float("inf")
    clock.advance(1e9)
    server.open()
    assert peer.reconnect_now()
    clock.settle()
    assert peer.is_open


def test_reconnect_now_is_false_where_nothing_is_waited_for(clock, raw_server, dial) -> None:
    server = raw_server(polite, never_acknowledges, polite)
    peer = dial(server.url, hello=1, hello_timeout=1.0)
    assert not peer.reconnect_now()
    server.wires[0].reset()
    clock.settle()
    assert peer.reconnect_now()
    clock.settle()
    assert peer.supervisor.state is SupervisorState.CONNECTING
    assert not peer.reconnect_now()
    clock.advance(1.0)
    assert peer.supervisor.next_delay == 0.5
    peer.close()
    assert not peer.reconnect_now()


def test_attempts_hurried_on_count_like_any_other(clock, raw_server, dial) -> None:
    server = raw_server(polite, resets_hello)
    peer = dial(server.url, hello=1, reconnect=Reconnect(jitter=0.0, max_attempts=3))
    server.wires[0].reset()
    for attempt in range(3):
        clock.settle()
        assert peer.supervisor.attempt == attempt
        assert peer.reconnect_now()
    clock.settle()
    assert server.dials == [0.0] * 4
    assert peer.supervisor.state is SupervisorState.GIVEN_UP
