"""A frame that ends its side leaves in its sender's turn where nothing else is to join it; what can come of that."""

from __future__ import annotations

import logging

import gevent
import pytest

from muxws_green import ConnectionLost
from muxws_green.errors import ConnectionClosed
from muxws_green.testing import settle
from tests.runtime.ends import PATIENCE, echo, outcome


@pytest.fixture
def made(ends):
    """Ends whose writers are there, and rest."""
    made = ends()
    made.far.on_stream(echo)
    made.near.on_stream(echo)
    assert made.near.request("first", timeout=PATIENCE) == "first"
    settle()
    return made


def sent_now(made):
    """How many frames the near end has sent since this was asked last, without anybody else having had a turn."""
    count, made_count = len(made.sent), getattr(sent_now, "count", 0)
    sent_now.count = count
    return count - made_count


def quiet():
    """Wait until nobody else is due: a pair in memory has its own events still to tell."""
    gevent.idle()


@pytest.fixture(autouse=True)
def from_here_on():
    sent_now.count = 0


def test_a_request_has_left_before_anybody_waits(made):
    sent_now(made)
    made.near.open("x", end=True)
    assert sent_now(made) == 1
    assert made.sent[-1]["payload"] == "x"


def test_an_answer_has_left_before_its_handler_returns(made):
    left = []

    def handle(payload, stream):
        quiet()
        sent_now(made)
        stream.reply(payload)
        left.append(sent_now(made))

    made.near.on_stream(handle)
    assert made.far.request("x", timeout=PATIENCE) == "x"
    assert left == [1]


def test_a_frame_that_others_of_its_stream_follow_waits_for_them(made):
    sent_now(made)
    stream = made.near.open("x")
    stream.send("y")
    assert sent_now(made) == 0
    stream.end("z")
    assert sent_now(made) == 0
    settle()
    assert sent_now(made) == 3


def test_only_the_first_of_several_leaves_by_itself(made):
    batches = []
    send = made.near_transport.send
    made.near_transport.send = lambda messages, binary: (batches.append(len(messages)), send(messages, binary))[1]
    sent_now(made)
    for number in range(10):
        made.near.notify(number)
    assert sent_now(made) == 1
    settle()
    assert sent_now(made) == 9
    assert batches == [9]
    made.near.notify("after a wait")
    assert sent_now(made) == 1


def test_it_waits_for_others_that_are_due(made):
    batches = []
    send = made.near_transport.send
    made.near_transport.send = lambda messages, binary: (batches.append(len(messages)), send(messages, binary))[1]
    sent_now(made)
    callers = [gevent.spawn(made.near.request, number, timeout=PATIENCE) for number in range(8)]
    gevent.joinall(callers, timeout=PATIENCE, raise_error=True)
    assert [caller.value for caller in callers] == list(range(8))
    assert batches[0] >= 7


def test_answers_of_many_handlers_that_do_not_wait_leave_together(made):
    batches = []
    send = made.far_transport.send
    made.far_transport.send = lambda messages, binary: (batches.append(len(messages)), send(messages, binary))[1]
    streams = [made.near.open(number, end=True) for number in range(20)]
    assert [stream.result(timeout=PATIENCE) for stream in streams] == list(range(20))
    # The first question had left by itself.
    assert max(batches) >= 18


def test_the_very_first_frame_is_the_writers(ends):
    made = ends()
    made.near.open("x", end=True)
    assert made.sent == []
    settle()
    assert len(made.sent) == 1


def test_what_an_observer_sees_leaves_through_the_writer(made):
    """It may wait, which only the writer's greenlet can."""
    made.near.on_frame(lambda direction, frame, size: gevent.sleep(0))
    sent_now(made)
    made.near.open("x", end=True)
    assert sent_now(made) == 0
    settle()
    assert made.sent[-1]["payload"] == "x"


def test_what_is_logged_leaves_through_the_writer(made, caplog):
    caplog.set_level(logging.DEBUG, "muxws.frames")
    sent_now(made)
    made.near.open("x", end=True)
    assert sent_now(made) == 0
    settle()
    assert made.sent[-1]["payload"] == "x"


def test_fragments_leave_through_the_writer(made):
    """A codec of the application's makes them, and may wait."""
    sent_now(made)
    stream = made.near.open("x" * 200_000, end=True)
    assert sent_now(made) == 0
    assert stream.result(timeout=PATIENCE) == "x" * 200_000


def test_what_there_is_no_room_for_is_left_to_the_writer(made):
    made.near_transport.outgoing.capacity_bytes = 100
    made.near_transport.outgoing.stall()
    made.near.notify("y" * 90)
    settle()
    sent_now(made)
    stream = made.near.open("x", end=True)
    assert sent_now(made) == 0
    later = made.near.open("z", end=True)
    made.near_transport.outgoing.resume()
    assert stream.result(timeout=PATIENCE) == "x"
    assert later.result(timeout=PATIENCE) == "z"
    assert [frame["payload"] for frame in made.sent_of("open")[-3:]] == ["y" * 90, "x", "z"]


def test_it_is_counted(made):
    before = made.near.stats
    made.near.notify("x")
    after = made.near.stats
    assert after.frames_sent == before.frames_sent + 1
    assert after.bytes_sent > before.bytes_sent


def test_a_connection_that_is_gone_ends_as_when_the_writer_finds_out(made):
    """The call succeeds, as what is queued may always be lost; its stream fails."""
    made.near_transport.send_at_once = gone
    stream = made.near.open("x", end=True)
    with pytest.raises(ConnectionLost):
        stream.result(timeout=PATIENCE)
    assert made.near.is_closed or not made.near.is_open
    with pytest.raises(ConnectionLost):
        made.near.request("y", timeout=PATIENCE)


def test_an_answer_that_finds_the_connection_gone_raises_nothing_in_its_handler(made):
    seen = []

    def handle(payload, stream):
        quiet()
        made.near_transport.send_at_once = gone
        stream.reply(payload)
        seen.append((stream.state.name, stream.closed.is_set()))

    made.near.on_stream(handle)
    failed = outcome(made.far.request, "x", timeout=PATIENCE)
    assert isinstance(failed.get(timeout=PATIENCE), ConnectionLost)
    assert seen == [("CLOSED", True)]


def gone(messages, binary):
    raise ConnectionClosed("gone")


def test_a_fault_of_the_transports_ends_the_connection_and_is_logged(made, caplog):
    def broken(messages, binary):
        raise ZeroDivisionError("a bug")

    made.near_transport.send_at_once = broken
    stream = made.near.open("x", end=True)
    with pytest.raises(ConnectionLost):
        stream.result(timeout=PATIENCE)
    assert made.near.close_cause.code == 1011
    assert isinstance(made.near.close_cause.__cause__, ZeroDivisionError)
    assert "the writer ended with ZeroDivisionError" in caplog.text


def test_an_interruption_of_the_program_ends_the_connection_and_comes_out(made):
    def interrupted(messages, binary):
        raise KeyboardInterrupt

    made.near_transport.send_at_once = interrupted
    with pytest.raises(KeyboardInterrupt):
        made.near.open("x", end=True)
    settle()
    assert made.near.close_cause.code == 1011


def test_a_drain_sees_that_it_has_left(made):
    released = gevent.event.Event()

    def handle(payload, stream):
        released.wait()
        stream.reply(payload)

    made.near.on_stream(handle)
    asking = gevent.spawn(made.far.request, "x", timeout=PATIENCE)
    settle()
    closing = gevent.spawn(made.near.close)
    settle()
    assert not closing.ready()
    released.set()
    closing.get(timeout=PATIENCE)
    assert asking.get(timeout=PATIENCE) == "x"


def test_a_callback_of_the_hub_may_send(made):
    sent_now(made)
    gevent.get_hub().loop.run_callback(made.near.notify, "x")
    settle()
    assert sent_now(made) == 1


def test_a_stream_of_notifications_still_lets_others_have_a_turn(made):
    turns = []

    def count():
        for _ in range(1000):
            turns.append(1)
            gevent.sleep(0)

    counter = gevent.spawn(count)
    for _ in range(2000):
        made.near.notify("x" * 100)
    counter.kill()
    assert len(turns) > 1


def test_a_handler_whose_own_write_finds_the_connection_gone_is_stopped(made):
    """It has not ended its stream itself, and whatever it waits for next may never come."""
    ended = []

    def handle(payload, stream):
        quiet()
        made.near_transport.send_at_once = gone
        made.near.notify("somebody else's")
        try:
            gevent.event.Event().wait(PATIENCE)
        except BaseException as error:
            ended.append(type(error).__name__)
            raise

    made.near.on_stream(handle)
    made.far.open("x")
    quiet()
    quiet()
    settle()
    assert ended == ["HandlerStopped"]


def test_a_stream_is_closed_though_its_last_write_was_interrupted(made):
    def interrupted(messages, binary):
        raise KeyboardInterrupt

    seen = []

    def handle(payload, stream):
        quiet()
        made.near_transport.send_at_once = interrupted
        closed = stream.closed
        with pytest.raises(KeyboardInterrupt):
            stream.reply("y")
        seen.append(closed.is_set())

    made.near.on_stream(handle)
    made.far.open("x", end=True)
    quiet()
    quiet()
    settle()
    assert seen == [True]


def test_a_stream_that_the_collector_ends_during_a_write_is_ended_behind_it(made):
    """What is taken out of the queue must not change meanwhile."""
    calls = []

    def send(messages, binary):
        made.near._link.tidy_up(lambda: calls.append("tidied"))
        calls.append("sent")

    made.near_transport.send_at_once = send
    made.near.notify("x")
    assert calls == ["sent"]
    settle()
    assert calls == ["sent", "tidied"]
