"""C33: the redial loop survives every value that its schedule can give."""

from __future__ import annotations

import pytest

from muxws_green import Reconnect, backoff_delay
from tests.seeds.scripted import polite

pytestmark = pytest.mark.case("C33")

SCHEDULES = [
    Reconnect(initial_delay=1.0, factor=1.0, max_delay=1.0, jitter=1.0),
    Reconnect(initial_delay=5.0, factor=2.0, max_delay=1.0, jitter=1.0),
    Reconnect(initial_delay=1e-300, factor=1.0, max_delay=0.0, jitter=0.0),
    Reconnect(initial_delay=1.0, factor=1e300, max_delay=2.0, jitter=0.5),
]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_five_cycles_of_good_and_drop(clock, raw_server, dial, schedule) -> None:
    server = raw_server(polite)
    back: list[int] = []
    peer = dial(server.url, hello=1, reconnect=schedule, on_reconnect=lambda attempt, peer: back.append(attempt))
    for _ in range(5):
        server.last.reset()
        clock.advance(10.0)
        assert peer.is_open
    assert back == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("attempts", [0, 1, 2, 1_023, 1_024, 100_000])
@pytest.mark.parametrize("drawn", [-1.0, 0.0, 0.999])
def test_the_delay_is_total(schedule, attempts, drawn) -> None:
    assert backoff_delay(attempts, schedule, lambda: drawn) >= 0.0


def test_a_long_outage_over_the_cap(clock, raw_server, dial) -> None:
    """A hundred failures in a row, and then the server is back."""
    server = raw_server(polite)
    errors: list[Exception] = []

    def judge(error: Exception) -> bool:
        errors.append(error)
        return True

    peer = dial(server.url, hello=1, reconnect=Reconnect(max_delay=0.25, jitter=0.0), retry_if=judge)
    server.refuse()
    server.last.reset()
    clock.settle()
    while len(errors) < 100:
        assert peer.reconnect_now()
        clock.settle()
    assert peer.supervisor.attempt == 100
    server.open()
    clock.advance(0.25)
    assert peer.is_open
