"""What is queued leaves in a fair order, and at once where it is small."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from muxws_green.codecs.msgpack import MsgpackCodec
from muxws_green.protocol.fragments import Splitter
from muxws_green.protocol.frames import Frame
from muxws_green.protocol.lanes import BATCH_BYTES, Lane, Lanes
from tests.protocol.cores import CODECS, MSGPACK, End, audit
from tests.protocol.queues import lanes, put, splitter

#: Bytes of a bulk payload in these tests: 256 fragments.
BIG = b"\xc6" + (2**24).to_bytes(4, "big") + bytes(2**24)


def take(queue: Lanes) -> list[bytes]:
    batch, failed = queue.take_batch()
    assert failed == []
    return batch


def streams(batch: list[bytes]) -> list[int]:
    """The stream of each fragment of a batch."""
    return [MSGPACK.decode(message).stream for message in batch]


# Order


def test_nothing_queued_is_an_empty_batch():
    queue = lanes()
    assert not queue
    assert take(queue) == []


def test_connection_level_frames_go_first_and_in_their_order():
    queue = lanes()
    put(queue, Lane(1), b"a", b"b")
    queue.put_control(b"ping")
    put(queue, Lane(3), b"c")
    queue.put_control(b"goaway")
    assert take(queue) == [b"ping", b"goaway", b"a", b"c", b"b"]
    assert not queue


def test_each_lane_is_asked_once_before_any_is_asked_twice():
    queue = lanes()
    for name in "abc":
        put(queue, Lane(ord(name)), *(f"{name}{number}".encode() for number in range(3)))
    assert take(queue) == [b"a0", b"b0", b"c0", b"a1", b"b1", b"c1", b"a2", b"b2", b"c2"]


def test_the_turn_goes_on_where_the_last_batch_ended():
    queue = lanes()
    half = bytes(BATCH_BYTES // 2)
    for stream in (1, 3, 5):
        put(queue, Lane(stream), *(bytes([stream]) + half for _ in range(2)))
    taken = [message[0] for _ in range(3) for message in take(queue)]
    assert taken == [1, 3, 5, 1, 3, 5]


def test_a_batch_of_whole_frames_ends_with_the_one_that_fills_it():
    queue = lanes()
    put(queue, Lane(1), *[bytes(1_000)] * 100)
    assert [len(take(queue)), len(take(queue))] == [66, 34]


def test_order_within_a_lane_is_kept_across_whole_frames_and_fragments():
    queue = lanes()
    lane = Lane(1)
    put(queue, lane, b"first", splitter(1, 1_500), b"middle", splitter(1, 1_500), b"last")
    taken = [message if len(message) < 10 else b"*" for _ in range(10) for message in take(queue)]
    assert [message for message in taken if message != b"*"] == [b"first", b"middle", b"last"]
    assert taken[0] == b"first"
    assert taken[-1] == b"last"
    assert taken.index(b"middle") == len(taken) // 2


def test_a_stream_gives_one_fragment_a_batch_however_much_room_is_left():
    queue = lanes()
    for stream in (1, 3, 5):
        put(queue, Lane(stream), splitter(stream, 10_000))
    for _ in range(5):
        assert streams(take(queue)) == [1, 3, 5]


def test_fragments_that_fill_a_batch_take_turns_over_batches():
    queue = Lanes(2**30, 2**30)
    for stream in (1, 3, 5):
        put(queue, Lane(stream), Splitter(MSGPACK, MSGPACK, "data", stream, BIG, None, False, None, 65_536))
    assert [streams(take(queue)) for _ in range(7)] == [[1], [3], [5], [1], [3], [5], [1]]


def test_bulk_moves_on_while_whole_frames_fill_every_batch():
    queue = lanes()
    put(queue, Lane(1), *[bytes(1_000)] * 200)
    put(queue, Lane(3), splitter(3, 10_000), b"behind")
    for _ in range(2):
        batch = take(queue)
        assert len(batch) == 67
        assert MSGPACK.decode(batch[-1]).stream == 3


def test_bulk_moves_on_while_connection_level_frames_fill_every_batch():
    queue = lanes()
    put(queue, Lane(1), splitter(1, 10_000))
    queue.put_control(bytes(2 * BATCH_BYTES))
    assert len(take(queue)) == 2


def bulk_streams(end: End, count: int = 16) -> list[Any]:
    """Live streams, each with 16 MiB to send."""
    live = [end.open(None) for _ in range(count)]
    end.sent()
    for stream in live:
        end.core.send(stream, BIG)
    return live


@pytest.mark.parametrize("before", range(0, 40, 3))
def test_a_small_frame_and_a_ping_leave_with_the_next_batch_whatever_is_sent_in_bulk(before: int):
    end = End(codec=MSGPACK)
    small = end.open(None)
    bulk = bulk_streams(end)
    for _ in range(before):
        assert len(end.core.take_batch()) == 1
    end.send(small, "small")
    end.core.ping("nonce")
    opened = end.open("opened")
    batch = end.batch()
    assert batch[0] == Frame("ping", nonce="nonce")
    assert Frame("data", small.id, payload="small") in batch
    assert Frame("open", opened.id, payload="opened") in batch
    fragments = [frame.stream for frame in batch if frame.fragment is not None]
    assert fragments == [bulk[before % 16].id]


def test_sixteen_bulk_streams_share_the_wire_evenly():
    end = End(codec=MSGPACK)
    bulk = bulk_streams(end)
    counts = Counter(frame.stream for _ in range(64) for frame in end.batch())
    assert counts == dict.fromkeys([stream.id for stream in bulk], 4)


# Opens


def test_opens_leave_in_the_order_of_their_ids_whole_or_in_fragments():
    end = End(codec=MSGPACK, cap=1_000)
    ids = [end.open(bytes(5_000) if number % 3 else number).id for number in range(12)]
    audit(end.core)
    frames = end.sent()
    seen = list(dict.fromkeys(frame.stream for frame in frames if frame.type == "open"))
    assert seen == ids
    assert not any(frame.more for frame in frames if frame.fragment is None)


def test_an_open_of_many_fragments_holds_back_later_opens_but_no_other_frame():
    end = End(codec=MSGPACK)
    talking = end.open(None)
    end.sent()
    opens = [end.core.open(BIG) for _ in range(4)]
    late = end.open("late")
    for number in range(4):
        end.send(talking, number)
        batch = end.batch()
        assert batch[0] == Frame("data", talking.id, payload=number)
        assert [frame.stream for frame in batch[1:]] == [opens[number].id]
        assert batch[1].type == "open"
        audit(end.core)
    assert end.batch()[0] == Frame("open", late.id, payload="late")


def test_an_open_in_fragments_is_asked_before_bulk_that_is_under_way():
    end = End(codec=MSGPACK)
    bulk_streams(end, 2)
    opened = end.core.open(BIG)
    assert [frame.stream for frame in end.batch()] == [opened.id]
    assert [frame.type for frame in end.batch() + end.batch()] == ["data", "data"]


def test_small_opens_behind_a_big_one_leave_all_together():
    end = End(codec=MSGPACK)
    big = end.core.open(BIG)
    small = [end.open(number) for number in range(50)]
    assert [frame.stream for frame in end.batch()] == [big.id]
    batch = end.batch()
    assert [frame.stream for frame in batch[:-1]] == [stream.id for stream in small]
    assert (batch[-1].stream, batch[-1].more) == (big.id, True)


@pytest.mark.parametrize("size", [10, 5_000])
def test_a_leader_goes_before_connection_level_frames_and_these_behind_it(size: int):
    end = End(codec=MSGPACK, cap=1_000, dialer=True)
    end.core.ping("early")
    hello = end.open(bytes(size), first=True, end=True)
    batch = end.batch()
    assert [frame.type for frame in batch] == ["open", "ping"]
    assert batch[0].stream == hello.id
    end.core.ping("later")
    assert [frame.type for frame in end.batch()] == (["ping"] if size == 10 else ["ping", "open"])


# Discarding


def test_discard_takes_everything_and_only_of_that_lane():
    queue = lanes()
    first, second = Lane(1), Lane(3)
    put(queue, first, b"a", splitter(1, 3_000), b"b")
    put(queue, second, b"c")
    queue.discard(first, keep_unsent_open=True)
    assert (queue.queued_bytes, queue.whole_bytes) == (1, 1)
    assert (first.queued_bytes, list(first.items)) == (0, [])
    assert take(queue) == [b"c"]


def test_discarding_an_empty_lane_is_nothing():
    queue = lanes()
    queue.discard(Lane(1), keep_unsent_open=True)
    queue.discard(Lane(1), keep_unsent_open=False)
    assert queue.queued_bytes == 0


def test_a_lane_that_was_discarded_can_be_used_again():
    queue = lanes()
    lane = Lane(1)
    put(queue, lane, splitter(1, 3_000))
    queue.discard(lane, keep_unsent_open=False)
    put(queue, lane, b"again")
    assert take(queue) == [b"again"]
    assert not queue


def test_an_unsent_open_keeps_its_first_frame_and_its_turn():
    end = End(codec=MSGPACK, cap=1_000)
    opens = [end.open(bytes(5_000)) for _ in range(3)]
    end.send(opens[1], "more")
    end.core.lanes.discard(opens[1].lane, keep_unsent_open=True)
    audit(end.core)
    frames = end.sent()
    firsts = list(dict.fromkeys(frame.stream for frame in frames))
    assert firsts == [live.id for live in opens]
    (kept,) = [frame for frame in frames if frame.stream == opens[1].id]
    assert kept.more


def test_without_keeping_an_unsent_open_goes_too():
    end = End(codec=MSGPACK, cap=1_000)
    opens = [end.open(bytes(5_000)), end.open("x")]
    for live in opens:
        end.core.lanes.discard(live.lane, keep_unsent_open=False)
    assert end.sent() == []
    audit(end.core)


def test_what_a_stream_has_begun_to_send_is_no_unsent_open_any_more():
    end = End(codec=MSGPACK, cap=1_000)
    live = end.open(bytes(5_000))
    end.batch()
    end.core.lanes.discard(live.lane, keep_unsent_open=True)
    assert end.sent() == []


def test_abandon_drops_a_payload_under_way_by_its_stream():
    queue = lanes()
    put(queue, Lane(1), splitter(1, 5_000), b"end")
    put(queue, Lane(3), splitter(3, 1_500))
    queue.abandon(1)
    queue.abandon(99)
    assert queue.queued_bytes == 1_500
    assert set(streams(take(queue) + take(queue))) == {3}


def test_clear_leaves_nothing():
    queue = lanes()
    used = [Lane(1), Lane(3)]
    put(queue, used[0], b"a")
    put(queue, used[1], splitter(3, 3_000))
    queue.put_control(b"ping")
    queue.clear()
    assert not queue
    assert (queue.queued_bytes, queue.whole_bytes) == (0, 0)
    assert take(queue) == []
    assert all(not lane.items and not lane.queued_bytes for lane in used)


# A codec that fails or switches


class Interrupting(MsgpackCodec):
    """Does something else first, once, when a fragment is to be built."""

    action: Callable[[], None] | None = None

    def wrap_fragment(self, *arguments: Any, **options: Any) -> bytes:
        action, self.action = self.action, None
        if action is not None:
            action()
        return super().wrap_fragment(*arguments, **options)


def fail() -> None:
    raise KeyError("fragment")


def interrupting(queue: Lanes, stream: int) -> tuple[Lane, Interrupting]:
    codec = Interrupting()
    lane = Lane(stream)
    put(queue, lane, Splitter(codec, codec, "data", stream, bytes(5_000), None, False, None, 1_000), b"behind")
    return lane, codec


def test_a_fragment_that_cannot_be_built_costs_its_lane_only():
    queue = lanes()
    put(queue, Lane(1), splitter(1, 5_000))
    broken, codec = interrupting(queue, 3)
    put(queue, Lane(5), splitter(5, 5_000))
    assert streams(take(queue)) == [1, 3, 5]
    codec.action = fail
    batch, failed = queue.take_batch()
    assert streams(batch) == [1, 5]
    assert failed == [broken]
    assert isinstance(broken.failure, KeyError)
    assert not broken.items
    assert streams(take(queue)) == [1, 5]
    while queue:
        take(queue)
    assert (queue.queued_bytes, queue.whole_bytes) == (0, 0)


def test_a_stream_reset_while_a_codec_builds_its_fragment_sends_no_more_of_it():
    queue = lanes()

    def reset() -> None:
        queue.discard(lane, keep_unsent_open=False)
        put(queue, lane, b"reset")

    lane, codec = interrupting(queue, 1)
    put(queue, Lane(3), splitter(3, 5_000))
    assert streams(take(queue)) == [1, 3]
    codec.action = reset
    assert streams(take(queue)) == [3]
    assert take(queue)[0] == b"reset"
    while queue:
        take(queue)
    assert (queue.queued_bytes, queue.whole_bytes) == (0, 0)


def test_a_socket_that_dies_while_a_codec_builds_a_fragment_leaves_nothing():
    queue = lanes()
    _, codec = interrupting(queue, 1)
    put(queue, Lane(3), splitter(3, 5_000))
    take(queue)
    codec.action = queue.clear
    assert take(queue) == []
    assert not queue
    assert (queue.queued_bytes, queue.whole_bytes) == (0, 0)


@pytest.mark.parametrize("codec", CODECS, ids=["json", "msgpack"])
def test_what_leaves_is_what_was_queued(codec: Any):
    end = End(codec=codec, cap=300, dialer=True)
    live = end.open("é" * 400, headers={"a": 1})
    end.send(live, "x" * 500, end=True, trailers={"b": 2})
    other = End(codec=codec, cap=300, dialer=False)
    while end.core.lanes:
        for message in end.core.take_batch():
            assert len(message) <= 300
            other.hear_message(message)
    assert other.told == [
        ("opening", live.id, {"a": 1}),
        ("opened", live.id, "é" * 400),
        ("payload", live.id, "x" * 500),
        ("ended", live.id, {"b": 2}),
    ]
