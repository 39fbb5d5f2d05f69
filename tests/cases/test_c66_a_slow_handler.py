"""C66: a handler that stands still, and does not read, holds up no other stream and no ping."""

from __future__ import annotations

import pytest
from gevent.event import Event

from muxws_green import connect
from tests.serving import PATIENCE, Served
from tests.transports.raw import client_context


@pytest.mark.case("C66")
@pytest.mark.parametrize("kind", ["tcp", "tls", "unix"])
def test_the_others_go_on(kind):
    entered, release = Event(), Event()

    def handler(payload, stream):
        if payload == "slow":
            entered.set()
            assert release.wait(PATIENCE)
            stream.reply(sum(len(row) for row in stream))
        else:
            stream.reply(payload)

    options = {} if kind != "tls" else {"ssl_context": client_context()}
    with Served(handler, kind) as served, connect(served.url, heartbeat=None, **options) as peer:
        slow = peer.open("slow")
        assert entered.wait(PATIENCE)
        for _ in range(10):
            slow.send("x" * 100_000)
        others = [peer.open(number, end=True) for number in range(49)]
        assert [stream.result(PATIENCE) for stream in others] == list(range(49))
        assert peer.ping(PATIENCE) < PATIENCE
        assert served.peer.ping(PATIENCE) < PATIENCE
        # All of that happened while it stood still.
        assert not release.is_set()
        assert not slow.closed.is_set()
        release.set()
        slow.end()
        assert slow.result(PATIENCE) == 1_000_000
