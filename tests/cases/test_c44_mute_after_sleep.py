"""C44: a connection on which nothing moves any more is found dead in a bounded time, and dialled anew."""

from __future__ import annotations

import pytest

from muxws_green import CloseReason, CountingHeartbeat, HeartbeatTimeoutError, IdleHeartbeat
from tests.seeds.scripted import Wire, mute, polite

pytestmark = pytest.mark.case("C44")


def deaf_and_mute(wire: Wire) -> None:
    """The machine sleeps: it keeps its socket and does not even read."""
    wire.greet()


@pytest.mark.parametrize("script", [mute, deaf_and_mute])
@pytest.mark.parametrize(
    "policy", [IdleHeartbeat(interval=0.3, timeout=0.3), CountingHeartbeat(interval=0.15, max_missed=2)]
)
def test_a_server_that_falls_silent(clock, raw_server, dial, script, policy) -> None:
    server = raw_server(script, polite)
    told: list[tuple[float, CloseReason]] = []
    causes: list[object] = []
    peer = dial(server.url, hello=1, heartbeat=policy)

    @peer.on_close
    def lost(reason: CloseReason) -> None:
        told.append((clock.now(), reason))
        causes.append(peer.close_cause)

    clock.advance(0.9)
    ((at, reason),) = told
    assert at <= 0.3 + 0.3 + 0.3
    assert (reason.code, reason.will_retry) == (1006, True)
    assert isinstance(causes[0], HeartbeatTimeoutError)
    clock.advance(0.3)
    assert len(server.wires) == 2
    assert peer.is_open
    assert peer.request("awake", timeout=1.0) == "awake"


def test_time_that_passes_while_both_ends_sleep(clock, raw_server, dial) -> None:
    """This end's own machine was suspended for a night, and the other end has long forgotten it."""
    server = raw_server(mute, polite)
    peer = dial(server.url, hello=1)
    clock.jump(30_000.0)
    clock.advance(30.0 + 1.0)
    assert len(server.wires) == 2
    assert peer.is_open
