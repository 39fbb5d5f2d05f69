"""A real server behind a bad network, in real time: one direction fails, and our client finds out and comes back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from gevent.queue import Queue

from muxws_green import CloseReason, ConnectionLost, HeartbeatTimeoutError, Reconnect, connect
from muxws_green.testing.relay import Relay
from tests.processes.child import PATIENCE, ServerChild, children
from tests.seeds.scripted import outcome

__all__ = ["children"]

pytestmark = [pytest.mark.slow, pytest.mark.watchdog(120)]

seed = pytest.mark.seed


@pytest.fixture
def relay(children) -> Iterator[Relay]:
    server = ServerChild("ours")
    children.append(server)
    with Relay(server.url) as relay:
        yield relay


@pytest.mark.parametrize("direction", ["to_server", "to_client", "both"])
@pytest.mark.parametrize("fault", ["drop", "stall"])
@seed("A: detected within ping_interval + ping_timeout, 30 seconds")
@seed("A: follows the same code path as a clean close")
def test_a_direction_that_fails(relay: Relay, direction: str, fault: str) -> None:
    """Neither end is told anything: what is sent is lost on the way, or never leaves it."""
    closes: Queue[CloseReason] = Queue()
    returns: Queue[int] = Queue()
    peer = connect(
        relay.url,
        hello={"agent": 7},
        ping_interval=0.2,
        ping_timeout=0.3,
        reconnect=Reconnect(initial_delay=0.05, jitter=0.0),
        on_close=closes.put,
        on_reconnect=lambda attempt, peer: returns.put(attempt),
    )
    try:
        assert peer.request("before", timeout=PATIENCE) == "before"
        (first,) = relay.connections
        # Of this connection alone: the next one finds the network mended.
        getattr(getattr(first, direction), fault)()
        waiting = outcome(peer.request, "lost on the way")
        reason = closes.get(timeout=PATIENCE)
        assert (reason.code, reason.was_clean, reason.will_retry) == (1006, False, True)
        assert isinstance(peer.close_cause, HeartbeatTimeoutError)
        assert isinstance(waiting.value, ConnectionLost)
        assert returns.get(timeout=PATIENCE) == 1
        assert len(relay.connections) == 2
        assert peer.request("after", timeout=PATIENCE) == "after"
    finally:
        peer.close(drain=0.0)


@pytest.mark.parametrize("end", ["reset", "cut"])
@seed("A: fires once per re-established connection")
def test_a_connection_that_the_network_ends(relay: Relay, end: str) -> None:
    closes: Queue[CloseReason] = Queue()
    returns: Queue[int] = Queue()
    peer = connect(
        relay.url,
        hello={"agent": 7},
        reconnect=Reconnect(initial_delay=0.05),
        on_close=closes.put,
        on_reconnect=lambda attempt, peer: returns.put(attempt),
    )
    try:
        for attempt in (1, 2, 3):
            getattr(relay, end)()
            assert closes.get(timeout=PATIENCE).code == 1006
            assert returns.get(timeout=PATIENCE) == attempt
            assert peer.request(attempt, timeout=PATIENCE) == attempt
    finally:
        peer.close(drain=0.0)


@seed("A: accepts every socket immediately and then fails or does not answer the hello")
def test_a_balancer_whose_backend_is_down(relay: Relay) -> None:
    """It accepts and hangs up, again and again; what is behind it never sees those dials."""
    returns: Queue[int] = Queue()
    failures: Queue[Exception] = Queue()

    def judge(error: Exception) -> bool:
        failures.put(error)
        return True

    peer = connect(
        relay.url,
        hello={"agent": 7},
        reconnect=Reconnect(initial_delay=0.05, factor=2.0, jitter=0.0),
        retry_if=judge,
        on_reconnect=lambda attempt, peer: returns.put(attempt),
    )
    try:
        relay.hang_up()
        relay.reset()
        for _ in range(5):
            assert isinstance(failures.get(timeout=PATIENCE), OSError)
        # No timer fires early: each delay is twice the one before.
        waits = [0.05 * 2.0**attempt for attempt in range(5)]
        assert all(gap >= wait - 0.005 for gap, wait in zip(relay.gaps[1:], waits[1:], strict=False)), relay.gaps
        assert returns.empty()
        relay.admit()
        assert returns.get(timeout=PATIENCE) == 1
        assert peer.request("mended", timeout=PATIENCE) == "mended"
    finally:
        peer.close(drain=0.0)
