"""C48: a big transfer on a slow line is no dead connection: pings overtake it, and bytes that move count."""

from __future__ import annotations

import sys

import pytest

from muxws_green import CloseReason, CountingHeartbeat, IdleHeartbeat
from tests.seeds.scripted import Wire

pytestmark = [
    pytest.mark.case("C48"),
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what has been acknowledged"),
]

LINE_BYTES_A_SECOND = 204_800
TRANSFER_BYTES = 4_000_000
NEAR_BYTES = 524_288


@pytest.mark.parametrize(
    "policy", [IdleHeartbeat(interval=1.0, timeout=1.0), CountingHeartbeat(interval=0.5, max_missed=1)]
)
@pytest.mark.parametrize("transfer", ["one payload", "many sends"])
def test_four_megabytes_and_a_heartbeat_of_a_second(clock, raw_server, dial, policy, transfer) -> None:
    read_at_ping: list[int] = []

    def slow(wire: Wire) -> None:
        wire.throttle = LINE_BYTES_A_SECOND
        while True:
            frame = wire.read()
            if frame["type"] == "ping":
                read_at_ping.append(sum(map(len, wire.texts)))
                wire.answer(frame)

    server = raw_server(slow, receive_buffer_bytes=65_536)
    told: list[CloseReason] = []
    peer = dial(server.url, heartbeat=policy, on_close=told.append)
    due_at: list[int] = []
    peer.on_frame(
        lambda direction, frame, size: due_at.append(sum(map(len, server.last.texts))) if frame.type == "ping" else None
    )
    stream = peer.open("bulk")
    if transfer == "one payload":
        stream.send("x" * TRANSFER_BYTES, end=True)
    else:
        for _ in range(TRANSFER_BYTES // 40_000):
            stream.send("x" * 40_000)
        stream.end()
    # 4 MB at 200 KiB/s take twenty seconds.
    clock.advance(24.0)
    assert told == []
    assert peer.is_open
    assert len(server.wires) == 1
    assert server.last.log[-1][1] is not None
    assert sum(map(len, server.last.texts)) > TRANSFER_BYTES
    # The line was never without a ping for long, and each was among the first bytes read after it was due.
    assert len(read_at_ping) >= 6
    waits = [read - due for due, read in zip(due_at, read_at_ping, strict=False)]
    assert max(waits) <= NEAR_BYTES
