"""Real servers in processes of their own that die, freeze and come back, in real time; and who comes back to them.

No test here depends on how fast the machine is: waits are bounded generously, and of durations only lower bounds are
looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import gevent
import pytest
from gevent.event import Event
from gevent.queue import Queue

from muxws_green import CloseReason, ConnectionLost, HeartbeatTimeoutError, Peer, Reconnect, connect
from tests.processes.child import PATIENCE, Child, ServerChild, children
from tests.seeds.scripted import outcome

__all__ = ["children"]

pytestmark = [pytest.mark.slow, pytest.mark.watchdog(120)]

seed = pytest.mark.seed

#: Quick enough for a test, and still a schedule.
QUICK = Reconnect(initial_delay=0.05, factor=1.5, max_delay=0.3, jitter=0.2)

DIALERS = 200


class Client:
    """A dialer of ours, and what it is told."""

    def __init__(self, url: str, **options: Any) -> None:
        self.closes: Queue[CloseReason] = Queue()
        self.returns: Queue[int] = Queue()
        self.peer = connect(
            url,
            **{
                "reconnect": QUICK,
                "on_close": self.closes.put,
                "on_reconnect": lambda attempt, peer: self.returns.put(attempt),
                **options,
            },
        )

    def lost(self) -> CloseReason:
        return self.closes.get(timeout=PATIENCE)

    def back(self) -> int:
        return self.returns.get(timeout=PATIENCE)


@pytest.fixture
def clients() -> Iterator[list[Client]]:
    clients: list[Client] = []
    yield clients
    for client in clients:
        client.peer.close(drain=0.0)


@pytest.mark.parametrize("kind", ["ours", "reference"])
@seed("A: fires once per re-established connection")
def test_a_server_that_is_killed_and_restarted(children, clients, kind) -> None:
    server = ServerChild(kind)
    children.append(server)
    client = Client(server.url, hello={"agent": 7}, hello_headers={"kind": "green"})
    clients.append(client)
    peer = client.peer
    ids = [peer.id]
    assert peer.request("before", timeout=PATIENCE) == "before"
    for attempt in (1, 2):
        held = peer.open("held")
        server.kill()
        reason = client.lost()
        assert (reason.code, reason.was_clean, reason.will_retry) == (1006, False, True)
        assert not peer.is_open
        with pytest.raises(ConnectionLost):
            peer.request("while it is down", timeout=PATIENCE)
        assert held.closed.is_set()
        server.restart()
        assert client.back() == attempt
        assert peer.is_open
        assert peer.request(f"after {attempt}", timeout=PATIENCE) == f"after {attempt}"
        ids.append(peer.id)
    assert len(set(ids)) == 3
    assert client.closes.empty()
    assert client.returns.empty()


@pytest.mark.parametrize("kind", ["ours", "reference"])
@seed("A: detected within ping_interval + ping_timeout, 30 seconds")
def test_a_server_that_freezes_and_goes_on(children, clients, kind) -> None:
    """Frozen, its kernel still takes connections and bytes; nobody in it answers."""
    server = ServerChild(kind)
    children.append(server)
    client = Client(
        server.url, hello={"agent": 7}, ping_interval=0.3, ping_timeout=0.3, open_timeout=0.5, hello_timeout=0.5
    )
    clients.append(client)
    peer = client.peer
    server.child.freeze()
    waiting = outcome(peer.request, "never answered")
    reason = client.lost()
    assert (reason.code, reason.will_retry) == (1006, True)
    assert isinstance(peer.close_cause, HeartbeatTimeoutError)
    gevent.wait([waiting], timeout=PATIENCE)
    assert isinstance(waiting.value, ConnectionLost)
    assert waiting.value.__cause__ is peer.close_cause
    # Dials into a frozen process come to nothing, and count.
    supervisor = peer.supervisor
    assert supervisor is not None
    with gevent.Timeout(PATIENCE):
        while supervisor.attempt < 2:
            gevent.sleep(0.01)
    assert not peer.is_open
    server.child.thaw()
    assert client.back() == 1
    assert peer.request("thawed", timeout=PATIENCE) == "thawed"
    assert supervisor.attempt == 0


@seed("A: accepts every socket immediately and then fails or does not answer the hello")
@seed("A: The counter is not reset when the socket opens")
def test_a_server_that_never_acknowledges(children, clients) -> None:
    """The gaps between dials grow, by the server's own log."""
    server = ServerChild("first-only")
    children.append(server)
    schedule = Reconnect(initial_delay=0.05, factor=2.0, max_delay=60.0, jitter=0.0)
    client = Client(server.url, hello=1, reconnect=schedule, hello_timeout=0.05)
    clients.append(client)
    server.child.said("dial")
    client.peer._link.transport.abort()  # type: ignore[union-attr]
    dials = [server.child.said("dial")["dial"] for _ in range(5)]
    gaps = [after - before for before, after in pairwise(dials)]
    # No timer fires early: each gap holds the wait for the acknowledgement, and a delay twice the one before.
    waits = [0.05 + 0.05 * 2.0**attempt for attempt in range(1, 5)]
    assert all(gap >= wait - 0.005 for gap, wait in zip(gaps, waits, strict=True)), (gaps, waits)
    assert client.returns.empty()
    assert not client.peer.is_open
    assert client.peer.supervisor.attempt >= 4  # type: ignore[union-attr]


class Recording:
    """A schedule that remembers what it was asked and said."""

    def __init__(self, schedule: Reconnect) -> None:
        self.delays: list[float] = []
        self._schedule = schedule

    def delay(self, attempts: int, draw: Any) -> float:
        delay = self._schedule.delay(attempts, draw)
        self.delays.append(delay)
        return delay

    def should_retry(self, attempts: int) -> bool:
        return self._schedule.should_retry(attempts)


@seed("A: applied to every computed delay, including capped ones")
def test_two_hundred_dialers_lose_their_server_at_once(children, clients) -> None:
    """Their redials are spread over the time that the jitter gives, and all of them come back."""
    server = ServerChild("ours")
    children.append(server)
    schedules = [Recording(Reconnect()) for _ in range(DIALERS)]
    clients.extend(Client(server.url, hello=n, reconnect=schedule) for n, schedule in enumerate(schedules))
    server.kill()
    for client in clients:
        assert client.lost().will_retry
    server.restart()
    for client in clients:
        assert client.back() == 1
    firsts = [schedule.delays[0] for schedule in schedules]
    assert all(0.25 * 0.7 <= delay <= 0.25 * 1.3 for delay in firsts)
    assert len(set(firsts)) > DIALERS // 2
    # In each tenth of the spread some come back; without jitter nine tenths would be empty.
    tenths = {int((delay - 0.175) / 0.015) for delay in firsts}
    assert len(tenths & set(range(10))) >= 8
    for n, client in enumerate(clients):
        assert client.peer.request(n, timeout=PATIENCE) == n


@seed("A: identical bytes each time")
def test_the_same_hello_for_every_incarnation_of_the_server(children, clients) -> None:
    server = ServerChild("greets")
    children.append(server)
    hello = {"tab": "t-1", "topics": ["orders", "ü"], "limit": 1.5}
    client = Client(server.url, hello=hello, hello_headers={"client": "dashboard", "a": 1})
    clients.append(client)
    hellos = [server.child.said("hello")["hello"]]
    for attempt in (1, 2, 3):
        # Nobody looks at what was passed any more.
        hello["tab"] = f"changed {attempt}"
        server.kill()
        client.lost()
        server.restart()
        assert client.back() == attempt
        hellos.append(server.child.said("hello")["hello"])
    assert len(hellos) == 4
    assert len(set(hellos)) == 1
    assert '"tab":"t-1"' in hellos[0]


@pytest.mark.interop
@seed("A: identical bytes each time")
@seed("A: Delivered to the acceptor's on_stream handler")
def test_the_reference_is_told_the_same_hello_each_time(children, clients) -> None:
    server = ServerChild("reference")
    children.append(server)
    client = Client(server.url, hello={"agent": [7, None]}, hello_headers={"kind": "green"})
    clients.append(client)
    for attempt in (1, 2, 3):
        assert server.child.said("hello") == {"hello": {"agent": [7, None]}, "headers": {"kind": "green"}}
        if attempt == 3:
            break
        server.kill()
        client.lost()
        server.restart()
        assert client.back() == attempt


@pytest.mark.interop
@seed("A: Acknowledged when that handler returns")
def test_a_dialer_of_the_references_comes_back_to_our_server(children) -> None:
    server = ServerChild("ours")
    children.append(server)
    client = Child("tests.processes.reference_client", server.url)
    children.append(client)
    assert client.said("connected") == {"connected": "first"}
    for attempt in (1, 2):
        server.kill()
        closed = client.said("closed")
        assert closed["will_retry"] is True
        server.restart()
        assert client.said("reconnected") == {"reconnected": attempt, "answer": f"call {attempt}"}


def test_a_server_that_is_gone_for_good(children, clients) -> None:
    server = ServerChild("ours")
    children.append(server)
    over = Event()

    def closed(reason: CloseReason) -> None:
        client.closes.put(reason)
        if not reason.will_retry:
            over.set()

    schedule = Reconnect(initial_delay=0.05, max_attempts=3)
    client = Client(server.url, hello=1, reconnect=schedule, on_close=None)
    clients.append(client)
    peer: Peer = client.peer
    peer.on_close(closed)
    server.kill()
    assert over.wait(PATIENCE)
    assert [client.lost().will_retry for _ in range(2)] == [True, False]
    assert peer.is_closed
    assert peer.supervisor is not None
    assert peer.supervisor.state == "given_up"
    server.restart()
    gevent.idle()
    assert not peer.is_open
