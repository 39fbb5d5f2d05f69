"""C12: deadlines live on waits, not on the socket: none of them cuts a frame that comes in pieces."""

from __future__ import annotations

import json
from typing import Any

import gevent
import pytest

from muxws_green import ConnectionClosed, StreamTimeout
from tests.seeds.scripted import Wire, polite
from tests.transports.raw import TEXT, frame

pytestmark = pytest.mark.case("C12")

PAYLOAD = "whole " * 2_000


def pieces(message: dict[str, Any], *, masked: bool) -> list[bytes]:
    """One message as three packets, the cuts inside its head and inside its payload."""
    data = frame(TEXT, json.dumps(message).encode(), masked=masked)
    return [data[:1], data[1:7_000], data[7_000:]]


@pytest.mark.parametrize("role", ["dialer", "acceptor"])
def test_waits_that_time_out_while_a_frame_arrives(clock, raw_server, green_server, raw_client, dial, role) -> None:
    wire: Wire
    if role == "dialer":
        wire_of = raw_server(Wire.listen)
        peer = dial(wire_of.url, heartbeat=None)
        wire = wire_of.last
    else:
        server = green_server(lambda payload, stream: None)
        wire = raw_client(server.url)
        clock.settle()
        peer = server.peer
    stream = peer.open("the one whose answer comes in pieces", end=True)
    answer = {"type": "data", "stream": stream.id, "payload": PAYLOAD, "end": True}
    for piece in pieces(answer, masked=role == "acceptor"):
        with pytest.raises(StreamTimeout):
            stream.receive(timeout=0)
        wire.sock.sendall(piece)
        # Before the next one several deadlines pass, of each kind that there is.
        for _ in range(2):
            with pytest.raises(StreamTimeout):
                peer.open("never answered").result(timeout=0.1)
            with pytest.raises(ConnectionClosed, match="no pong"):
                peer.ping(timeout=0.1)
    assert stream.receive(timeout=5.0) == PAYLOAD
    assert peer.is_open
    assert wire.close_code is None


def test_a_timeout_of_the_callers_own_cuts_nothing(clock, raw_server, dial) -> None:
    server = raw_server(polite)
    peer = dial(server.url, hello=1, heartbeat=None)
    waiting = peer.open("waiting")
    wire = server.last
    for n, piece in enumerate(pieces({"type": "data", "stream": waiting.id, "payload": PAYLOAD}, masked=False)):
        wire.sock.sendall(piece)
        other = peer.open(f"interrupted {n}")
        with clock.held():
            own = gevent.Timeout(0.01)
            with pytest.raises(gevent.Timeout) as info, own:
                other.result()
            assert info.value is own
        clock.advance(0.4)
    assert waiting.receive(timeout=1.0) == PAYLOAD
    assert peer.request("still here", timeout=1.0) == "still here"
