"""Document A, "Giving up": when the Supervisor stops by itself, and when it is stopped, in whatever it is at."""

from __future__ import annotations

import gevent
import pytest

from muxws_green import CloseReason, ConnectionLost, Peer, Reconnect, connect
from muxws_green.runtime.supervisor import SupervisorState
from tests.seeds.phases import PHASES, Phase
from tests.seeds.scripted import Wire, drops_hello, mute, never_acknowledges, outcome, polite, resets_hello

seed = pytest.mark.seed


def limited(attempts: int) -> Reconnect:
    return Reconnect(jitter=0.0, max_attempts=attempts)


@seed("A: fires on_close once with will_retry false and does not dial again")
@seed("A: The previous socket loss reported will_retry true")
@pytest.mark.parametrize("attempts", [1, 2, 5])
def test_attempts_that_fail_to_dial(clock, raw_server, dial, attempts) -> None:
    server = raw_server(polite)
    told: list[CloseReason] = []
    errors: list[Exception] = []

    def judge(error: Exception) -> bool:
        errors.append(error)
        return True

    peer = dial(server.url, hello=1, reconnect=limited(attempts), on_close=told.append, retry_if=judge)
    server.refuse()
    server.last.reset()
    clock.advance(300.0)
    assert len(errors) == attempts
    assert [reason.will_retry for reason in told] == [True, False]
    assert told[1] == CloseReason(1006, f"gave up reconnecting after {attempts} attempts", False, False)
    assert peer.is_closed
    assert peer.supervisor.state is SupervisorState.GIVEN_UP
    # A server that comes back afterwards is not dialled.
    server.open()
    clock.advance(3_000.0)
    assert len(server.wires) == 1
    assert len(told) == 2


@seed("A: fires on_close once with will_retry false and does not dial again")
@seed("A: At most one will_retry=False close is fired per peer")
@pytest.mark.parametrize("script", [resets_hello, drops_hello, never_acknowledges])
@pytest.mark.parametrize("attempts", [1, 3])
def test_attempts_that_fail_in_the_hello(clock, raw_server, dial, script, attempts) -> None:
    """Each of them is a loss of its own; the last one says that nothing follows, and nothing does."""
    server = raw_server(polite, script)
    told: list[CloseReason] = []
    peer = dial(server.url, hello=1, hello_timeout=1.0, reconnect=limited(attempts), on_close=told.append)
    server.wires[0].reset()
    clock.advance(300.0)
    assert len(server.wires) == 1 + attempts
    assert [reason.will_retry for reason in told] == [True] * attempts + [False]
    assert peer.is_closed
    assert peer.supervisor.state is SupervisorState.GIVEN_UP


@seed("A: At most one will_retry=False close is fired per peer")
@seed("A: The previous socket loss reported will_retry true")
@pytest.mark.parametrize(
    "ends, expected",
    [
        ("hd", [True, True, False]),
        ("dh", [True, False]),
        ("hh", [True, True, False]),
        ("dd", [True, False]),
    ],
)
def test_every_order_of_the_last_two_failures(clock, raw_server, dial, ends, expected) -> None:
    """`h`: it fails in its hello, which is a loss; `d`: it fails to dial, which is none."""
    steps = {"h": resets_hello, "d": lambda wire: wire.connection.answer("HTTP/1.1 503 Away\nContent-Length: 0")}

    def upgraded(script):
        def run(wire: Wire) -> None:
            if script is not steps["d"]:
                wire.upgrade()
            script(wire)

        return run

    server = raw_server(upgraded(polite), *(upgraded(steps[end]) for end in ends), upgrade=False)
    told: list[CloseReason] = []
    peer = dial(server.url, hello=1, reconnect=limited(2), on_close=told.append)
    server.wires[0].reset()
    clock.advance(300.0)
    assert len(server.wires) == 3
    assert [reason.will_retry for reason in told] == expected
    assert peer.is_closed


@seed("A: fires on_close once with will_retry false and does not dial again")
def test_no_attempt_at_all(clock, raw_server, dial) -> None:
    server = raw_server(polite)
    told: list[CloseReason] = []
    peer = dial(server.url, hello=1, reconnect=limited(0), on_close=told.append)
    server.last.reset()
    clock.advance(300.0)
    assert [reason.will_retry for reason in told] == [False]
    assert peer.is_closed
    assert peer.supervisor.state is SupervisorState.GIVEN_UP
    assert len(server.wires) == 1


@seed("A: fires on_close once with will_retry false and does not dial again")
def test_an_established_connection_gives_all_attempts_back(clock, raw_server, dial) -> None:
    server = raw_server(polite, resets_hello, resets_hello, polite, resets_hello, resets_hello, polite)
    told: list[CloseReason] = []
    peer = dial(server.url, hello=1, reconnect=limited(3), on_close=told.append)
    for _ in range(2):
        server.last.reset()
        clock.advance(60.0)
        assert peer.is_open
    assert len(server.wires) == 7
    assert all(reason.will_retry for reason in told)


@seed("A: fires on_close once with will_retry false and does not dial again")
def test_an_error_that_the_application_calls_permanent(clock, raw_server, dial) -> None:
    server = raw_server(polite, resets_hello)
    told: list[CloseReason] = []
    errors: list[Exception] = []

    def judge(error: Exception) -> bool:
        errors.append(error)
        return len(errors) < 3

    peer = dial(server.url, hello=1, retry_if=judge, on_close=told.append)
    server.wires[0].reset()
    clock.advance(300.0)
    assert len(server.wires) == 4
    assert [reason.will_retry for reason in told] == [True, True, True, True, False]
    assert "StreamRefused" in told[-1].reason
    assert peer.supervisor.state is SupervisorState.GIVEN_UP
    assert peer.supervisor.last_error is errors[-1]


@seed("A: At most one will_retry=False close is fired per peer")
def test_whatever_comes_after_the_end(clock, raw_server, dial) -> None:
    server = raw_server(polite)
    told: list[CloseReason] = []
    peer = dial(server.url, hello=1, reconnect=limited(1), on_close=told.append)
    server.refuse()
    server.last.reset()
    clock.advance(60.0)
    assert [reason.will_retry for reason in told] == [True, False]
    for _ in range(2):
        peer.close()
    assert not peer.reconnect_now()
    clock.advance(60.0)
    assert len(told) == 2
    # Who comes late is told at once, and once.
    late: list[CloseReason] = []
    peer.on_close(late.append)
    assert late == [told[-1]]
    clock.advance(60.0)
    assert late == [told[-1]]


@seed("A: At most one will_retry=False close is fired per peer")
@pytest.mark.parametrize("script", [polite, mute])
def test_a_loss_in_the_middle_of_a_close(clock, raw_server, dial, script) -> None:
    """Both would be the last: the socket that dies, and the close that was waiting for it."""
    server = raw_server(script)
    told: list[CloseReason] = []
    peer = dial(server.url, hello=1, on_close=told.append)
    peer.open("a stream to drain")
    closing = outcome(peer.close)
    with clock.held():
        clock.settle()
        server.last.reset()
        clock.settle()
        assert closing.dead
    clock.advance(60.0)
    assert [reason.will_retry for reason in told] == [False]
    assert len(server.wires) == 1


@seed("A: peer.close() also stops the helper")
@seed("A: marks the peer as closing before any other step")
@pytest.mark.leaks
def test_a_close_in_the_backoff(clock, raw_server, dial) -> None:
    server = raw_server(polite)
    told: list[CloseReason] = []
    peer = dial(server.url, hello=1, on_close=told.append, reconnect=Reconnect(initial_delay=30.0, jitter=0.0))
    server.last.reset()
    clock.advance(10.0)
    assert peer.supervisor.state == "backing_off"
    assert not peer.is_closed
    with clock.held():
        peer.close(reason="enough")
    assert peer.is_closed
    assert clock.now() == 10.0
    assert peer.supervisor.state is SupervisorState.STOPPED
    assert peer.supervisor.next_delay is None
    clock.advance(3_000.0)
    assert len(server.wires) == 1
    assert [reason.will_retry for reason in told] == [True, False]
    assert told[-1] == CloseReason(1000, "enough", True, False)


@seed("A: marks the peer as closing before any other step")
def test_a_close_at_the_very_moment_of_the_dial(clock, raw_server, dial) -> None:
    """Both timers are for the same time, in either order; the close comes first or the dial is undone."""
    for order in ("before", "after"):
        server = raw_server(polite)
        peer = dial(server.url, hello=1)
        if order == "before":
            clock.call_later(0.25, lambda peer=peer: gevent.spawn(peer.close))
        server.last.reset()
        clock.settle()
        if order == "after":
            clock.call_later(0.25, lambda peer=peer: gevent.spawn(peer.close))
        clock.advance(60.0)
        assert peer.is_closed
        assert all(wire.over.is_set() for wire in server.wires)
        assert [len(wire.log) for wire in server.wires[1:]] in ([], [0])


@seed("A: ends that attempt: a socket the dial returns afterwards is closed without being used")
@seed("A: peer.close() also stops the helper")
@pytest.mark.leaks
@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.name)
def test_a_close_in_any_phase(clock, dial, phase: Phase, tmp_path) -> None:
    with phase.enter(clock, dial, tmp_path) as (peer, far):
        told: list[CloseReason] = []
        back: list[int] = []
        peer.on_close(told.append)
        peer.on_reconnect(lambda attempt, peer: back.append(attempt))
        dials = far.dials()
        assert peer.supervisor.state == phase.state
        assert not peer.is_closed or phase.name == "given up"
        began = clock.now()
        peer.close()
        took = clock.now() - began
        # What nobody answers gets a second to leave and a second to be answered.
        assert took <= phase.bound
        assert peer.is_closed
        assert not peer.is_open
        with pytest.raises(ConnectionLost):
            peer.open()
        # Whatever the server says now is too late.
        far.go_on()
        clock.advance(300.0)
        assert not peer.is_open
        assert back == []
        assert far.dials() == dials
        assert [reason.will_retry for reason in told] == [False]
        assert far.all_closed()


@seed("A: ends that attempt: a socket the dial returns afterwards is closed without being used")
def test_a_socket_that_the_dial_returns_afterwards(clock, raw_server, dial, monkeypatch) -> None:
    """The dial has succeeded, and whoever waits for it has not run yet when close is called."""
    from muxws_green.transports.dialer import Dialer

    original = Dialer.dial
    holder: list[Peer] = []

    def late(self):
        transport = original(self)
        if holder:
            holder[0].close()
        return transport

    server = raw_server(polite)
    peer = dial(server.url, hello=1)
    monkeypatch.setattr(Dialer, "dial", late)
    holder.append(peer)
    server.last.reset()
    clock.advance(60.0)
    assert len(server.wires) == 2
    assert server.wires[1].log == []
    assert server.wires[1].close_code == 1000
    assert peer.is_closed


@seed("A: peer.close() also stops the helper")
def test_connect_gives_nothing_back_that_was_closed(clock, raw_server) -> None:
    server = raw_server(polite)
    with clock.held():
        peer = connect(server.url, hello=1, clock=clock)
        peer.close()
        peer.close()
    assert peer.is_closed
    assert server.last.close_code == 1000
