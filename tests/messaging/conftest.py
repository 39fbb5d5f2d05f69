"""A server and clients of named calls, over fake time and real sockets; whatever a test makes is stopped behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import gevent
import pytest

from muxws_green.messaging import MessagePeer, MessageServer, ReconnectingClient, connect, serve
from muxws_green.testing import FakeClock

#: What the tests' clients set unless they are about just that.
EXACT = {"jitter": 0.0}


@pytest.fixture(autouse=True)
def _bounded() -> Iterator[None]:
    """A bound for each test that needs no stack of every greenlet to be understood."""
    with gevent.Timeout(30):
        yield


class Service:
    """A server of named calls that can be taken away and brought back on its port.

    Attributes:
        peers: Every message peer that `setup` was called with, in order.
    """

    def __init__(
        self, clock: FakeClock, setup: Callable[[MessagePeer], object] | None, options: dict[str, Any]
    ) -> None:
        self.peers: list[MessagePeer] = []
        self._clock = clock
        self._setup = setup
        self._options = {"heartbeat_interval": None, **options}
        self._server: MessageServer | None = None
        self.port = 0
        self.open()

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/"

    def open(self) -> None:
        """Listen, on the same port as before."""
        self._server = serve("127.0.0.1", self.port, self._connected, clock=self._clock, **self._options)
        self.port = self._server.port

    def stop(self) -> None:
        """End every connection and listen no more."""
        if self._server is not None:
            self._server.drain(0.0)
            self._server = None

    def _connected(self, peer: MessagePeer) -> None:
        self.peers.append(peer)
        if self._setup is not None:
            self._setup(peer)


@pytest.fixture
def service(clock: FakeClock) -> Iterator[Callable[..., Service]]:
    """Makes a `Service` of a `setup` and options of `serve`; no heartbeat of its own unless asked for."""
    services: list[Service] = []

    def make(setup: Callable[[MessagePeer], object] | None = None, **options: Any) -> Service:
        services.append(Service(clock, setup, options))
        return services[-1]

    yield make
    for each in services:
        each.stop()


@pytest.fixture
def client(clock: FakeClock) -> Iterator[Callable[..., ReconnectingClient]]:
    """Makes a `ReconnectingClient` that is not started; no jitter and no heartbeat unless asked for."""
    clients: list[ReconnectingClient] = []

    def make(url: str, **options: Any) -> ReconnectingClient:
        options = {**EXACT, "heartbeat_interval": None, "clock": clock, **options}
        clients.append(ReconnectingClient(url, **options))
        return clients[-1]

    yield make
    for each in clients:
        each.stop(drain=0.0)


@pytest.fixture
def caller(clock: FakeClock) -> Iterator[Callable[..., MessagePeer]]:
    """`messaging.connect` in fake time, without any of it passing; no heartbeat unless asked for."""
    peers: list[MessagePeer] = []

    def dial(url: str, setup: Callable[[MessagePeer], object] | None = None, **options: Any) -> MessagePeer:
        with clock.held():
            peers.append(connect(url, setup, **{"heartbeat_interval": None, "clock": clock, **options}))
        return peers[-1]

    yield dial
    for each in peers:
        each.close(drain=0.0)


@dataclass(frozen=True)
class Ends:
    """Two message peers that are connected; `near` is the one under test."""

    near: MessagePeer
    far: MessagePeer


@pytest.fixture(params=["dialer", "acceptor"])
def ends(
    request: pytest.FixtureRequest,
    clock: FakeClock,
    service: Callable[..., Service],
    caller: Callable[..., MessagePeer],
) -> Callable[..., Ends]:
    """Makes a pair, of which either the dialer or the acceptor is near; `near` and `far` are the `setup` of each."""

    def make(
        far: Callable[[MessagePeer], object] | None = None,
        near: Callable[[MessagePeer], object] | None = None,
        **options: Any,
    ) -> Ends:
        of_dialer, of_acceptor = (near, far) if request.param == "dialer" else (far, near)
        server = service(of_acceptor, **options)
        dialer = caller(server.url, of_dialer, **options)
        clock.settle()
        (acceptor,) = server.peers
        return Ends(dialer, acceptor) if request.param == "dialer" else Ends(acceptor, dialer)

    return make
