"""A big payload keeps neither the line nor the hub for itself."""

from __future__ import annotations

from itertools import pairwise

import gevent
import pytest

from muxws_green.protocol.fragments import MAX_FRAME_BYTES
from muxws_green.testing import peer_pair
from tests.conformance.runner import CODECS, bounded

FRAGMENTS = 40


@pytest.mark.leaks
@pytest.mark.parametrize("codec_name", CODECS)
@pytest.mark.parametrize("sender", ["dialer", "acceptor"])
def test_everybody_has_a_turn_while_a_big_payload_leaves(sender: str, codec_name: str) -> None:
    with peer_pair(codec=CODECS[codec_name]) as pair, bounded("the payload"):
        here, there = (pair.dialer, pair.acceptor) if sender == "dialer" else (pair.acceptor, pair.dialer)
        transport = pair.dialer_transport if sender == "dialer" else pair.acceptor_transport
        there.on_stream(lambda payload, stream: stream.reply(len(payload)))
        turns: list[int] = []

        def watch() -> None:
            while True:
                turns.append(len(transport.sent))
                gevent.sleep(0)

        watcher = gevent.spawn(watch)
        size = FRAGMENTS * MAX_FRAME_BYTES
        assert here.request("x" * size) == size
        watcher.kill()
        assert len(transport.sent) > FRAGMENTS
        # Where nobody else had a turn, this would be all of them.
        assert max(later - earlier for earlier, later in pairwise(turns)) <= 2


@pytest.mark.leaks
@pytest.mark.parametrize("codec_name", CODECS)
def test_an_answer_overtakes_what_is_being_sent(codec_name: str) -> None:
    with peer_pair(codec=CODECS[codec_name]) as pair, bounded("the calls"):
        pair.dialer.on_stream(lambda payload, stream: stream.reply(payload))
        big = pair.dialer.open("x" * FRAGMENTS * MAX_FRAME_BYTES, end=True)
        assert pair.acceptor.request("small") == "small"
        assert len(pair.dialer_transport.sent) < FRAGMENTS // 2
        big.cancel()
