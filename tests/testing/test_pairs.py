"""Two peers in memory."""

from __future__ import annotations

import pytest

from muxws_green.codecs.msgpack import MsgpackCodec
from muxws_green.errors import ConnectionLost, ProtocolError, StreamRefused
from muxws_green.testing import peer_pair, settle

pytestmark = pytest.mark.leaks


def test_both_ends_talk_from_the_start():
    with peer_pair() as pair:
        dialer, acceptor = pair
        assert (dialer.is_dialer, acceptor.is_dialer) == (True, False)
        assert dialer.is_open
        assert acceptor.is_open
        dialer.on_stream(lambda payload, stream: stream.reply(["dialer", payload]))
        acceptor.on_stream(lambda payload, stream: stream.reply(["acceptor", payload]))
        assert dialer.request(1) == ["acceptor", 1]
        assert acceptor.request(2) == ["dialer", 2]
        assert b'"payload":1' in pair.dialer_transport.sent[0]
        assert b'"payload":2' in pair.acceptor_transport.sent[1]


def test_leaving_it_drops_the_connection():
    with peer_pair() as pair:
        pair.acceptor.on_stream(lambda payload, stream: stream.closed.wait())
        stream = pair.dialer.open(1)
        settle()
    with pytest.raises(ConnectionLost):
        stream.result()
    settle()
    assert pair.dialer.is_closed
    assert pair.acceptor.is_closed
    assert pair.dialer_transport.closed_with is pair.acceptor_transport.closed_with is None


def test_a_clean_close():
    with peer_pair() as pair:
        pair.acceptor.close(reason="done")
        assert pair.dialer.serve() is None
        assert pair.acceptor_transport.closed_with == pair.dialer_transport.closed_with == (1000, "done")


def test_options_of_both_and_of_one():
    options = {"max_concurrent_streams": 1}
    with peer_pair(codec=MsgpackCodec(), max_frame_bytes=256, acceptor=options, capacity_bytes=1_000) as pair:
        pair.dialer.on_stream(lambda payload, stream: stream.reply(payload))
        assert pair.acceptor.request(b"x" * 500) == b"x" * 500
        assert max(map(len, pair.acceptor_transport.sent)) <= 256
        assert pair.acceptor_transport.max_message_bytes == 512
        assert pair.acceptor_transport.outgoing.capacity_bytes == 1_000
        pair.acceptor.on_stream(lambda payload, stream: stream.closed.wait())
        pair.dialer.open(1)
        with pytest.raises(StreamRefused, match="limit of 1"):
            pair.dialer.request(2)
        pair.acceptor.open(1)
        assert pair.acceptor.request(3) == 3


def test_what_is_wrong_is_said_before_anything_is_made():
    with pytest.raises(ProtocolError):
        peer_pair(max_frame_bytes=10)
    with pytest.raises(ValueError, match="max_concurrent_streams"):
        peer_pair(dialer={"max_concurrent_streams": 0})
    with pytest.raises(TypeError):
        peer_pair(no_such_option=1)
