"""C69: NaN and the infinities are refused at the sender's call; from a remote they are a message that is none."""

from __future__ import annotations

import math

import pytest

from muxws_green import ResetCode, connect
from muxws_green.testing import RawServer
from tests.serving import PATIENCE, Served, client

pytestmark = pytest.mark.case("C69")

VALUES = [math.nan, math.inf, -math.inf]


@pytest.mark.parametrize("value", VALUES)
def test_they_never_leave(value):
    with RawServer() as server, connect(server.url, heartbeat=None, codec="json") as peer:
        raw = server.accept()
        stream = peer.open("first")
        refused = [
            lambda: peer.open(value),
            lambda: peer.request({"deep": [value]}),
            lambda: peer.open(headers={"n": value}),
            lambda: stream.send(value),
            lambda: stream.end(trailers={"n": value}),
            lambda: stream.end([value]),
        ]
        for call in refused:
            with pytest.raises(ValueError, match=r"."):
                call()
        stream.send("second")
        peer.open("another", end=True)
        seen = sorted((frame.stream, frame.payload) for frame in (raw.receive(PATIENCE) for _ in range(3)))
        assert seen == [(1, "first"), (1, "second"), (3, "another")]
        stream.cancel()
        raw.close()


@pytest.mark.parametrize("token", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize("field", ["payload", "headers"])
def test_from_a_remote_they_end_the_connection(token, field):
    ran = []
    value = token if field == "payload" else f'{{"n": {token}}}'
    with Served(lambda payload, stream: ran.append(payload), codec="json") as served, client(served) as raw:
        raw.send_frame(1, f'{{"type": "open", "stream": 1, "{field}": {value}, "end": true}}'.encode())
        raw.expect("goaway", code=ResetCode.PROTOCOL_ERROR)
        raw.expect_close(1002)
    assert ran == []
