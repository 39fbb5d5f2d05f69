"""C30: `close()` between sockets does not wait for the backoff."""

from __future__ import annotations

import pytest

from muxws_green import CloseReason, Reconnect
from tests.seeds.scripted import polite

pytestmark = [pytest.mark.case("C30"), pytest.mark.leaks]


@pytest.mark.parametrize("waited", [0.0, 15.0])
def test_close_in_a_long_backoff_takes_no_time(clock, raw_server, dial, waited) -> None:
    server = raw_server(polite)
    told: list[CloseReason] = []
    peer = dial(server.url, hello=1, reconnect=Reconnect(initial_delay=30.0, jitter=0.0), on_close=told.append)
    server.last.reset()
    clock.settle()
    clock.advance(waited)
    assert peer.supervisor.next_delay == 30.0
    with clock.held():
        # No time can pass in here: were any of it waited for, this would never end.
        peer.close()
        clock.settle()
    assert peer.is_closed
    assert clock.now() == waited
    assert [reason.will_retry for reason in told] == [True, False]
    clock.advance(100.0)
    assert len(server.wires) == 1
