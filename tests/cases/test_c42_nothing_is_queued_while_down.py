"""C42: while there is no socket calls raise, and the next socket sees nothing of them."""

from __future__ import annotations

import pytest

from muxws_green import ConnectionLost
from tests.seeds.scripted import Wire, polite

pytestmark = pytest.mark.case("C42")


@pytest.mark.parametrize("hello", [None, "greeting"])
def test_calls_in_the_backoff(clock, raw_server, dial, hello) -> None:
    server = raw_server(polite if hello else Wire.serve)
    peer = dial(server.url, hello=hello)
    stream = peer.open("before")
    with_backlog = peer.open("with a backlog")
    clock.settle()
    server.last.reset()
    # The loss has not been noticed yet: what is queued now dies with the socket.
    assert peer.is_open
    peer.open("open")
    peer.notify("notify")
    stream.send("send")
    clock.settle()
    assert not peer.is_open
    calls = [
        lambda: peer.open("open"),
        lambda: peer.open("open", wait=False),
        lambda: peer.request("request"),
        lambda: peer.notify("notify"),
        lambda: stream.send("send"),
        lambda: with_backlog.end("end"),
    ]
    for _ in range(3):
        for call in calls:
            with pytest.raises(ConnectionLost):
                call()
        clock.advance(0.05)
    clock.advance(60.0)
    assert peer.is_open
    assert [frame.get("payload") for _, frame in server.last.log if frame["type"] != "ping"] == (
        [hello] if hello else []
    )
