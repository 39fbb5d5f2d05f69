"""Document A, "The counter resets only on an established connection"."""

from __future__ import annotations

import ast
import inspect

import pytest

from muxws_green import CloseReason
from muxws_green.runtime import supervisor as supervisor_module
from tests.seeds.scripted import Wire, drops_hello, mute, never_acknowledges, polite, resets_hello

seed = pytest.mark.seed


def assignments(attribute: str) -> list[tuple[str, ast.AST]]:
    """The statements of the Supervisor that assign to `self.<attribute>`, with the method that each is in."""
    (tree,) = [
        node
        for node in ast.parse(inspect.getsource(supervisor_module)).body
        if isinstance(node, ast.ClassDef) and node.name == "Supervisor"
    ]
    found = []
    for method in [node for node in tree.body if isinstance(node, ast.FunctionDef)]:
        for node in ast.walk(method):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            if any(isinstance(target, ast.Attribute) and target.attr == attribute for target in targets):
                found.append((method.name, node))
    return found


@seed("A: reset at exactly one point in the code")
@seed("A: only one reset call site")
def test_the_counter_is_reset_in_one_place() -> None:
    places = assignments("attempt")
    # It begins at zero, grows in one place, and goes back to zero in one other.
    assert [name for name, node in places if isinstance(node, ast.Assign)] == ["__init__", "_establish"]
    assert [name for name, node in places if isinstance(node, ast.AugAssign)] == ["_connect_and_wait"]
    source = inspect.getsource(supervisor_module)
    assert source.count("self._establish(") == 1
    assert "setattr" not in source


@seed("A: only persistent state is one attempt counter")
def test_two_losses_apart_in_time_are_treated_alike(clock, raw_server, dial) -> None:
    """Whatever happened before the last established connection has left no trace."""
    server = raw_server(polite, resets_hello, resets_hello, polite)
    peer = dial(server.url, hello=1)
    server.wires[0].reset()
    clock.advance(60.0)
    assert server.gaps == [0.25, 0.5, 1.0]
    assert peer.is_open
    began = clock.now()
    server.scripts[:] = [resets_hello, resets_hello, polite]
    server.last.reset()
    clock.advance(60.0)
    assert [dialled - began for dialled in server.dials[4:]] == [0.25, 0.75, 1.75]


@seed("A: the socket is open with the muxws.v1.<codec> subprotocol accepted, and")
@seed("A: The counter is not reset when the socket opens")
def test_a_socket_without_the_subprotocol_resets_nothing(clock, raw_server, dial) -> None:
    def wrong(wire: Wire) -> None:
        wire.connection.upgrade(protocol="muxws.v1.msgpack")

    def right(wire: Wire) -> None:
        wire.upgrade()
        polite(wire)

    server = raw_server(right, wrong, upgrade=False)
    peer = dial(server.url, hello=1)
    server.wires[0].reset()
    clock.advance(4.0)
    assert server.gaps == [0.25, 0.5, 1.0, 2.0]
    assert peer.supervisor.attempt == 4


@seed("A: the hello has been acknowledged.")
@seed("A: The counter is not reset when the socket opens")
@seed("A: accepts every socket immediately and then fails or does not answer the hello")
@pytest.mark.parametrize("script", [resets_hello, drops_hello, Wire.drop, Wire.close, Wire.reset])
def test_a_listener_whose_backend_is_down_is_dialled_ever_more_rarely(clock, raw_server, dial, script) -> None:
    server = raw_server(polite, script)
    peer = dial(server.url, hello=1)
    server.wires[0].reset()
    clock.advance(64.0)
    assert server.gaps == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0]
    assert peer.supervisor.attempt == 8
    assert not peer.is_open


@seed("A: the hello has been acknowledged.")
@seed("A: accepts every socket immediately and then fails or does not answer the hello")
def test_a_hello_that_is_never_answered_counts_too(clock, raw_server, dial) -> None:
    server = raw_server(polite, never_acknowledges)
    dial(server.url, hello=1, hello_timeout=1.0)
    server.wires[0].reset()
    clock.advance(12.0)
    # The time in which the hello waits comes on top.
    assert server.gaps == [0.25, 1.5, 2.0, 3.0, 5.0]


@seed("A: opens a socket and then fails its hello is a failed attempt")
@pytest.mark.parametrize("script", [resets_hello, never_acknowledges, drops_hello])
def test_what_a_failed_hello_does(clock, raw_server, dial, script) -> None:
    server = raw_server(polite, script)
    told: list[CloseReason] = []
    back: list[int] = []
    peer = dial(
        server.url,
        hello=1,
        hello_timeout=1.0,
        on_close=told.append,
        on_reconnect=lambda attempt, peer: back.append(attempt),
    )
    supervisor = peer.supervisor
    server.wires[0].reset()
    clock.settle()
    assert supervisor.next_delay == 0.25
    clock.advance(0.25 if script is not never_acknowledges else 1.25)
    # The socket is closed, the loss is reported, the counter has grown, nobody was told of a reconnection,
    # and the next delay is longer.
    assert server.wires[1].over.is_set()
    if script is not drops_hello:
        assert server.wires[1].close_code == 1000
    assert [(reason.code, reason.was_clean, reason.will_retry) for reason in told] == [(1006, False, True)] * 2
    assert supervisor.attempt == 1
    assert supervisor.state == "backing_off"
    assert supervisor.last_error is not None
    assert back == []
    assert supervisor.next_delay == 0.5
    assert peer.close_cause is not None


@seed("A: the hello has been acknowledged.")
def test_an_established_connection_starts_over(clock, raw_server, dial) -> None:
    server = raw_server(polite, resets_hello, resets_hello, resets_hello, mute)
    peer = dial(server.url, hello=1)
    server.wires[0].reset()
    clock.advance(4.0)
    assert server.gaps == [0.25, 0.5, 1.0, 2.0]
    assert peer.supervisor.attempt == 0
    server.last.reset()
    clock.advance(0.25)
    assert server.gaps[-1] == 0.5
    assert len(server.dials) == 6


@seed("A: the hello has been acknowledged.")
def test_without_a_hello_the_open_socket_establishes(clock, raw_server, dial) -> None:
    """Nothing else can: there is no acknowledgement to wait for."""
    server = raw_server(Wire.serve)
    peer = dial(server.url)
    for _ in range(3):
        server.last.reset()
        clock.advance(0.25)
        assert peer.is_open
        assert peer.supervisor.attempt == 0
    assert server.gaps == [0.25, 0.25, 0.25]
