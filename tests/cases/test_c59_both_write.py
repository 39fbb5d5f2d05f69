"""C59: two ends that write as fast as they can through tiny buffers do not lock."""

from __future__ import annotations

import gevent
import pytest

from muxws_green import connect
from muxws_green.testing import Relay
from tests.serving import PATIENCE, Served

STREAMS, ROWS, ROW_BYTES = 8, 20, 60_000


def back(payload, stream):
    for row in stream:
        stream.send(row)


@pytest.mark.case("C59")
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_both_ends_echo_at_full_speed_through_four_kilobytes(kind):
    # TCP's own timers make a crawl of receive buffers that are far shorter than a packet of the loopback interface.
    buffer_bytes = 4_096 if kind == "unix" else None
    limits = {"send_buffer_bytes": 200_000}
    with (
        Served(back, kind, **limits) as served,
        Relay(served.url, capacity_bytes=4_096, socket_buffer_bytes=buffer_bytes) as relay,
        connect(relay.url, heartbeat=None, on_stream=back, **limits) as peer,
    ):

        def exchange(end):
            stream = end.open()

            def send():
                for number in range(ROWS):
                    stream.send([number, "x" * ROW_BYTES])
                stream.end()

            sender = gevent.spawn(send)
            got = [number for number, _ in stream]
            sender.get()
            return got

        running = [gevent.spawn(exchange, end) for end in (peer, served.peer) for _ in range(STREAMS)]
        gevent.joinall(running, timeout=2 * PATIENCE)
        assert [each.value for each in running] == [list(range(ROWS))] * 2 * STREAMS
