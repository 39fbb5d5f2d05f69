"""C34: clients that lost one server at one moment do not come back at one moment; at the cap neither."""

from __future__ import annotations

import random

import pytest

from muxws_green import Reconnect, backoff_delay
from tests.seeds.scripted import Wire, polite, resets_hello

pytestmark = pytest.mark.case("C34")

CLIENTS = 40


def test_forty_clients_lose_one_server(clock, raw_server, dial) -> None:
    server = raw_server(polite)
    for n in range(CLIENTS):
        dial(server.url, hello=n, reconnect=Reconnect())
    lost = clock.now()
    for wire in server.wires:
        wire.reset()
    clock.advance(0.5)
    returns = [at - lost for at in server.dials[CLIENTS:]]
    assert len(returns) == CLIENTS
    assert all(0.25 * 0.7 <= each <= 0.25 * 1.3 for each in returns)
    assert max(returns) - min(returns) >= 0.3 * 0.25
    assert len(set(returns)) > CLIENTS // 2


@pytest.mark.slow
def test_at_the_cap_they_are_spread_too(clock, raw_server, dial) -> None:
    def first(wire: Wire) -> None:
        (polite if len(server.wires) <= CLIENTS else resets_hello)(wire)

    server = raw_server(first)
    capped = Reconnect(initial_delay=10.0, max_delay=10.0)
    for n in range(CLIENTS):
        dial(server.url, hello=n, reconnect=capped)
    for wire in server.wires:
        wire.reset()
    clock.advance(26.5)
    # Those that came early are at their third attempt already; each of the first two was spread.
    seconds = [at for at in server.dials[CLIENTS:] if at > 14.0][:CLIENTS]
    assert max(seconds) - min(seconds) >= 0.3 * 10.0


def test_the_draw_is_all_that_differs() -> None:
    """A seeded one makes the whole schedule a pure function."""

    def schedule(seed: int) -> list[float]:
        source = random.Random(seed)
        return [backoff_delay(attempts, Reconnect(), lambda: source.uniform(-1.0, 1.0)) for attempts in range(10)]

    assert schedule(1) == schedule(1)
    assert schedule(1) != schedule(2)
    first = [schedule(seed)[0] for seed in range(200)]
    assert max(first) - min(first) >= 0.5 * 2 * 0.3 * 0.25
