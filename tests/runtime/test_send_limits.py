"""Who waits for room to send, for whose sake, and how that wait ends (DESIGN §5)."""

from __future__ import annotations

import gevent
import pytest

from muxws_green import (
    ConnectionGoingAway,
    ConnectionLost,
    RemoteError,
    ResetCode,
    StreamReset,
    StreamState,
    StreamTimeout,
)
from muxws_green.testing import settle
from tests.runtime.ends import PATIENCE, Gate, echo, outcome

#: The send buffer of these tests; also the limit of a lane. The reserve for small payloads is a quarter of it.
LIMIT = 100_000


@pytest.fixture
def stuck(ends):
    """Makes a pair whose near end cannot write more than one message, until the line is resumed."""

    def stuck(limit=LIMIT, **options):
        made = ends(capacity_bytes=1, near_options={"send_buffer_bytes": limit}, **options)
        made.far.on_stream(lambda payload, stream: stream.reply(len(list(stream))))
        made.near_transport.outgoing.stall()
        return made

    return stuck


def fill(made, size=3 * LIMIT):
    """Queue more than the limit on a stream of its own, which may be as big as it likes while the lane is empty."""
    stream = made.near.open("x" * size)
    settle()
    assert made.near.stats.queued_bytes > LIMIT
    return stream


def flow(made):
    made.near_transport.outgoing.resume()


def test_one_payload_of_any_size_may_be_queued_on_an_empty_lane(stuck):
    made = stuck()
    stream = made.near.open("x" * 5_000_000)
    settle()
    assert made.near.stats.queued_bytes > 4_800_000
    flow(made)
    stream.end()
    assert stream.result(PATIENCE) == 0


def test_a_sender_waits_while_its_own_lane_is_full_and_goes_on(stuck):
    made = stuck(limit=1_000_000)
    slow, other = made.near.open(), made.near.open()
    sent = []

    def send_all():
        for number in range(40):
            slow.send("x" * 50_000)
            sent.append(number)
        slow.end()

    sender = gevent.spawn(send_all)
    settle()
    waiting_at = len(sent)
    assert 15 <= waiting_at < 25
    # It waits for its own lane; another stream of the same connection does not.
    other.end("small")
    assert made.near.stats.queued_bytes < 1_200_000
    flow(made)
    assert other.result(PATIENCE) == 1
    assert slow.result(PATIENCE) == 40
    sender.get(timeout=PATIENCE)


@pytest.mark.parametrize("call", ["send", "open", "notify", "request"])
def test_big_payloads_wait_for_the_whole_connection(stuck, call):
    made = stuck()
    stream = made.near.open()
    filling = fill(made)
    big = "y" * 70_000
    calls = {
        "send": lambda: stream.send(big),
        "open": lambda: made.near.open(big),
        "notify": lambda: made.near.notify(big),
        "request": lambda: made.near.request(big),
    }
    waiting = outcome(calls[call])
    settle()
    assert not waiting.dead
    opened = made.near.stats.streams_opened
    assert opened == 2
    filling.end()
    flow(made)
    value = waiting.get(timeout=PATIENCE)
    assert value == 0 if call == "request" else not isinstance(value, BaseException)


def test_a_small_call_does_not_wait_for_somebody_elses_big_payload(stuck):
    made = stuck()
    fill(made)
    small = [outcome(made.near.request, "s" * 100) for _ in range(20)]
    settle()
    # Queued all the same: only the answers are missing.
    assert len(made.near.streams) == 21
    flow(made)
    gevent.joinall(small, timeout=PATIENCE)
    assert [each.value for each in small] == [0] * 20


def test_small_payloads_wait_when_the_reserve_is_used_up_too(stuck):
    made = stuck()
    fill(made)
    small = [outcome(made.near.request, "s" * 1_000) for _ in range(200)]
    settle()
    queued = made.near.stats.queued_bytes
    assert queued < 4 * LIMIT
    assert 10 < len(made.near.streams) < 60
    flow(made)
    gevent.joinall(small, timeout=PATIENCE)
    assert [each.value for each in small] == [0] * 200


def test_open_takes_no_id_while_it_waits(stuck):
    made = stuck()
    first = fill(made)
    waiting = outcome(made.near.open, "y" * 70_000)
    settle()
    small = made.near.open("small")
    assert small.id == first.id + 2
    flow(made)
    assert waiting.get(timeout=PATIENCE).id == small.id + 2


@pytest.mark.parametrize("by", ["the remote", "this end"])
def test_who_waits_to_open_is_told_at_once_that_a_side_is_going_away(stuck, by):
    made = stuck()
    fill(made)
    opening = outcome(made.near.open, "y" * 100_000)
    settle()
    assert not opening.dead
    if by == "the remote":
        made.inject(type="goaway", code=0, last_stream=1_000)
    else:
        closing = gevent.spawn(made.near.close)
    assert isinstance(opening.get(timeout=PATIENCE), ConnectionGoingAway)
    assert made.near.stats.queued_bytes > LIMIT
    if by == "this end":
        closing.kill()


@pytest.mark.parametrize("call", ["open", "notify"])
def test_wait_false_raises_and_sends_nothing(stuck, call):
    made = stuck()
    fill(made)
    with pytest.raises(BlockingIOError, match="no room for 70002 bytes"):
        getattr(made.near, call)("y" * 70_000, wait=False)
    assert made.near.stats.streams_opened == 1
    # There is room for what fits one frame.
    getattr(made.near, call)("small", wait=False)
    assert made.near.stats.streams_opened == 2


def test_the_deadline_of_a_request_counts_the_wait_for_room(stuck, clock):
    made = stuck(clock=clock)
    fill(made)
    with pytest.raises(StreamTimeout, match="no room"):
        made.near.request("y" * 70_000, timeout=2.0)
    assert clock.now() == 2.0
    assert made.near.stats.streams_opened == 1
    with pytest.raises(StreamTimeout):
        made.near.request("small", timeout=2.0)
    assert clock.now() == 4.0


# How the wait ends when the sender's stream does


def full_lane(made):
    """A stream whose lane is full, and a greenlet that waits for it."""
    stream = made.near.open("x" * 3 * LIMIT)
    return stream, outcome(stream.send, "y" * 70_000)


def full_connection(made):
    """A stream with an empty lane, and a greenlet that waits since another one has filled the connection."""
    stream = made.near.open()
    fill(made)
    return stream, outcome(stream.send, "y" * 70_000)


def huge_on_full_lane(made):
    """A stream that is to get a payload which never fits behind another one."""
    stream = made.near.open("x" * 3 * LIMIT)
    return stream, outcome(stream.send, "y" * 3 * LIMIT)


FULL = [full_lane, full_connection, huge_on_full_lane]


def test_several_may_wait_for_one_lane_and_all_get_their_turn(stuck):
    made = stuck()
    stream = made.near.open("x" * 3 * LIMIT)
    waiting = [outcome(stream.send, "y" * LIMIT) for _ in range(3)]
    settle()
    assert not any(each.dead for each in waiting)
    flow(made)
    for each in waiting:
        assert each.get(timeout=PATIENCE) is None
    stream.end()
    assert stream.result(PATIENCE) == 3


@pytest.mark.parametrize("full", FULL)
@pytest.mark.parametrize("by", ["remote", "this end"])
def test_a_waiting_sender_is_told_at_once_that_its_stream_was_reset(stuck, full, by):
    made = stuck()
    stream, waiting = full(made)
    settle()
    assert not waiting.dead
    if by == "remote":
        made.inject(type="reset", stream=stream.id, code=3, reason="not so much")
    else:
        stream.reset(ResetCode.PROTOCOL_ERROR, "not so much")
    # The line is still stalled, so no room comes.
    error = waiting.get(timeout=PATIENCE)
    assert type(error) is StreamReset
    assert error.reason == "not so much"


@pytest.mark.parametrize("full", FULL)
def test_a_waiting_sender_is_told_that_the_connection_died(stuck, full):
    made = stuck()
    _, waiting = full(made)
    opening = outcome(made.near.open, "y" * 70_000)
    settle()
    assert not waiting.dead
    made.drop()
    for each in (waiting, opening):
        error = each.get(timeout=PATIENCE)
        assert isinstance(error, ConnectionLost)
        assert error.__cause__.code == 1006


@pytest.mark.parametrize("full", FULL)
@pytest.mark.parametrize("thrown", [gevent.Timeout(5), gevent.GreenletExit("stop"), KeyError("mine")])
def test_what_is_thrown_into_a_waiting_sender_cancels_its_stream(stuck, full, thrown):
    made = stuck()
    stream, waiting = full(made)
    settle()
    waiting.kill(thrown, block=False)
    assert waiting.get(timeout=PATIENCE) is thrown
    assert stream.state is StreamState.CLOSED
    flow(made)
    settle()
    assert [frame["code"] for frame in made.sent_of("reset")] == [ResetCode.CANCELLED]


@pytest.mark.parametrize("full", FULL)
def test_a_handler_that_waits_to_send_is_told_of_the_end_of_its_stream(ends, full):
    made = ends(capacity_bytes=1, near_options={"send_buffer_bytes": LIMIT})
    gate = Gate()

    def handle(payload, stream):
        if payload == "fill":
            stream.send("x" * 3 * LIMIT)
            return
        if full is not full_connection:
            stream.send("x" * 3 * LIMIT)
        gate.stream = stream
        gate.entered.set()
        try:
            stream.send("y" * (3 * LIMIT if full is huge_on_full_lane else 70_000))
        except BaseException as error:
            gate.error = error
            raise
        finally:
            gate.ended.set()

    made.near.on_stream(handle)
    made.near_transport.outgoing.stall()
    if full is full_connection:
        made.far.open("fill")
    stream = made.far.open("x")
    gate.reached()
    settle()
    stream.cancel()
    assert gate.ended.wait(PATIENCE)
    assert type(gate.error) is StreamReset
    assert gate.error.code is ResetCode.CANCELLED
    assert made.near.is_open


def test_a_waiting_sender_is_told_of_a_reset_that_is_queued_behind_its_payloads(ends):
    made, waiting = ends(capacity_bytes=1, near_options={"send_buffer_bytes": LIMIT}), []

    def handle(payload, stream):
        stream.send("x" * 3 * LIMIT)
        waiting.append(outcome(stream.send, "y" * 70_000))
        gevent.sleep(0)
        raise LookupError("no more")

    made.near.on_stream(handle)
    made.near_transport.outgoing.stall()
    made.far.open()
    settle()
    error = waiting[0].get(timeout=PATIENCE)
    assert isinstance(error, RemoteError)
    assert made.near.stats.queued_bytes > LIMIT


# No wake-up is lost


def nearly_full(made):
    """The last batch of what fills the connection is about to leave: there will be one occasion to wake somebody."""
    made.near.open("x" * 180_000)
    settle()
    assert made.near.stats.queued_bytes > 40_000


def use_up_the_reserve(made):
    """Small payloads find no room either from now on."""
    while made.near._link.core.lanes.has_room(None, 1_000, True):
        made.near.notify("s" * 1_000, wait=False)


def test_one_who_was_woken_in_vain_passes_the_room_on(stuck):
    made = stuck(limit=40_000)
    stream = made.near.open()
    nearly_full(made)
    refused = [outcome(made.near.open, "y" * 70_000) for _ in range(3)]
    settle()
    waiting = outcome(stream.send, "z" * 70_000)
    settle()
    made.inject(type="goaway", code=0, last_stream=1_000)
    settle()
    flow(made)
    assert waiting.get(timeout=PATIENCE) is None
    for each in refused:
        assert isinstance(each.get(timeout=PATIENCE), ConnectionGoingAway)


@pytest.mark.parametrize("size", [70_000, 30_000])
def test_one_who_is_killed_before_the_wake_up_reaches_it_passes_the_room_on(stuck, size):
    made = stuck(limit=40_000)
    nearly_full(made)
    use_up_the_reserve(made)
    doomed = outcome(made.near.open, "y" * size)
    settle()
    waiting = outcome(made.near.open, "z" * size)
    settle()
    assert not doomed.dead
    assert not waiting.dead
    outlet = made.near._link.outlet
    woken = outlet._big if size == 70_000 else outlet._small
    woken.wake_one()
    doomed.kill()
    flow(made)
    assert not isinstance(waiting.get(timeout=PATIENCE), BaseException)


def test_one_whose_deadline_comes_with_the_wake_up_passes_the_room_on(stuck, clock):
    made = stuck(limit=40_000, clock=clock)
    nearly_full(made)
    late = outcome(made.near.request, "y" * 70_000, timeout=3.0)
    settle()
    waiting = outcome(made.near.open, "z" * 70_000)
    settle()

    def room_comes():
        made.near._link.core.lanes.clear()
        made.near._link.outlet.admit()

    clock.call_later(3.0, room_comes)
    late.join(timeout=PATIENCE)
    assert isinstance(late.value, StreamTimeout)
    assert not isinstance(waiting.get(timeout=PATIENCE), BaseException)


@pytest.mark.parametrize("size", [70_000, 1_000])
def test_those_who_wait_to_open_learn_that_the_connection_is_gone(stuck, size):
    made = stuck(limit=40_000)
    nearly_full(made)
    use_up_the_reserve(made)
    waiting = [outcome(made.near.open, "y" * size) for _ in range(40)]
    settle()
    assert not any(each.dead for each in waiting)
    made.near_transport.abort()
    for each in waiting:
        assert isinstance(each.get(timeout=PATIENCE), ConnectionLost)


@pytest.mark.parametrize("size", [70_000, 1_000])
def test_a_stream_on_which_somebody_waits_to_send_is_not_cancelled_by_leaving(stuck, size):
    made = stuck(limit=40_000)
    attended, left = made.near.open(), made.near.open()
    nearly_full(made)
    use_up_the_reserve(made)
    sending = outcome(attended.end, "y" * size)
    settle()
    assert not sending.dead
    assert (attended._is_unattended(), left._is_unattended()) == (False, True)
    flow(made)
    assert sending.get(timeout=PATIENCE) is None


def test_many_waiters_all_get_their_turn(stuck):
    made = stuck(limit=40_000)
    nearly_full(made)
    waiting = [outcome(made.near.request, "y" * size) for size in (70_000, 1_000, 30_000) * 15]
    settle()
    flow(made)
    gevent.joinall(waiting, timeout=PATIENCE)
    assert [each.value for each in waiting] == [0] * 45


# Everybody else


@pytest.mark.parametrize("size, count", [(10_000, 200), (1, 40_000)])
def test_a_loop_that_only_sends_lets_others_run(ends, size, count):
    made = ends()
    made.far.on_stream(lambda payload, stream: stream.reply(len(list(stream))))
    turns = []

    def take_turns():
        while True:
            turns.append(1)
            gevent.sleep(0)

    others = gevent.spawn(take_turns)
    stream = made.near.open()
    for _ in range(count):
        stream.send("x" * size)
    others.kill()
    stream.end()
    assert len(turns) > 20
    assert stream.result(PATIENCE) == count


def test_a_callback_of_the_hub_may_send_what_there_is_room_for(ends):
    made = ends()
    got = []
    made.far.on_stream(lambda payload, stream: got.append(payload))
    errors = []

    def tell():
        try:
            for number in range(10):
                made.near.notify([number, "x" * 30_000])
        except BaseException as error:
            errors.append(error)

    gevent.get_hub().loop.run_callback(tell)
    settle()
    assert errors == []
    assert [number for number, _ in got] == list(range(10))


def test_a_callback_of_the_hub_must_not_wait(stuck):
    made = stuck()
    fill(made)
    errors = []

    def tell():
        try:
            made.near.notify("y" * 70_000)
        except RuntimeError as error:
            errors.append(str(error))

    gevent.get_hub().loop.run_callback(tell)
    settle()
    assert len(errors) == 1
    assert "spawn a greenlet" in errors[0]


@pytest.mark.case("C63")
def test_a_remote_that_never_reads_holds_up_its_own_sender_only(make):
    pairs = [make(near="acceptor", capacity_bytes=1, send_buffer_bytes=1_000_000) for _ in range(4)]
    pairs[0].near_transport.outgoing.stall()
    counts = [0] * 4

    def push(index):
        for _ in range(100):
            pairs[index].near.notify("x" * 60_000)
            counts[index] += 1

    for made in pairs:
        made.far.on_stream(echo)
    pushers = [gevent.spawn(push, index) for index in range(4)]
    gevent.joinall(pushers[1:], timeout=PATIENCE)
    assert counts[1:] == [100] * 3
    assert counts[0] < 30
    assert pairs[0].near.stats.queued_bytes <= 1_250_000 + 65_536
    pushers[0].kill()


@pytest.mark.case("C59")
def test_both_ends_write_at_once_and_neither_waits_for_the_other_to_read(ends):
    made = ends(capacity_bytes=4_096, send_buffer_bytes=200_000)

    def back(payload, stream):
        for row in stream:
            stream.send(row)

    for peer in (made.near, made.far):
        peer.on_stream(back)

    def exchange(peer):
        stream = peer.open()

        def send():
            for number in range(20):
                stream.send([number, "x" * 60_000])
            stream.end()

        sender = gevent.spawn(send)
        got = [number for number, _ in stream]
        sender.get()
        return got

    running = [gevent.spawn(exchange, peer) for peer in (made.near, made.far) for _ in range(4)]
    gevent.joinall(running, timeout=15)
    assert [each.value for each in running] == [list(range(20))] * 8
