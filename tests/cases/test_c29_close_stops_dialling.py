"""C29: `close()` in any phase stops dialling for good, and leaves nothing of ours running."""

from __future__ import annotations

import gevent
import pytest

from muxws_green import CloseReason
from tests.seeds.phases import PHASES, Phase
from tests.seeds.scripted import outcome, polite

pytestmark = [pytest.mark.case("C29"), pytest.mark.leaks]

#: How long the listener is watched, in (fake) seconds.
WATCHED = 3.0


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.name)
def test_two_greenlets_close_in_any_phase(clock, dial, phase: Phase, tmp_path) -> None:
    with phase.enter(clock, dial, tmp_path) as (peer, far):
        told: list[CloseReason] = []
        peer.on_close(told.append)
        dials = far.dials()
        began = clock.now()
        closers = [outcome(peer.close) for _ in range(2)]
        gevent.joinall(closers, timeout=10.0)
        assert [closer.value for closer in closers] == [None, None]
        assert clock.now() - began <= phase.bound
        far.go_on()
        clock.advance(WATCHED)
        assert far.dials() == dials
        assert [reason.will_retry for reason in told] == [False]
        assert peer.is_closed
        assert far.all_closed()


@pytest.mark.slow
def test_closing_a_hundred_dialers_that_wait(clock, raw_server, dial) -> None:
    """All in their backoff, closed in one turn of the hub: not one of them comes back."""
    server = raw_server(polite)
    peers = [dial(server.url, hello=n) for n in range(100)]
    for wire in server.wires:
        wire.reset()
    clock.settle()
    for peer in peers:
        peer.close()
    clock.advance(WATCHED)
    assert len(server.wires) == 100
    assert all(peer.is_closed for peer in peers)
