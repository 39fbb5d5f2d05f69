"""The pair without sockets: it keeps what a real transport keeps, and its faults do what they say."""

from __future__ import annotations

import gevent
import pytest
from gevent.event import Event

from muxws_green.errors import ConnectionClosed
from muxws_green.testing.clock import FakeClock
from muxws_green.transports.memory import memory_pair


def ended(transport) -> ConnectionClosed:
    with pytest.raises(ConnectionClosed) as caught, gevent.Timeout(1.0):
        transport.receive()
    return caught.value


def refused(transport, messages: list[bytes]) -> ConnectionClosed:
    with pytest.raises(ConnectionClosed) as caught, gevent.Timeout(1.0):
        transport.send(messages, True)
    return caught.value


def is_waiting(greenlet: gevent.Greenlet) -> bool:
    gevent.idle()
    return not greenlet.ready()


def test_messages_keep_their_kind_and_order():
    left, right = memory_pair()
    left.send([b"a", "é".encode()], False)
    left.send([b"\x00\xff"], True)
    assert right.receive() == ["a", "é", b"\x00\xff"]
    assert left.sent == [b"a", "é".encode(), b"\x00\xff"]
    right.send([b"back"], False)
    assert left.receive() == ["back"]


def test_receive_waits_for_a_message():
    left, right = memory_pair()
    reader = gevent.spawn(right.receive)
    assert is_waiting(reader)
    left.send([b"x"], False)
    assert reader.get(timeout=1.0) == ["x"]


def test_a_reader_of_a_long_backlog_lets_others_run():
    left, right = memory_pair()
    left.send([bytes(40_000)] * 4, True)
    other = gevent.spawn(lambda: None)
    assert len(right.receive()) == 2
    assert not other.ready()
    assert len(right.receive()) == 2
    assert other.ready()


def test_a_close_frame_arrives_after_what_was_sent_before_it_and_is_answered():
    left, right = memory_pair()
    woken = Event()
    right.attach(woken.set)
    left.send([b"last"], False)
    left.close(1001, "going")
    left.close(1000, "again")
    assert right.receive() == ["last"]
    error = ended(right)
    assert (error.code, error.reason, error.was_clean) == (1001, "going", False)
    assert woken.is_set()
    assert left.closed_with == (1001, "going")
    right.send([], False)
    assert right.closed_with == (1001, "going")
    answer = ended(left)
    assert (answer.code, answer.reason) == (1001, "going")
    assert ended(left).code == 1001


def test_abort_sends_the_answer_that_is_still_due():
    left, right = memory_pair()
    left.close(1000, "")
    assert ended(right).was_clean
    right.abort()
    assert right.closed_with == (1000, "")
    assert ended(left).code == 1000


def test_abort_with_a_code_is_seen_as_that_code_and_without_one_as_1006():
    left, right = memory_pair()
    left.abort(1000)
    assert ended(right).code == 1000
    assert ended(left).code == 1006
    left, right = memory_pair()
    left.send([b"before"], False)
    left.abort()
    assert right.receive() == ["before"]
    assert (ended(right).code, ended(right).was_clean) == (1006, False)
    with pytest.raises(ConnectionClosed):
        right.send([b"x"], False)


def test_abort_wakes_this_ends_reader_and_writer_and_the_others_writer():
    left, right = memory_pair(capacity_bytes=10)
    reader = gevent.spawn(ended, left)
    left.send([bytes(10)], True)
    writer = gevent.spawn(refused, left, [b"x"])
    assert is_waiting(writer)
    left.abort(1000)
    assert writer.get(timeout=1.0).code == 1006
    assert right.receive() == [bytes(10)]
    # Not 1000: a real transport would have been in the middle of a frame.
    assert ended(right).code == 1006
    assert reader.get(timeout=1.0).code == 1006

    left, right = memory_pair(capacity_bytes=10)
    left.send([bytes(10)], True)
    writer = gevent.spawn(refused, left, [b"x"])
    assert is_waiting(writer)
    right.abort()
    assert writer.get(timeout=1.0).code == 1006


def test_an_end_that_was_seen_stays_after_abort():
    left, right = memory_pair()
    left.close(1001, "bye")
    assert ended(right).code == 1001
    right.abort()
    assert ended(right).code == 1001
    left.abort()
    assert ended(left).code == 1006


def test_nothing_follows_a_close_frame():
    left, _right = memory_pair()
    left.close(1000, "")
    with pytest.raises(ConnectionClosed):
        left.send([b"x"], False)
    left.send([], False)
    assert left.sent == []


@pytest.mark.parametrize("code", [0, 999, 1005, 1006, 1015, 5000])
def test_codes_that_must_not_be_on_the_wire_are_refused(code):
    left, right = memory_pair()
    with pytest.raises(ValueError, match=str(code)):
        left.close(code, "")
    with pytest.raises(ValueError, match=str(code)):
        right.abort(code)


def test_the_reason_is_cut_on_a_character_boundary():
    left, right = memory_pair()
    left.close(1000, "é" * 100)
    assert ended(right).reason == "é" * 61


def test_an_empty_close_is_1005_and_answered_empty():
    left, _right = memory_pair()
    left.inject_close()
    assert ended(left).code == 1005
    left.send([], False)
    assert left.closed_with == (None, "")


def test_injected_messages_arrive_at_this_end():
    left, right = memory_pair()
    right.send([b"first"], False)
    left.inject("second")
    left.inject(b"third")
    left.inject_violation(1002, "masked")
    left.inject("never")
    assert left.receive() == ["first", "second", b"third"]
    error = ended(left)
    assert (error.code, error.reason) == (1002, "masked")


def test_a_message_over_the_bound_ends_the_receiving_end_with_1009():
    left, right = memory_pair(max_message_bytes=4)
    left.send([b"1234", "éé1".encode(), b"late"], False)
    assert right.receive() == ["1234"]
    assert ended(right).code == 1009


def test_send_waits_for_room_and_the_bytes_that_it_holds_are_unacknowledged():
    left, right = memory_pair(capacity_bytes=10)
    left.send([bytes(25)], True)
    assert left.unacknowledged() == 0
    writer = gevent.spawn(left.send, [bytes(6), bytes(6)], True)
    assert is_waiting(writer)
    assert left.unacknowledged() == 12
    assert right.receive() == [bytes(25)]
    assert is_waiting(writer)
    assert left.unacknowledged() == 6
    assert right.receive() == [bytes(6)]
    writer.get(timeout=1.0)
    assert right.receive() == [bytes(6)]
    assert left.unacknowledged() == 0


def test_an_interrupted_send_makes_the_transport_unusable():
    left, right = memory_pair(capacity_bytes=10)
    left.send([bytes(10)], True)
    with pytest.raises(gevent.Timeout), gevent.Timeout(0):
        left.send([b"x"], True)
    assert right.receive() == [bytes(10)]
    with pytest.raises(ConnectionClosed):
        left.send([b"y"], True)
    left.abort(1000)
    assert ended(right).code == 1006


def test_a_stalled_line_holds_messages_and_the_close_back_until_it_resumes():
    left, right = memory_pair()
    left.outgoing.stall()
    left.send([b"abc"], False)
    left.close(1000, "")
    reader = gevent.spawn(right.receive)
    assert is_waiting(reader)
    assert left.unacknowledged() == 3
    right.send([b"other way"], False)
    assert left.receive() == ["other way"]
    left.outgoing.resume()
    assert reader.get(timeout=1.0) == ["abc"]
    assert ended(right).code == 1000
    assert left.unacknowledged() == 0


def test_a_stalled_line_hides_the_end_of_its_sender():
    left, right = memory_pair()
    left.outgoing.stall()
    left.abort()
    right.send([b"nobody there"], False)
    left.outgoing.resume()
    assert ended(right).code == 1006


def test_a_delayed_message_arrives_when_its_time_has_come_and_nothing_overtakes_it():
    left, right = memory_pair()
    with FakeClock(autojump=False) as clock:
        left.outgoing.delay(0.5, clock)
        left.send([b"slow"], False)
        left.outgoing.delay(0.0, clock)
        left.send([b"fast"], False)
        reader = gevent.spawn(right.receive)
        clock.advance(0.4)
        assert not reader.ready()
        assert left.unacknowledged() == 8
        clock.advance(0.1)
        assert reader.get(timeout=1.0) == ["slow", "fast"]
        with pytest.raises(ValueError, match="negative"):
            left.outgoing.delay(-1.0, clock)


def test_a_throttled_message_arrives_when_it_is_whole():
    left, right = memory_pair()
    with FakeClock(autojump=False) as clock:
        left.outgoing.throttle(100, clock)
        left.outgoing.delay(1.0, clock)
        left.send([bytes(50), bytes(25)], True)
        times = []
        reader = gevent.spawn(lambda: [(len(right.receive()[0]), times.append(clock.now())) for _ in range(3)])
        clock.advance(10.0)
        assert times == [1.5, 1.75]
        # An idle line has saved nothing up.
        left.send([bytes(100)], True)
        clock.advance(10.0)
        assert times == [1.5, 1.75, 12.0]
        reader.get(timeout=1.0)
        left.outgoing.delay(0.0, clock)
        left.outgoing.throttle(None, clock)
        left.send([b"at once"], False)
        assert right.receive() == ["at once"]
        for rate in (0, -1, float("nan")):
            with pytest.raises(ValueError, match="above 0"):
                left.outgoing.throttle(rate, clock)


def test_what_is_dropped_is_lost_with_the_end_and_its_sender_notices_nothing():
    left, right = memory_pair(capacity_bytes=10)
    left.outgoing.stall()
    left.send([bytes(10)], True)
    writer = gevent.spawn(left.send, [bytes(10)] * 5, True)
    assert is_waiting(writer)
    left.outgoing.drop()
    writer.get(timeout=1.0)
    left.outgoing.resume()
    assert left.unacknowledged() == 0
    right.send([b"other way"], False)
    assert left.receive() == ["other way"]
    left.close(1000, "")
    left.abort()
    reader = gevent.spawn(ended, right)
    assert is_waiting(reader)
    right.abort()
    reader.get(timeout=1.0)


@pytest.mark.parametrize("passing,arrived", [(0, []), (2, []), (3, ["abc"]), (4, ["abc"]), (6, ["abc", "def"])])
def test_a_cut_comes_after_so_many_bytes_and_loses_the_message_that_they_end_in(passing, arrived):
    left, right = memory_pair()
    left.send([b"before"], False)
    assert right.receive() == ["before"]
    left.outgoing.cut_after(passing)
    left.send([b"abc", b"def"], False)
    got = []
    with pytest.raises(ConnectionClosed) as caught:
        while True:
            got += right.receive()
    assert (got, caught.value.code) == (arrived, 1006)
    with pytest.raises(ValueError, match="negative"):
        left.outgoing.cut_after(-1)


def test_a_cut_that_is_still_to_come_lets_messages_pass():
    left, right = memory_pair()
    left.outgoing.cut_after(7)
    left.send([b"abc", b"def"], False)
    assert right.receive() == ["abc", "def"]
    left.send([b"g"], False)
    assert right.receive() == ["g"]
    assert ended(right).code == 1006


def test_drop_kills_both_ends_without_a_close_frame():
    left, right = memory_pair()
    left.send([b"arrived"], False)
    right.outgoing.stall()
    right.send([b"lost"], False)
    left.drop()
    assert right.receive() == ["arrived"]
    assert ended(right).code == 1006
    assert ended(left).code == 1006
    for end in (left, right):
        with pytest.raises(ConnectionClosed):
            end.send([b"x"], False)
