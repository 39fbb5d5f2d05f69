"""Fixtures over fake time and real sockets, for every test that wants them: a dialer, and servers to dial."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from gevent.pywsgi import WSGIServer

from muxws_green import Peer, Reconnect, WSGIApp, connect
from muxws_green.runtime.supervisor import Supervisor
from muxws_green.testing import FakeClock
from tests.seeds.scripted import RawClient, RawServer, Script

#: The schedule of most tests: exact.
EXACT = Reconnect(jitter=0.0)


@pytest.fixture
def clock() -> Iterator[FakeClock]:
    """Fake time. It jumps while the test waits for something, and moves in `advance`."""
    with FakeClock() as clock:
        yield clock


@pytest.fixture
def dial(clock: FakeClock) -> Iterator[Callable[..., Peer]]:
    """`connect` in fake time, without any of it passing; what it returned is closed when the test is over.

    The backoff is exact unless the test says otherwise.
    """
    peers: list[Peer] = []

    def dial(url: str, **options: Any) -> Peer:
        with clock.held():
            peer = connect(url, clock=clock, **{"reconnect": EXACT, **options})
        peers.append(peer)
        return peer

    yield dial
    for peer in peers:
        peer.close(drain=0.0)


@pytest.fixture
def raw_server(clock: FakeClock) -> Iterator[Callable[..., RawServer]]:
    """Makes a `RawServer` of scripts."""
    servers: list[RawServer] = []

    def make(*scripts: Script, **options: Any) -> RawServer:
        servers.append(RawServer(clock, *scripts, **options))
        return servers[-1]

    yield make
    for server in servers:
        server.stop()


@pytest.fixture
def raw_client(clock: FakeClock) -> Iterator[Callable[..., RawClient]]:
    """Makes a `RawClient` of a URL."""
    clients: list[RawClient] = []

    def make(url: str, **options: Any) -> RawClient:
        with clock.held():
            clients.append(RawClient(url, clock, **options))
        return clients[-1]

    yield make
    for client in clients:
        client.stop()


def supervisor_of(peer: Peer) -> Supervisor:
    """A dialer's Supervisor."""
    assert peer.supervisor is not None
    return peer.supervisor


def cut(peer: Peer) -> None:
    """Let the peer's present socket die without a close frame."""
    assert peer._link is not None
    peer._link.transport.abort()


class GreenServer:
    """This library behind gevent's own WSGI server."""

    def __init__(self, app: WSGIApp) -> None:
        self.app = app
        #: Every peer that was accepted, in order.
        self.accepted: list[Peer] = []
        self._server = WSGIServer(("127.0.0.1", 0), app, log=None)
        self._server.start()
        self.port = self._server.server_port

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/"

    @property
    def peer(self) -> Peer:
        """The one peer that is connected now."""
        (peer,) = self.app.peers
        return peer

    def stop(self) -> None:
        """Stop listening and cut every connection."""
        self._server.stop(timeout=0)


@pytest.fixture
def green_server(clock: FakeClock) -> Iterator[Callable[..., GreenServer]]:
    """Makes a `GreenServer` of a handler and the options of `WSGIApp`; no heartbeat of its own unless asked for."""
    servers: list[GreenServer] = []

    def make(handler: Callable[..., Any], **options: Any) -> GreenServer:
        options = {"heartbeat": None, "clock": clock, **options}
        if {"ping_interval", "ping_timeout"} & options.keys():
            del options["heartbeat"]
        on_connect = options.pop("on_connect", None)

        def connected(peer: Peer) -> None:
            server.accepted.append(peer)
            if on_connect is not None:
                on_connect(peer)

        server = GreenServer(WSGIApp(handler, on_connect=connected, **options))
        servers.append(server)
        return server

    yield make
    for server in servers:
        server.stop()
