"""C07: a client masks what it sends and a server does not; whoever breaks that is closed with 1002, unheard."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import gevent
import pytest

from muxws_green import Reconnect, connect
from tests.cases.green import SERVERS, close_payload, green, opening, raw_close
from tests.transports.raw import BINARY, CLOSE, CONTINUATION, PING, TEXT, frame
from tests.transports.scripted import Scripted

pytestmark = pytest.mark.case("C07")


def frames(*, masked: bool, number: int) -> dict[str, bytes]:
    """What must not count, masked in the wrong way."""
    whole = opening(number, "never")
    return {
        "text": frame(TEXT, whole, masked=masked),
        "binary": frame(BINARY, whole, masked=masked),
        "ping": frame(PING, b"x", masked=masked),
        "close": frame(CLOSE, b"\x03\xe8", masked=masked),
        "second half": frame(TEXT, whole[:9], masked=not masked, fin=False)
        + frame(CONTINUATION, whole[9:], masked=masked),
        "empty": frame(TEXT, b"", masked=masked),
    }


@pytest.mark.parametrize("kind", SERVERS)
def test_unmasked_frames_of_a_client(kind: str) -> None:
    with green(kind=kind) as site:
        for what, data in frames(masked=False, number=1).items():
            end = site.open()
            begun = time.monotonic()
            end.sock.sendall(data)
            assert (what, close_payload(end)[:2]) == (what, b"\x03\xea")
            assert time.monotonic() - begun < 1.0
        assert site.handled == []


def test_masked_frames_of_a_server(tmp_path: Path) -> None:
    handled: list[Any] = []
    peers = []
    with Scripted(lambda connection: connection.upgrade()) as server:
        for what, data in frames(masked=True, number=2).items():
            peer = connect(
                server.url,
                heartbeat=None,
                reconnect=Reconnect(max_attempts=0),
                on_stream=lambda payload, stream: handled.append(payload),
            )
            peers.append(peer)
            raw = server.connections[-1].raw
            begun = time.monotonic()
            raw.sock.sendall(data)
            assert (what, raw_close(raw).close_code) == (what, 1002)
            assert time.monotonic() - begun < 1.0
        gevent.joinall([gevent.spawn(peer.close, drain=0.0) for peer in peers], timeout=5.0)
    assert handled == []
