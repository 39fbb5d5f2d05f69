"""The figures of a peer are those of what happened, over all of its sockets."""

from __future__ import annotations

import pytest

from muxws_green import IdleHeartbeat, JsonCodec, ResetCode, StreamReset
from muxws_green.runtime.options import Options
from muxws_green.testing import settle
from tests.runtime.ends import PATIENCE, Gate, MemoryDialer, dialled, echo


def test_a_fresh_peer_has_done_nothing(ends):
    stats = ends().near.stats
    assert stats == type(stats)(0, 0, 0, 0, 0, 0, 0, {}, 0, 0, 0, None, 0)
    with pytest.raises(AttributeError):
        stats.frames_sent = 1


def test_frames_bytes_and_streams_are_counted(ends):
    made = ends()
    made.far.on_stream(echo)
    made.near.on_stream(echo)
    for number in range(3):
        made.near.request(number)
    made.far.request("x")
    near, far = made.near.stats, made.far.stats
    assert (near.streams_opened, near.streams_accepted) == (3, 1)
    assert (far.streams_opened, far.streams_accepted) == (1, 3)
    assert near.frames_sent == len(made.near_transport.sent) == far.frames_received == 4
    assert near.frames_received == far.frames_sent == 4
    assert near.bytes_sent == sum(map(len, made.near_transport.sent)) == far.bytes_received
    assert near.live_streams == far.live_streams == 0


def test_what_is_queued_held_and_live_is_that_of_the_moment(ends):
    made, gate = ends(capacity_bytes=1), Gate()
    made.far.on_stream(gate)
    streams = [made.near.open() for _ in range(3)]
    settle()
    made.near_transport.outgoing.stall()
    for stream in streams:
        stream.send("x" * 1_000)
        settle()
    # One travels, one is in the writer.
    assert 1_000 < made.near.stats.queued_bytes < 1_200
    assert made.near.stats.live_streams == 3
    gate.stream.send("y" * 500)
    settle()
    assert 500 < made.near.stats.held_bytes < 600
    made.drop()
    settle()
    stats = made.near.stats
    assert (stats.queued_bytes, stats.live_streams) == (0, 0)


@pytest.mark.parametrize("by", ["near", "far", "violation", "unknown code"])
def test_resets_of_either_side_are_counted_by_code(ends, by):
    made, gate = ends(), Gate()
    made.far.on_stream(gate)
    stream = made.near.open()
    far = gate.reached()
    if by == "near":
        stream.cancel()
    elif by == "far":
        far.reset(ResetCode.PROTOCOL_ERROR)
    elif by == "violation":
        made.inject(type="data", stream=stream.id, payload=1, headers={})
        made.inject(type="data", stream=stream.id, payload=1, headers={})
    else:
        made.inject(type="reset", stream=stream.id, code=77)
    settle()
    code = {"near": 1, "far": 3, "violation": 3, "unknown code": -1}[by]
    assert made.near.stats.resets == {code: 1}
    if by != "unknown code":
        assert made.far.stats.resets == {code: 1}


def test_a_failed_handler_and_an_expired_wait_are_resets(ends, clock):
    made = ends(clock=clock)

    def fails(payload, stream):
        raise ValueError

    made.far.on_stream(fails)
    with pytest.raises(StreamReset):
        made.near.request(timeout=PATIENCE)
    made.far.on_stream(Gate())
    with pytest.raises(StreamReset):
        made.near.request(timeout=1.0)
    settle()
    assert made.near.stats.resets == made.far.stats.resets == {2: 1, 6: 1}


def test_the_last_round_trip_is_that_of_a_ping_or_of_the_heartbeat(ends, clock):
    made = ends(clock=clock, near_options={"heartbeat": IdleHeartbeat(10.0, 5.0)})
    assert made.near.stats.last_round_trip is None
    made.far_transport.outgoing.delay(0.25, clock)
    clock.advance(11.0)
    assert made.near.stats.last_round_trip == 0.25
    made.far_transport.outgoing.delay(0.75, clock)
    assert made.near.ping() == 0.75
    assert made.near.stats.last_round_trip == 0.75


def test_counts_go_on_over_reconnects(clock):
    far = MemoryDialer(Options(codec=JsonCodec(), clock=clock), lambda peer: peer.on_stream(echo))
    peer = dialled(far)
    before = None
    for number in range(3):
        assert peer.request(number) == number
        stream = peer.open()
        stream.cancel()
        near, _, _ = far.dials[-1]
        near.inject(f'{{"type":"data","stream":{stream.id},"payload":1}}')
        settle()
        stats = peer.stats
        assert stats.streams_opened == 2 * (number + 1)
        assert stats.late_frames >= number + 1
        assert stats.resets == {1: number + 1}
        assert stats.reconnects == number
        if before is not None:
            assert stats.bytes_sent > before.bytes_sent
            assert stats.bytes_received > before.bytes_received
            assert stats.frames_received > before.frames_received
        before = stats
        near.drop()
        settle()
        between = peer.stats
        assert (between.frames_sent, between.bytes_sent) == (stats.frames_sent, stats.bytes_sent)
        assert between.late_frames == stats.late_frames
        assert (between.live_streams, between.queued_bytes, between.held_bytes) == (0, 0, 0)
        clock.advance(60.0)
    peer.close()
