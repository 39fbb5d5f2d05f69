"""C36: one deadline over names, TCP, TLS and the upgrade, on the first dial and on every redial."""

from __future__ import annotations

import pytest

from muxws_green import CloseReason, connect
from tests.seeds.scripted import Wire, polite

pytestmark = pytest.mark.case("C36")

DEADLINE = 2.0


def mute(clock):
    return lambda wire: None


def half_a_status_line(clock):
    def script(wire: Wire) -> None:
        wire.connection.read_request()
        wire.sock.sendall(b"HTTP/1.1 10")

    return script


def dribbles(clock):
    """A byte each 0.2 s, for ever: each of them alone would be in time."""

    def script(wire: Wire) -> None:
        wire.connection.read_request()
        wire.sock.sendall(b"HTTP/1.1 101 Switching Protocols\r\nX: ")
        while True:
            clock.sleep(0.2)
            wire.sock.sendall(b"x")

    return script


SCRIPTS = pytest.mark.parametrize("make", [mute, half_a_status_line, dribbles])


def upgraded(wire: Wire) -> None:
    wire.upgrade()
    polite(wire)


@SCRIPTS
def test_the_first_dial(clock, raw_server, make) -> None:
    server = raw_server(make(clock), upgrade=False)
    with pytest.raises(TimeoutError) as info:
        connect(server.url, open_timeout=DEADLINE, clock=clock)
    assert clock.now() == DEADLINE
    assert str(DEADLINE) in str(info.value)


@SCRIPTS
def test_a_redial_is_a_failed_attempt(clock, raw_server, dial, make) -> None:
    server = raw_server(upgraded, make(clock), upgrade=False)
    told: list[CloseReason] = []
    peer = dial(server.url, hello=1, open_timeout=DEADLINE, on_close=told.append)
    server.wires[0].reset()
    clock.advance(0.25 + DEADLINE + 0.5 + DEADLINE)
    assert server.dials == [0.0, 0.25, 0.25 + DEADLINE + 0.5]
    assert peer.supervisor.attempt == 2
    assert isinstance(peer.supervisor.last_error, TimeoutError)
    # A dial that brought no socket is no loss of one.
    assert len(told) == 1


def test_a_listener_that_does_not_accept(clock, raw_server) -> None:
    """Its queue is full, so that not even TCP answers."""
    server = raw_server(upgraded, upgrade=False)
    with server.full():
        began = clock.now()
        with pytest.raises(TimeoutError):
            connect(server.url, open_timeout=DEADLINE, clock=clock)
        assert clock.now() - began == DEADLINE
