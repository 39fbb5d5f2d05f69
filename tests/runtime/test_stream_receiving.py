"""What one end takes from a stream: `result`, `receive` and iteration, and how each of them can end (PROTOCOL §6)."""

from __future__ import annotations

import gc
import threading

import gevent
import pytest

from muxws_green import (
    ConnectionLost,
    ProtocolError,
    RemoteError,
    ResetCode,
    StreamAlreadyConsumed,
    StreamClosed,
    StreamReset,
    StreamState,
    StreamTimeout,
)
from muxws_green.testing import settle
from tests.runtime.ends import PATIENCE, Gate, outcome


@pytest.fixture
def opened(ends):
    """Makes a stream that the near end has opened, and the far end of it, whose handler stands still."""

    def opened(**options):
        made, gate = ends(**options), Gate()
        made.far.on_stream(gate)
        stream = made.near.open()
        gate.reached()
        return made, stream, gate.stream

    return opened


# The first payload


def test_result_is_the_first_payload_before_the_end_and_again(opened):
    _, stream, far = opened()
    far.send("first")
    assert stream.result(PATIENCE) == "first"
    assert stream.state is StreamState.OPEN
    far.send("second")
    far.end()
    stream.end()
    stream.closed.wait(PATIENCE)
    assert stream.result() == "first"


def test_a_handler_reads_with_result_too(opened):
    _, stream, far = opened()
    stream.send("from the opener")
    assert far.result(PATIENCE) == "from the opener"


def test_two_greenlets_may_wait_for_one_result(opened):
    _, stream, far = opened()
    waiting = [outcome(stream.result) for _ in range(3)]
    gevent.idle()
    far.send("x")
    assert [each.get(timeout=PATIENCE) for each in waiting] == ["x"] * 3


@pytest.mark.parametrize("value", [None, False, 0, "", [], {}])
def test_result_may_be_a_false_value(opened, value):
    _, stream, far = opened()
    far.reply(value)
    assert stream.result(PATIENCE) == value
    assert stream.result() == value


def test_an_end_without_any_payload_is_a_protocol_error(opened):
    _, stream, far = opened()
    far.end()
    for _ in range(2):
        with pytest.raises(ProtocolError, match="without a payload"):
            stream.result(PATIENCE)


def test_a_reset_before_the_first_call_wins_over_a_payload_that_had_arrived(opened):
    _, stream, far = opened()
    far.send("first")
    far.send("second")
    settle()
    far.reset(ResetCode.PROTOCOL_ERROR, "too late")
    settle()
    for _ in range(2):
        with pytest.raises(StreamReset, match="too late"):
            stream.result()


def test_a_payload_wins_over_a_reset_that_comes_in_the_same_read(opened):
    made, stream, _ = opened()
    waiting = outcome(stream.result)
    gevent.idle()
    made.inject(type="data", stream=stream.id, payload="first")
    made.inject(type="reset", stream=stream.id, code=1, reason="stop")
    assert waiting.get(timeout=PATIENCE) == "first"
    assert stream.result() == "first"


def test_result_may_be_asked_again_after_a_reset(opened):
    _, stream, far = opened()
    far.send("first")
    assert stream.result(PATIENCE) == "first"
    far.cancel()
    stream.closed.wait(PATIENCE)
    assert stream.result() == "first"


def test_what_follows_a_result_is_dropped_on_arrival(opened):
    made, stream, far = opened()
    for _ in range(3):
        far.send("x" * 1_000)
    settle()
    assert made.near.stats.held_bytes > 3_000
    stream.result()
    assert made.near.stats.held_bytes == 0
    far.send("x" * 1_000)
    settle()
    assert made.near.stats.held_bytes == 0


# Iteration


def test_iteration_yields_every_payload_and_then_ends(opened):
    _, stream, far = opened()
    got = outcome(lambda: list(stream))
    for number in range(3):
        far.send(number)
        gevent.idle()
    far.end("last")
    assert got.get(timeout=PATIENCE) == [0, 1, 2, "last"]


def test_iteration_yields_what_had_arrived_and_then_raises_the_reset(opened):
    _, stream, far = opened()
    far.send(1)
    far.send(2)
    settle()
    far.reset(ResetCode.PROTOCOL_ERROR, "broken off")
    settle()
    got = []
    with pytest.raises(StreamReset, match="broken off"):
        got.extend(row for row in stream)
    assert got == [1, 2]


def test_an_iteration_never_ends_as_if_complete_when_the_socket_dies(opened):
    made, stream, far = opened()
    far.send(1)
    settle()
    got = outcome(lambda: list(stream))
    gevent.idle()
    made.drop()
    assert isinstance(got.get(timeout=PATIENCE), ConnectionLost)


@pytest.mark.parametrize("leave", ["break", "exception", "close", "garbage", "never begun", "interrupted"])
def test_leaving_an_iteration_cancels_the_stream(opened, leave):
    made, stream, far = opened()
    far.send(1)
    far.send(2)
    settle()
    if leave == "break":
        for _ in stream:
            break
    elif leave == "exception":
        with pytest.raises(KeyError):
            for _ in stream:
                raise KeyError
    elif leave == "close":
        rows = iter(stream)
        next(rows)
        rows.close()
        rows.close()
    elif leave == "garbage":
        rows = iter(stream)
        next(rows)
        del rows
        gc.collect()
    elif leave == "never begun":
        assert list(zip([], stream, strict=False)) == []
        gc.collect()
    else:
        rows = iter(stream)
        next(rows)
        next(rows)
        thrown = gevent.Timeout(0.001)
        with pytest.raises(gevent.Timeout) as caught, thrown:
            next(rows)
        assert caught.value is thrown
    assert stream.state is StreamState.CLOSED
    settle()
    assert [frame["code"] for frame in made.sent_of("reset")] == [ResetCode.CANCELLED]
    assert far.state is StreamState.CLOSED
    with pytest.raises(StreamReset):
        stream.receive()


def test_an_iteration_that_came_to_its_end_cancels_nothing(opened):
    made, stream, far = opened()
    far.end("only")
    settle()
    rows = iter(stream)
    assert list(rows) == ["only"]
    assert list(rows) == []
    del rows
    assert stream.state is StreamState.HALF_CLOSED_REMOTE
    stream.end()
    settle()
    assert made.sent_of("reset") == []


def test_whether_the_remotes_end_has_come_makes_no_difference_to_leaving(opened):
    made, stream, far = opened()
    far.send(1)
    far.end(2)
    settle()
    for _ in stream:
        break
    assert stream.state is StreamState.CLOSED
    settle()
    assert [frame["code"] for frame in made.sent_of("reset")] == [ResetCode.CANCELLED]


def test_an_iteration_is_left_by_a_collector_in_another_thread(opened):
    made, stream, far = opened()
    far.send(1)
    rows = [iter(stream)]
    assert next(rows[0]) == 1
    thread = threading.Thread(target=rows.clear)
    thread.start()
    thread.join()
    assert stream.closed.wait(PATIENCE)
    settle()
    assert [frame["code"] for frame in made.sent_of("reset")] == [ResetCode.CANCELLED]


@pytest.mark.parametrize("direction", ["rx", "tx"])
def test_an_iteration_is_left_in_the_middle_of_what_the_reader_or_the_writer_does(opened, direction):
    made, stream, far = opened()
    far.send(1)
    rows, after = [iter(stream)], []
    assert next(rows[0]) == 1

    def hook(seen, frame, size):
        if seen == direction and rows:
            rows.clear()
            # Their own work comes first.
            after.append(stream.state)

    made.near.on_frame(hook)
    assert made.near.ping() >= 0.0
    assert after == [StreamState.OPEN]
    settle()
    assert stream.state is StreamState.CLOSED
    assert [frame["code"] for frame in made.sent_of("reset")] == [ResetCode.CANCELLED]


def test_leaving_a_with_cancels_a_live_stream_only(opened):
    made, stream, _far = opened()
    with stream:
        pass
    assert stream.state is StreamState.CLOSED
    settle()
    assert [frame["code"] for frame in made.sent_of("reset")] == [ResetCode.CANCELLED]
    with made.near.open() as second:
        second.reset(ResetCode.NO_ERROR)
    settle()
    assert [frame["code"] for frame in made.sent_of("reset")] == [ResetCode.CANCELLED, ResetCode.NO_ERROR]


# Claims


@pytest.mark.parametrize("first", ["result", "iteration", "receive"])
def test_a_stream_has_one_consumer(opened, first):
    _, stream, far = opened()
    far.send(1)
    far.send(2)
    settle()
    rows = None
    if first == "result":
        stream.result()
        with pytest.raises(StreamAlreadyConsumed):
            iter(stream)
        with pytest.raises(StreamAlreadyConsumed):
            stream.receive()
    else:
        if first == "iteration":
            rows = iter(stream)
            with pytest.raises(StreamAlreadyConsumed, match="iterated"):
                iter(stream)
            assert next(rows) == 1
        else:
            assert stream.receive() == 1
        with pytest.raises(StreamAlreadyConsumed):
            stream.result()
    assert stream.state is StreamState.OPEN


def test_a_call_with_a_wrong_timeout_claims_nothing(opened):
    _, stream, far = opened()
    far.send(1)
    for wrong in (-1, float("nan"), "soon", True):
        with pytest.raises(ValueError, match="timeout"):
            stream.result(wrong)
    assert list(zip(range(1), stream, strict=False)) == [(0, 1)]


# One payload at a time


def test_receive_takes_one_payload_at_a_time(opened):
    _, stream, far = opened()
    for number in range(3):
        far.send(number)
    far.end()
    assert [stream.receive(PATIENCE) for _ in range(3)] == [0, 1, 2]
    for _ in range(2):
        with pytest.raises(StreamClosed, match="no more"):
            stream.receive()


def test_receive_polls_with_a_timeout_of_zero(opened):
    made, stream, far = opened()
    for _ in range(2):
        with pytest.raises(StreamTimeout, match="yet"):
            stream.receive(timeout=0)
    far.send(1)
    settle()
    assert stream.receive(timeout=0) == 1
    far.end()
    settle()
    with pytest.raises(StreamClosed):
        stream.receive(timeout=0)
    assert made.sent_of("reset") == []


def test_racing_receivers_share_the_payloads_out(opened):
    _, stream, far = opened()
    waiting = [outcome(stream.receive) for _ in range(3)]
    gevent.idle()
    far.send(1)
    far.send(2)
    settle()
    assert sorted(each.get() for each in waiting if each.dead) == [1, 2]
    far.end()
    gevent.joinall(waiting, timeout=PATIENCE)
    assert sum(isinstance(each.value, StreamClosed) for each in waiting) == 1


def test_receive_raises_a_reset_behind_what_had_arrived(opened):
    _, stream, far = opened()
    far.send(1)
    settle()
    far.cancel("no more")
    settle()
    assert stream.receive() == 1
    errors = []
    for _ in range(2):
        with pytest.raises(StreamReset, match="no more") as caught:
            stream.receive()
        errors.append(caught.value)
    # A fresh one each time: one and the same would grow a traceback.
    assert errors[0] is not errors[1]


# Deadlines


@pytest.mark.parametrize("call", ["result", "receive"])
def test_a_deadline_resets_the_stream_and_raises(opened, clock, call):
    made, stream, far = opened(clock=clock)
    with pytest.raises(StreamTimeout, match="3") as caught:
        getattr(stream, call)(timeout=3.0)
    assert clock.now() == 3.0
    assert caught.value.stream_id == stream.id
    settle()
    (reset,) = made.sent_of("reset")
    assert reset["code"] == ResetCode.TIMEOUT
    assert far.state is StreamState.CLOSED
    with pytest.raises(StreamTimeout):
        far.send(1)
    with pytest.raises(StreamTimeout):
        getattr(stream, call)()


def test_a_payload_at_the_moment_of_the_deadline_wins(opened, clock):
    made, stream, far = opened(clock=clock)
    clock.call_later(
        3.0, lambda: made.near._link.core.receive(f'{{"type":"data","stream":{stream.id},"payload":"just"}}')
    )
    assert stream.result(timeout=3.0) == "just"
    assert far.state is StreamState.OPEN


def test_result_with_a_timeout_of_zero_waits_for_nothing(opened, clock):
    made, stream, far = opened(clock=clock)
    far.send("there")
    settle()
    assert stream.result(timeout=0) == "there"
    second = made.near.open()
    with pytest.raises(StreamTimeout):
        second.result(timeout=0)
    assert clock.now() == 0.0


def test_an_infinite_timeout_is_none(opened, clock):
    _made, stream, far = opened(clock=clock)
    clock.call_later(1e6, lambda: far.send("late"))
    assert stream.result(timeout=float("inf")) == "late"


# What is thrown into a wait


@pytest.mark.parametrize("call", ["result", "receive", "iterate"])
@pytest.mark.parametrize("thrown", [gevent.Timeout(5), gevent.GreenletExit("stop"), KeyError("mine"), SystemExit(3)])
@pytest.mark.case("C20")
def test_what_is_thrown_into_a_wait_comes_out_as_that_same_object(opened, call, thrown):
    made, stream, far = opened()
    waits = {"result": stream.result, "receive": stream.receive, "iterate": lambda: list(stream)}[call]
    waiting = outcome(waits)
    gevent.idle()
    waiting.kill(thrown, block=False)
    assert waiting.get(timeout=PATIENCE) is thrown
    settle()
    assert [frame["code"] for frame in made.sent_of("reset")] == [ResetCode.CANCELLED]
    assert far.state is StreamState.CLOSED


def test_a_wait_that_is_killed_leaves_the_others_alone(opened):
    made, stream, _far = opened()
    second = made.near.open()
    doomed, other = outcome(stream.result), outcome(second.result)
    gevent.idle()
    doomed.kill()
    next(each for each in made.far.streams.values() if each.id == second.id).reply("fine")
    assert other.get(timeout=PATIENCE) == "fine"


# The other direction's failures


def test_a_remote_error_carries_the_payload(ends):
    ends = ends()

    def handle(payload, stream):
        raise ValueError("so not")

    ends.far.on_stream(handle)
    with pytest.raises(RemoteError, match="so not") as caught:
        ends.near.request()
    assert caught.value.payload == {"type": "ValueError", "message": "so not"}
    assert caught.value.code is ResetCode.APPLICATION_ERROR


@pytest.mark.parametrize(
    "code, kind",
    [
        (0, StreamReset),
        (1, StreamReset),
        (3, StreamReset),
        (6, StreamTimeout),
        (8, StreamReset),
        (9, StreamReset),
        (77, StreamReset),
    ],
)
def test_each_code_from_the_wire_has_its_exception(opened, code, kind):
    made, stream, _ = opened()
    made.inject(type="reset", stream=stream.id, code=code, reason="why")
    with pytest.raises(kind, match="why") as caught:
        stream.result(PATIENCE)
    assert type(caught.value) is kind
    assert caught.value.code == code
    assert made.near.is_open


def test_late_frames_are_ignored(opened):
    made, stream, _far = opened()
    stream.cancel()
    for number in range(3):
        made.inject(type="data", stream=stream.id, payload=number)
    made.inject(type="reset", stream=stream.id, code=1)
    settle()
    assert made.near.is_open
    assert made.near.stats.late_frames == 4
    assert made.near.stats.held_bytes == 0
