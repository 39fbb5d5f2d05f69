"""A dialer caught in each thing that its Supervisor can be at, over real sockets, with a server that will not go on.

A phase is entered from an established connection: it is lost, and the next attempt gets as far as the phase says.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gevent
from gevent import socket as gevent_socket
from gevent.event import Event

from muxws_green import Peer, Reconnect
from muxws_green.testing import FakeClock
from tests.seeds.scripted import Gone, RawServer, Wire, polite
from tests.transports.raw import client_context
from tests.transports.scripted import Connection, Scripted

#: The exact schedule; an attempt is worth making again for ever.
EXACT = Reconnect(jitter=0.0)


class Far:
    """What a test does with the server of a phase."""

    def __init__(self, dials: Callable[[], int], go_on: Callable[[], object], all_closed: Callable[[], bool]) -> None:
        #: How many connections have been accepted.
        self.dials = dials
        #: Let the server do what it had been keeping back.
        self.go_on = go_on
        #: Whether the client has closed every one of them.
        self.all_closed = all_closed


Enter = Callable[[FakeClock, Callable[..., Peer], Path], Any]


@dataclass(frozen=True)
class Phase:
    """One phase.

    Attributes:
        name: What the Supervisor is at.
        enter: A context manager that gives the peer, in the phase, and its `Far` end.
        state: The Supervisor's state in it.
        bound: Seconds that a close may take in it.
    """

    name: str
    enter: Enter
    state: str
    bound: float = 0.0


def _of_raw(server: RawServer, gate: Event | None = None) -> Far:
    return Far(
        lambda: len(server.wires),
        gate.set if gate is not None else lambda: None,
        lambda: all(wire.over.is_set() for wire in server.wires),
    )


def _held_back(at: str) -> Enter:
    """A server that answers nothing at a certain point until it is told to go on."""

    @contextmanager
    def enter(clock: FakeClock, dial: Callable[..., Peer], folder: Path) -> Iterator[tuple[Peer, Far]]:
        gate = Event()

        def first(wire: Wire) -> None:
            wire.upgrade()
            polite(wire)

        def next_one(wire: Wire) -> None:
            if at == "upgrade":
                wire.connection.read_request()
                gate.wait()
            wire.upgrade()
            if at == "hello":
                hello = wire.read()
                watcher = gevent.spawn(_tell_when_gone, wire)
                gate.wait()
                with contextlib.suppress(OSError):
                    wire.write("data", stream=hello["stream"], end=True)
                watcher.join()
            else:
                polite(wire)

        with RawServer(clock, first, next_one, upgrade=False) as server:
            peer = dial(server.url, hello=1, open_timeout=3_600.0, hello_timeout=3_600.0, heartbeat=None)
            server.last.reset()
            clock.advance(0.25)
            assert len(server.wires) == 2
            yield peer, _of_raw(server, gate)

    return enter


def _tell_when_gone(wire: Wire) -> None:
    with contextlib.suppress(Gone):
        wire.listen()


@contextmanager
def _established(clock: FakeClock, dial: Callable[..., Peer], folder: Path) -> Iterator[tuple[Peer, Far]]:
    with RawServer(clock, polite) as server:
        yield dial(server.url, hello=1), _of_raw(server)


@contextmanager
def _established_again(clock: FakeClock, dial: Callable[..., Peer], folder: Path) -> Iterator[tuple[Peer, Far]]:
    with RawServer(clock, polite) as server:
        peer = dial(server.url, hello=1)
        server.last.reset()
        clock.advance(1.0)
        yield peer, _of_raw(server)


@contextmanager
def _backing_off(clock: FakeClock, dial: Callable[..., Peer], folder: Path) -> Iterator[tuple[Peer, Far]]:
    with RawServer(clock, polite) as server:
        peer = dial(server.url, hello=1)
        server.last.reset()
        clock.settle()
        yield peer, _of_raw(server)


@contextmanager
def _given_up(clock: FakeClock, dial: Callable[..., Peer], folder: Path) -> Iterator[tuple[Peer, Far]]:
    with RawServer(clock, polite) as server:
        peer = dial(server.url, hello=1, reconnect=Reconnect(max_attempts=1, jitter=0.0))
        server.refuse()
        server.last.reset()
        clock.advance(10.0)
        server.open()
        yield peer, _of_raw(server)


@contextmanager
def _connecting(clock: FakeClock, dial: Callable[..., Peer], folder: Path) -> Iterator[tuple[Peer, Far]]:
    """The listener's queue is full, so that the kernel does not answer."""
    with RawServer(clock, polite) as server:
        peer = dial(server.url, hello=1, open_timeout=3_600.0)
        with server.full() as strangers:
            server.last.reset()
            clock.advance(0.25)
            late: list[int] = []
            yield (
                peer,
                Far(
                    lambda: len(server.wires) + sum(late),
                    lambda: late.append(strangers()),
                    lambda: server.last.over.is_set(),
                ),
            )


@contextmanager
def _resolving(clock: FakeClock, dial: Callable[..., Peer], folder: Path) -> Iterator[tuple[Peer, Far]]:
    """A name server that does not answer; the look-up sits in a thread of the hub's pool."""
    answer = threading.Event()
    original = gevent_socket.getaddrinfo
    pool = gevent.get_hub().threadpool

    asked: list[Any] = []

    def slow(*arguments: Any, **options: Any) -> Any:
        asked.append(arguments)
        pool.apply(answer.wait, (30.0,))
        return original(*arguments, **options)

    with RawServer(clock, polite) as server:
        peer = dial(server.url.replace("127.0.0.1", "localhost"), hello=1, open_timeout=3_600.0)
        vars(gevent_socket)["getaddrinfo"] = slow
        try:
            server.last.reset()
            with clock.held():
                clock.settle()
                peer.reconnect_now()
                while not asked:
                    gevent.sleep(0)
            yield peer, Far(lambda: len(server.wires), answer.set, lambda: all(w.over.is_set() for w in server.wires))
        finally:
            answer.set()
            vars(gevent_socket)["getaddrinfo"] = original


@contextmanager
def _encrypting(clock: FakeClock, dial: Callable[..., Peer], folder: Path) -> Iterator[tuple[Peer, Far]]:
    """Accepted, and then no word of TLS."""

    def first(connection: Connection) -> None:
        connection.upgrade()

    with Scripted(first, lambda connection: None, kind="tls") as server:
        peer = dial(server.url, ssl_context=client_context(), open_timeout=3_600.0, heartbeat=None)
        server.context = None
        server.connections[0].sock.close()
        clock.advance(0.25)
        assert len(server.connections) == 2
        _, silent = server.connections
        yield peer, Far(lambda: len(server.connections), lambda: None, silent.ended)


PHASES = [
    Phase("resolving the name", _resolving, "connecting"),
    Phase("connecting", _connecting, "connecting"),
    Phase("TLS", _encrypting, "connecting"),
    Phase("upgrade", _held_back("upgrade"), "connecting"),
    Phase("hello", _held_back("hello"), "connecting", bound=2.0),
    Phase("established", _established, "established"),
    Phase("established again", _established_again, "established"),
    Phase("backing off", _backing_off, "backing_off"),
    Phase("given up", _given_up, "given_up"),
]
