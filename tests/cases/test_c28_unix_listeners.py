"""C28: a Unix listener has many peers, whose addresses are all the same."""

from __future__ import annotations

import random
from pathlib import Path

import gevent
import pytest
from gevent import socket

from muxws_green import Peer, Reconnect, connect
from tests.cases.green import SERVERS, green, until
from tests.doors.doors import Door, served
from tests.transports.raw import PATIENCE

pytestmark = [pytest.mark.case("C28"), pytest.mark.slow]

PEERS = 20


def come_and_go(url: str) -> None:
    """Twenty peers that leave in an order of their own, each of which works as long as it is there."""
    peers = [connect(url, heartbeat=None, reconnect=Reconnect(max_attempts=0)) for _ in range(PEERS)]
    order = list(enumerate(peers))
    random.Random(28).shuffle(order)

    def works(peer: Peer, number: int) -> bool:
        return bool(peer.request({"do": "say", "value": number}, timeout=PATIENCE) == number)

    for place, (number, peer) in enumerate(order):
        assert all(works(other, other_number) for other_number, other in order[place:])
        if number % 3 == 0:
            peer.close()
        else:
            assert peer._link is not None
            peer._link.transport.abort(1001 if number % 3 == 1 else None)
    with gevent.Timeout(PATIENCE):
        gevent.wait(peers)


@pytest.mark.parametrize("kind", SERVERS)
def test_they_come_and_go(kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "s"))
    listener.listen()
    with green(lambda payload, stream: stream.reply(payload["value"]), kind=kind, listener=listener) as site:
        come_and_go(f"ws+unix://{tmp_path / 's'}:/ws")
        until(lambda: len(site.closes) == PEERS)
        assert not site.app.peers
    assert capfd.readouterr().err == ""


@pytest.mark.host
@pytest.mark.parametrize("host", ["gevent-websocket after", "gevent-websocket server after", "gevent-websocket hook"])
def test_also_behind_gevent_websocket(host: str, tmp_path: Path) -> None:
    # Its standard error must be empty when it ends.
    with served(Door(host, kind="unix"), tmp_path) as server:
        come_and_go(server.url())
