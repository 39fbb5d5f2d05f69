"""C63: a client that never reads holds up whoever sends to it, and nobody else, in bounded memory."""

from __future__ import annotations

import contextlib
import tracemalloc

import gevent
import pytest

from muxws_green import ConnectionLost
from muxws_green.testing import Gone
from tests.serving import PATIENCE, Served, client

CLIENTS, SENDS, SIZE = 10, 60, 60_000
LIMIT = 1_000_000


@pytest.mark.case("C63")
@pytest.mark.slow
def test_nine_readers_get_everything_beside_one_that_never_reads():
    with Served(send_buffer_bytes=LIMIT) as served:
        raws = [client(served, receive_buffer_bytes=16_384) for _ in range(CLIENTS)]
        counts = [0] * CLIENTS
        read = [0] * CLIENTS

        def pusher(index):
            with contextlib.suppress(ConnectionLost):
                for _ in range(SENDS):
                    served.peers[index].notify("x" * SIZE)
                    counts[index] += 1

        def reader(index):
            with contextlib.suppress(Gone):
                while read[index] < SENDS:
                    frame = raws[index].receive(PATIENCE)
                    assert len(frame.payload) == SIZE
                    # Answered, since a `notify` that nobody ends is live until it is.
                    raws[index].send({"type": "data", "stream": frame.stream, "end": True})
                    raws[index].heard.clear()
                    read[index] += 1

        tracemalloc.start()
        try:
            pushers = [gevent.spawn(pusher, index) for index in range(CLIENTS)]
            readers = [gevent.spawn(reader, index) for index in range(1, CLIENTS)]
            gevent.joinall([*pushers[1:], *readers], timeout=PATIENCE, raise_error=True)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert read[1:] == counts[1:] == [SENDS] * (CLIENTS - 1)
        assert counts[0] < 40
        # Its limit, the reserve of a quarter, and what one batch holds.
        assert served.peers[0].stats.queued_bytes <= LIMIT * 5 // 4 + 65_536
        assert most < 40 * 2**20
        assert not pushers[0].dead
        raws[0].close()
        # Its sender is not left behind.
        pushers[0].get(timeout=PATIENCE)
        for raw in raws:
            raw.close()
