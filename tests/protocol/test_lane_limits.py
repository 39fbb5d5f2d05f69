"""The queue in front of the socket is counted to the last byte, and so is what it may hold (DESIGN §5)."""

from __future__ import annotations

import pytest

from muxws_green.protocol.lanes import FREE_LANES, LANE_BYTES, OVERDUE_BYTES, Lane
from tests.protocol.queues import lanes, put, splitter


def test_bytes_are_counted_in_and_out():
    queue = lanes()
    lane = Lane(1)
    put(queue, lane, b"x" * 100, splitter(1, 3_000))
    assert (queue.queued_bytes, queue.whole_bytes, lane.queued_bytes) == (3_100, 100, 3_100)
    queue.take_batch()
    assert queue.whole_bytes == 0
    assert queue.queued_bytes == lane.queued_bytes == lane.items[0].remaining_bytes < 3_000
    while queue:
        queue.take_batch()
    assert (queue.queued_bytes, queue.whole_bytes, lane.queued_bytes) == (0, 0, 0)


def test_room_ends_with_the_limit_and_small_payloads_have_a_reserve():
    queue = lanes(limit=1_000, lane_limit=10_000)
    put(queue, Lane(1), splitter(1, 999, cap=600))
    assert queue.has_room(None, 10**9, whole=False)
    put(queue, Lane(3), b"x")
    assert not queue.has_room(None, 1, whole=False)
    assert queue.has_room(None, 1, whole=True)
    put(queue, Lane(5), bytes(248))
    assert queue.has_room(None, 1, whole=True)
    put(queue, Lane(7), b"x")
    assert not queue.has_room(None, 1, whole=True)


def test_a_lane_has_a_limit_of_its_own_but_takes_anything_while_it_is_empty():
    queue = lanes(limit=100_000, lane_limit=1_000)
    lane = Lane(1)
    assert queue.has_room(lane, 5_000, whole=False)
    put(queue, lane, splitter(1, 900, cap=600))
    assert queue.has_room(lane, 100, whole=True)
    assert not queue.has_room(lane, 101, whole=True)
    assert queue.has_room(Lane(3), 5_000, whole=False)
    assert queue.has_room(None, 5_000, whole=False)


def test_very_many_lanes_count_for_themselves():
    queue = lanes(limit=100 * LANE_BYTES)
    for stream in range(FREE_LANES):
        put(queue, Lane(stream), b"x")
    assert queue.has_room(None, 1, whole=False)
    for stream in range(100):
        put(queue, Lane(stream), b"x")
    assert queue.queued_bytes < 100 * LANE_BYTES // 2
    assert not queue.has_room(None, 1, whole=True)
    queue.take_batch()
    assert queue.has_room(None, 1, whole=False)


def test_what_payloads_may_queue_is_never_overdue():
    queue = lanes(limit=10_000, lane_limit=10_000)
    while queue.has_room(None, 1_000, whole=True):
        put(queue, Lane(1), bytes(1_000))
    put(queue, Lane(3), splitter(3, 10**8, cap=65_536))
    assert not queue.overdue


@pytest.mark.parametrize("size", [50, 60_000])
def test_what_waits_for_no_room_is_overdue_in_the_end(size: int):
    queue = lanes(limit=10_000)
    stream = 0
    while not queue.overdue:
        stream += 2
        put(queue, Lane(stream), bytes(size))
        assert stream < 20_000
    assert queue.whole_bytes + LANE_BYTES * len(queue._wholes()) < 2 * (OVERDUE_BYTES + FREE_LANES * LANE_BYTES)
    while queue.overdue:
        queue.take_batch()
