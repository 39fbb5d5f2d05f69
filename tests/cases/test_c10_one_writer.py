"""C10: however many greenlets send, the remote sees whole frames, and each stream's in order."""

from __future__ import annotations

import logging
import random
from collections import defaultdict
from contextlib import ExitStack

import gevent
import pytest

from muxws_green import connect
from muxws_green.testing import RawServer
from tests.serving import PATIENCE, Served, client

SENDERS, SENDS = 50, 20
SIZES = (1, 50, 125, 126, 2_000, 9_000, 60_000)


@pytest.mark.case("C10")
@pytest.mark.slow
@pytest.mark.parametrize("role", ["dialer", "acceptor"])
def test_fifty_greenlets_send_at_once_to_a_slow_reader(role, caplog):
    caplog.set_level(logging.INFO)
    with ExitStack() as stack:
        if role == "acceptor":
            served = stack.enter_context(Served())
            raw = stack.enter_context(client(served, receive_buffer_bytes=65_536))
            peer = served.peer
        else:
            server = stack.enter_context(RawServer(receive_buffer_bytes=65_536))
            peer = stack.enter_context(connect(server.url, heartbeat=None))
            raw = server.accept()
        sizes = {number: [random.Random(number).choice(SIZES) for _ in range(SENDS)] for number in range(SENDERS)}

        def send(number):
            stream = peer.open(number)
            for position, size in enumerate(sizes[number]):
                stream.send([number, position, "x" * size])
            stream.cancel() if number % 10 == 9 else stream.end()

        senders = [gevent.spawn(send, number) for number in range(SENDERS)]
        got = defaultdict(list)
        over = {}
        parts = defaultdict(str)
        while len(over) < SENDERS:
            frame = raw.receive(PATIENCE)
            # Slower than they send: everybody else comes between any two frames.
            gevent.sleep(0)
            if frame.type == "reset":
                over[frame.stream] = "reset"
            elif frame.fragment is not None:
                parts[frame.stream] += frame.fragment
            elif frame.type == "data" and isinstance(frame.payload, list):
                number, position, text = frame.payload
                got[number].append(position)
                assert len(text) == sizes[number][position]
            if frame.end:
                over[frame.stream] = "end"
        gevent.joinall(senders, raise_error=True, timeout=PATIENCE)
        assert not parts
        for number in range(SENDERS):
            # A cancel takes the place of what is still queued (PROTOCOL §6), so only a beginning may have come.
            assert got[number] == list(range(SENDS if number % 10 != 9 else len(got[number])))
        assert sorted(over.values()).count("reset") == SENDERS // 10
        for stream in list(peer.streams.values()):
            stream.cancel()
        raw.close()
    assert "ConcurrentObjectUseError" not in caplog.text
