"""The monkey-patched application: hundreds of peers stay responsive while its handlers block, in all their ways.

What is compared are times of the same run, so that it does not matter how fast the machine is.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import gevent
import pytest

from muxws_green import Peer, Reconnect, connect
from tests.servers.process import ServerProcess, running_server
from tests.transports.raw import PATIENCE

pytestmark = [pytest.mark.slow, pytest.mark.watchdog(60)]

PEERS = 300

#: How long the inventory system and the web service take over each answer, in seconds.
SLOWNESS = 0.6

EXPECTED = {"stock": 1200, "price": 0.25, "report": 4950}


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server("servers/legacy_patched_app.py", "--port", "0", SLOWNESS=str(SLOWNESS)) as server:
        yield server


@pytest.fixture
def peers(server: ServerProcess) -> Iterator[list[Peer]]:
    peers: list[Peer] = []

    def dial() -> None:
        peers.append(connect(server.url, heartbeat=None, open_timeout=30.0, reconnect=Reconnect(max_attempts=0)))

    try:
        gevent.joinall([gevent.spawn(dial) for _ in range(PEERS)], timeout=30.0, raise_error=True)
        assert len(peers) == PEERS
        yield peers
    finally:
        gevent.joinall([gevent.spawn(peer.close, drain=0.0) for peer in peers], timeout=PATIENCE)


def ask(peer: Peer, do: str) -> Any:
    answer = peer.request({"do": do, "item": "bolts"}, timeout=50.0)
    assert answer == EXPECTED[do]
    return answer


def round_trips(peers: list[Peer], while_running: list[gevent.Greenlet[..., Any]]) -> list[float]:
    """Ping one peer after another until all of those have ended."""
    seconds = []
    number = 0
    while not all(each.ready() for each in while_running):
        seconds.append(peers[number % len(peers)].ping(timeout=30.0))
        number += 1
    gevent.joinall(while_running, raise_error=True)
    return sorted(seconds)


def test_each_kind_of_work_is_done(peers: list[Peer]) -> None:
    for do in EXPECTED:
        ask(peers[0], do)


def test_hundreds_of_blocking_handlers_wait_together(server: ServerProcess, peers: list[Peer]) -> None:
    begun = time.monotonic()
    ask(peers[0], "stock")
    alone = time.monotonic() - begun
    assert alone >= SLOWNESS
    begun = time.monotonic()
    running = [gevent.spawn(ask, peer, do) for peer in peers for do in ("stock", "price")]
    seconds = round_trips(peers, running)
    together = time.monotonic() - begun
    # One after another it would have taken six hundred times as long as one of them.
    assert together < 20 * alone
    # Meanwhile a ping takes a small part of what a handler blocks for, and so does an ordinary request.
    assert seconds[len(seconds) // 2] < SLOWNESS / 4
    assert len(seconds) > 10


def test_a_long_query_holds_up_nobody(server: ServerProcess, peers: list[Peer]) -> None:
    begun = time.monotonic()
    ask(peers[0], "report")
    alone = time.monotonic() - begun
    running = [gevent.spawn(ask, peer, "report") for peer in peers[:3]]
    seconds = round_trips(peers[3:], running)
    # Were the query run in the hub's own thread, a ping would take as long as a query.
    assert seconds[len(seconds) // 2] < alone / 4
    assert server.http("GET /").status == 200
