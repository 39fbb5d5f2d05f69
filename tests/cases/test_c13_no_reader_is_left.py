"""C13: when the request ends, nobody reads or writes its socket any more."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import gevent
import pytest

from muxws_green import ConnectionLost, Peer, Reconnect, connect
from tests.alive import alive
from tests.cases.green import SERVERS, green, until
from tests.transports.raw import PATIENCE

pytestmark = [pytest.mark.case("C13"), pytest.mark.slow, pytest.mark.leaks]

CONNECTIONS = 200


def own_greenlets() -> list[str]:
    """Those of the library that have not ended."""
    return [
        each.name
        for each in alive(gevent.Greenlet)
        if not each.dead
        and each.name.startswith(("reader ", "writer ", "heartbeat ", "handler ", "parting ", "callbacks "))
    ]


def inside(peer: Peer) -> None:
    peer.close(drain=0.5)


def elsewhere(peer: Peer) -> None:
    gevent.spawn(peer.close, drain=0.5)


def in_a_callback(peer: Peer) -> None:
    peer.on_close(lambda reason: peer.close())
    peer.close()


def and_raise(peer: Peer) -> None:
    peer.close()
    raise LookupError("after the close")


def abruptly(peer: Peer) -> None:
    assert peer._link is not None
    peer._link.transport.abort()


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("close", [inside, elsewhere, in_a_callback, and_raise, abruptly])
def test_a_server_closes_from_inside_a_handler_again_and_again(
    kind: str, close: Callable[[Peer], None], caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    def handler(payload: Any, stream: Any) -> None:
        if close is not abruptly:
            stream.reply(payload)
        close(site.peers[-1])

    with green(handler, kind=kind, ping_interval=20.0) as site:
        count = CONNECTIONS if close is inside else CONNECTIONS // 5
        for number in range(count):
            told: list[Any] = []
            peer = connect(site.url, heartbeat=None, reconnect=Reconnect(max_attempts=0), on_close=told.append)
            if close is abruptly:
                with pytest.raises(ConnectionLost):
                    peer.request(number, timeout=PATIENCE)
            else:
                assert peer.request(number, timeout=PATIENCE) == number
            until(told.copy)
            assert told[0].code == (1006 if close is abruptly else 1000)
        until(lambda: not own_greenlets(), "greenlets of ended connections live on")
    assert len(site.closes) == count
    assert capfd.readouterr().err == ""
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
