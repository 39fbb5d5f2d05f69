"""Telling many peers one thing, over sockets: nobody waits for the slow, the dead, or those that are leaving."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gevent
import pytest
from gevent import socket as gevent_socket

from muxws_green import JsonCodec, Peer, PeerRegistry, Reconnect, Server, WSGIApp, connect
from tests.cases.green import until
from tests.hosts.client import exchange, head
from tests.transports.raw import PATIENCE, client_context, server_context

pytestmark = [pytest.mark.slow, pytest.mark.leaks]

GOOD = 9
ROUNDS = 60
PIECE = "x" * 60_000


class CountingCodec(JsonCodec):
    """Counts how many payloads it has encoded."""

    encoded = 0

    def encode_payload(self, value: Any) -> str:
        self.encoded += 1
        return super().encode_payload(value)


class Hub:
    """A server that registers whoever comes, and listeners that note what they are told."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.codec = CountingCodec()
        self.registry = PeerRegistry()
        self.kind = kind
        self.listener = gevent_socket.socket(socket.AF_UNIX if kind == "unix" else socket.AF_INET)
        # What the server's own sockets buffer for a client that does not read; a connection has it from its listener.
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
        self.listener.bind(str(folder / "s") if kind == "unix" else ("127.0.0.1", 0))
        self.listener.listen()
        security: dict[str, Any] = {"ssl_context": server_context()} if kind == "tls" else {}
        app = WSGIApp(None, on_connect=self._register, codec=self.codec, heartbeat=None, send_buffer_bytes=1_000_000)
        self.server = Server(self.listener, app, log=None, **security)
        self.server.start()
        self.dialled: list[Peer] = []
        self.raw: list[Any] = []

    def _register(self, peer: Peer) -> None:
        peer.tags["number"] = len(self.registry)
        self.registry.register(peer)

    @property
    def url(self) -> str:
        if self.kind == "unix":
            return f"ws+unix://{self.listener.getsockname()}:/"
        return f"{'wss' if self.kind == 'tls' else 'ws'}://localhost:{self.listener.getsockname()[1]}/"

    def listen(self) -> list[Any]:
        """Connect a listener; what it hears is in the list."""
        heard: list[Any] = []
        security: dict[str, Any] = {"ssl_context": client_context()} if self.kind == "tls" else {}
        self.dialled.append(
            connect(
                self.url,
                heartbeat=None,
                reconnect=Reconnect(max_attempts=0),
                max_concurrent_streams=1_000,
                on_stream=lambda payload, stream: heard.append(payload),
                **security,
            )
        )
        return heard

    def deaf(self) -> Any:
        """Connect somebody who never reads."""
        sock: Any = gevent_socket.socket(self.listener.family)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        sock.settimeout(PATIENCE)
        sock.connect(self.listener.getsockname())
        if self.kind == "tls":
            sock = client_context().wrap_socket(sock, server_hostname="localhost")
        self.raw.append(sock)
        assert exchange(sock, head()).status == 101
        return sock

    def end(self) -> None:
        for sock in self.raw:
            sock.close()
        gevent.joinall([gevent.spawn(peer.close, drain=0.0) for peer in self.dialled], timeout=PATIENCE)
        self.server.stop(timeout=0)


@pytest.fixture(params=["tcp", "tls", "unix"])
def hub(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Hub]:
    made = Hub(request.param, tmp_path)
    yield made
    made.end()


def test_one_that_does_not_read_is_skipped_and_nobody_else_notices(hub: Hub, caplog: pytest.LogCaptureFixture) -> None:
    heard = [hub.listen() for _ in range(GOOD)]
    hub.deaf()

    def all_have_heard(number: int) -> bool:
        return all(len(each) == number + 1 for each in heard)

    until(lambda: len(hub.registry) == GOOD + 1)
    skipped = 0
    for number in range(ROUNDS):
        told = hub.registry.notify_all([number, PIECE])
        assert told.queued + told.skipped == GOOD + 1
        assert told.closed == 0
        skipped += told.skipped
        # Those that do read have room again before the next round.
        until(partial(all_have_heard, number), f"round {number} is not heard")
    assert all([payload[0] for payload in each] == list(range(ROUNDS)) for each in heard)
    # The deaf one took what the kernel and its buffer hold, and no more.
    assert ROUNDS / 2 < skipped < ROUNDS
    assert hub.codec.encoded == ROUNDS
    (slow,) = [peer for peer in hub.registry.peers_for() if peer.stats.queued_bytes > 0]
    assert slow.is_open
    assert slow.stats.queued_bytes < 2_000_000
    # It is nothing to be told about each time.
    assert not caplog.records


def test_the_result_tells_what_became_of_each(hub: Hub) -> None:
    first, second, third = hub.listen(), hub.listen(), hub.listen()
    until(lambda: len(hub.registry) == 3)
    for told in (hub.registry.notify_all("all"), hub.registry.notify_all("all", {"some": "headers"})):
        assert (told.queued, told.skipped, told.closed) == (3, 0, 0)
    assert hub.registry.notify_all("one", number=1).queued == 1
    until(lambda: (len(first), len(second), len(third)) == (2, 3, 2))
    assert second == ["all", "all", "one"]
    # One is about to leave, and then it is nobody's any more.
    leaving = hub.registry.peers_for(number=2)[0]
    closing = gevent.spawn(leaving.close, drain=PATIENCE)
    gevent.sleep(0)
    told = hub.registry.notify_all("left")
    assert (told.queued, told.skipped, told.closed) == (2, 0, 1)
    closing.get(timeout=PATIENCE)
    until(lambda: len(hub.registry) == 2)
    told = hub.registry.notify_all("left")
    assert (told.queued, told.skipped, told.closed) == (2, 0, 0)
    with pytest.raises(ValueError, match=r"(?i)nan|json|float"):
        hub.registry.notify_all(float("nan"))
    until(lambda: (len(first), len(second)) == (4, 5))
    assert len(third) == 2


def test_whoever_has_vanished_is_gone_from_it(hub: Hub) -> None:
    heard = hub.listen()
    for _ in range(5):
        hub.deaf()
    until(lambda: len(hub.registry) == 6)
    for sock in hub.raw:
        sock.close()
    until(lambda: len(hub.registry) == 1, "those that are gone are still registered")
    told = hub.registry.notify_all("still here?")
    assert (told.queued, told.skipped, told.closed) == (1, 0, 0)
    until(lambda: heard)


def test_a_dialer_registers_again_when_it_is_back(hub: Hub) -> None:
    registry = PeerRegistry()
    security: dict[str, Any] = {"ssl_context": client_context()} if hub.kind == "tls" else {}
    peer = connect(
        hub.url,
        heartbeat=None,
        reconnect=Reconnect(initial_delay=0.01),
        on_reconnect=lambda attempt, peer: registry.register(peer),
        **security,
    )
    hub.dialled.append(peer)
    peer.tags["name"] = "a"
    registry.register(peer)
    assert registry.peers_for(name="a") == [peer]
    for accepted in hub.registry.peers_for():
        accepted.close(drain=0.0)
    until(lambda: not registry.peers_for(name="a"))
    until(lambda: registry.peers_for(name="a") == [peer], "it has not registered again")
