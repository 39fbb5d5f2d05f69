"""C39: a host may move, so its name is resolved on each dial, and every address is tried."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import gevent
import pytest
from gevent import socket as gevent_socket

from muxws_green import Peer, Reconnect, connect
from tests.cases.green import green, until
from tests.transports.raw import PATIENCE

pytestmark = pytest.mark.case("C39")

RETRY = Reconnect(initial_delay=0.01, factor=1.0, jitter=0.0)


class Resolver:
    """Answers with one list of addresses after another, and then with the last again and again."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.asked: list[tuple[str, int]] = []

    def __call__(self, host: str, port: int, *rest: Any) -> list[Any]:
        self.asked.append((host, port))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", place)) for place in answer]


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Resolver:
    resolver = Resolver()
    monkeypatch.setattr(gevent_socket, "getaddrinfo", resolver)
    return resolver


@pytest.fixture
def dead_port() -> Iterator[int]:
    """A port that refuses."""
    with gevent_socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]


def drop(peer: Peer) -> None:
    assert peer._link is not None
    peer._link.transport.abort()


def test_a_dead_address_is_passed_over(resolver: Resolver, dead_port: int) -> None:
    with green() as site:
        resolver.answers = [[dead_port, dead_port, site.server.server_port]]
        with connect("ws://moving.example:81/ws", heartbeat=None) as peer:
            assert peer.request(1, timeout=PATIENCE) == 1
    assert resolver.asked == [("moving.example", 81)]


@pytest.mark.parametrize("meanwhile", ["nothing", "dead", "unknown"])
def test_a_host_that_has_moved_is_found(resolver: Resolver, dead_port: int, meanwhile: str) -> None:
    """Whatever the name means while it moves, an address that is not served, or nothing at all."""
    between: dict[str, list[Any]] = {
        "nothing": [],
        "dead": [[dead_port], [dead_port, dead_port]],
        "unknown": [socket.gaierror(socket.EAI_AGAIN, "try again"), socket.gaierror(socket.EAI_NONAME, "not known")],
    }
    with green() as first, green() as second:
        resolver.answers = [[first.server.server_port], *between[meanwhile], [second.server.server_port]]
        came_back: list[int] = []

        def note(attempt: int, peer: Peer) -> None:
            came_back.append(attempt)

        with connect("ws://moving.example/ws", heartbeat=None, reconnect=RETRY, on_reconnect=note) as peer:
            assert peer.request("here", timeout=PATIENCE) == "here"
            drop(peer)
            until(lambda: came_back, "it has not come back")
            assert peer.request("there", timeout=PATIENCE) == "there"
        assert (first.handled, second.handled) == (["here"], ["there"])
    assert len(resolver.asked) == 2 + len(between[meanwhile])


def test_each_loss_asks_again(resolver: Resolver) -> None:
    with green() as first, green() as second:
        ports = [first.server.server_port, second.server.server_port]
        resolver.answers = [[port] for port in ports * 3]
        with connect("ws://moving.example/ws", heartbeat=None, reconnect=RETRY) as peer:
            for number in range(6):
                with gevent.Timeout(PATIENCE):
                    ask_until_taken(peer.request, number)
                drop(peer)
        assert (first.handled, second.handled) == ([0, 2, 4], [1, 3, 5])


def ask_until_taken(request: Callable[[Any], Any], value: Any) -> None:
    until(lambda: _answer(request, value) == value)


def _answer(request: Callable[[Any], Any], value: Any) -> Any:
    from muxws_green import ConnectionLost

    try:
        return request(value)
    except ConnectionLost:
        return None
