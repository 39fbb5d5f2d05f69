"""C19: a server that is told to stop says so to its peers, lets what runs finish, and is gone as soon as they are."""

from __future__ import annotations

import re
import signal
import time
from typing import Any

import pytest

from muxws_green import ConnectionGoingAway, Peer, Reconnect, connect
from tests.cases.green import until
from tests.interop.process import running
from tests.transports.raw import PATIENCE

pytestmark = [pytest.mark.case("C19"), pytest.mark.slow]

IDLE = 20


class Client:
    """A peer, and what it sees of the end."""

    def __init__(self, url: str) -> None:
        self.goaways: list[Any] = []
        self.told: list[Any] = []
        self.peer: Peer = connect(url, heartbeat=None, reconnect=Reconnect(max_attempts=0), on_close=self.told.append)
        self.peer.on_frame(self._watch)

    def _watch(self, direction: str, frame: Any, size: int) -> None:
        if (direction, frame.type) == ("rx", "goaway"):
            self.goaways.append(frame)


@pytest.mark.parametrize("via", ["server", "pywsgi", "gevent-websocket"])
def test_peers_are_told_and_streams_finish(via: str) -> None:
    with running("muxws_green.echo", "--port", "0", "--via", via) as server:
        (url,) = re.findall(r"ws://127\.0\.0\.1:\d+/", server.line().decode())
        clients = [Client(url) for _ in range(IDLE + 1)]
        busy = clients[0]
        stream = busy.peer.open("first")
        assert stream.receive(timeout=PATIENCE) == "first"
        begun = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        until(lambda: all(client.goaways for client in clients), "not everybody was told")
        with pytest.raises(ConnectionGoingAway):
            busy.peer.open("another")
        until(lambda: all(client.told for client in clients[1:]), "the idle ones are not closed")
        assert busy.told == []
        stream.send("last", end=True)
        assert list(stream) == ["last"]
        assert server.wait() == 0
        assert time.monotonic() - begun < 2.0
        until(lambda: busy.told)
        for client in clients:
            ((reason,), (goaway,)) = client.told, client.goaways
            assert (reason.code, goaway.code) == (1001, 0)
        assert server.errors() == ""


def test_a_client_that_stays_finds_the_next_server() -> None:
    """For a dialer a drain is a loss like any other: it dials again."""
    with running("muxws_green.echo", "--port", "0") as first:
        (url,) = re.findall(r"ws://127\.0\.0\.1:\d+/", first.line().decode())
        port = url.split(":")[2][:-1]
        came_back: list[int] = []
        with connect(
            url,
            heartbeat=None,
            reconnect=Reconnect(initial_delay=0.05, factor=1.0),
            on_reconnect=lambda attempt, peer: came_back.append(attempt),
        ) as peer:
            first.process.send_signal(signal.SIGTERM)
            assert first.wait() == 0
            with running("muxws_green.echo", "--port", port) as second:
                assert second.line()
                until(lambda: came_back, "it did not come back")
                assert peer.request("again", timeout=PATIENCE) == "again"
                peer.close(drain=0.0)
                second.process.terminate()
                assert second.wait() == 0
