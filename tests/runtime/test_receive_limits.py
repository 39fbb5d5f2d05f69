"""What may arrive and not be consumed: the pause, whom it spares, and who pays (DESIGN §5)."""

from __future__ import annotations

import gc

import gevent
import pytest
from gevent.event import Event

from muxws_green import ConnectionLost, IdleHeartbeat, ResetCode, StreamReset, StreamState
from muxws_green.testing import settle
from tests.runtime.ends import PATIENCE, outcome

#: The soft limit of these tests; the hard one is four times as much. A payload of theirs weighs a tenth of it.
SOFT = 200_000
PAYLOAD = "x" * 20_000


@pytest.fixture
def export(ends, clock):
    """Makes a pair whose far end answers `["rows", n]` with so many payloads, and anything else with itself."""

    def handle(payload, stream):
        if isinstance(payload, list) and payload[0] == "rows":
            for _ in range(payload[1]):
                stream.send(PAYLOAD)
        else:
            stream.reply(payload)

    def export(**options):
        made = ends(clock=clock, near_options={"receive_buffer_bytes": SOFT, "heartbeat": None} | options)
        made.far.on_stream(handle)
        return made

    return export


def intake(made):
    return made.near._link.intake


def test_reading_pauses_past_the_soft_limit_and_resumes_at_half_of_it(export, clock):
    made = export()
    stream = made.near.open(["rows", 50])
    with clock.held():
        settle()
        assert intake(made).paused
        # At most one read more than the limit.
        assert SOFT < made.near.stats.held_bytes <= SOFT + 65_536 + 20_000
        received, taken = made.near_transport.received_bytes, 0
        while made.near.stats.held_bytes - 2 * len(PAYLOAD) > SOFT // 2:
            stream.receive()
            taken += 1
            settle()
            assert made.near_transport.received_bytes == received
        assert taken >= 4
        stream.receive()
        stream.receive()
        settle()
        assert made.near_transport.received_bytes > received
        assert sum(1 for _ in stream) + taken + 2 == 50
    assert not intake(made).paused
    assert made.near.stats.held_bytes == 0


def test_a_pause_holds_back_the_remotes_sender(export, clock):
    made = export()
    made.near_transport.incoming.capacity_bytes = 100_000
    stream = made.near.open(["rows", 500])
    with clock.held():
        settle()
        assert made.near.stats.held_bytes < 2 * SOFT
        # The far end's own limits hold its handler.
        assert made.far.stats.queued_bytes < 2_000_000
        assert sum(1 for _ in stream) == 500


def test_nobody_who_reads_is_ever_held_up_for_long(export, clock):
    made = export()
    assert [sum(1 for _ in made.near.open(["rows", 200])) for _ in range(3)] == [200] * 3
    assert clock.now() == 0.0


def test_the_stream_that_is_not_read_pays_alone(export, clock):
    made = export()
    good = made.near.open("good", end=True)
    stuck = made.near.open(["rows", 50])
    with clock.held():
        settle()
        call = outcome(made.near.request, "call")
        ping = outcome(made.near.ping, timeout=1e6)
        settle()
    assert call.get(timeout=PATIENCE) == "call"
    assert ping.get(timeout=PATIENCE) == 10.0
    assert clock.now() == 10.0
    assert good.result() == "good"
    with pytest.raises(StreamReset, match=r"nothing was consumed for 10\.0 s; read faster, or give") as caught:
        stuck.result()
    assert caught.value.code is ResetCode.CANCELLED
    settle()
    (reset,) = made.sent_of("reset")
    assert (reset["stream"], reset["code"]) == (stuck.id, ResetCode.CANCELLED)
    assert made.near.stats.held_bytes == 0
    assert made.near.is_open


def test_of_two_that_are_not_read_the_one_holding_more_pays(export, clock):
    made = export()
    more, less = made.near.open(["rows", 6]), made.near.open(["rows", 5])
    settle()
    clock.advance(10.0)
    assert more.state is StreamState.CLOSED
    with pytest.raises(StreamReset, match="nothing was consumed"):
        more.receive()
    assert sum(1 for _ in less) == 5


def test_progress_of_the_consumer_begins_the_wait_anew(export, clock):
    made = export()
    slow = made.near.open(["rows", 40])
    settle()
    for _ in range(4):
        clock.advance(9.0)
        assert slow.receive() == PAYLOAD
    assert clock.now() == 36.0
    assert slow.state is not StreamState.CLOSED
    clock.advance(9.9)
    assert slow.state is not StreamState.CLOSED
    clock.advance(0.2)
    assert slow.state is StreamState.CLOSED


def test_progress_of_another_consumer_does_not(export, clock):
    made = export()
    slow = made.near.open(["rows", 3])
    settle()
    stuck = made.near.open(["rows", 40])
    settle()
    clock.advance(9.0)
    assert slow.receive() == PAYLOAD
    clock.advance(1.0)
    assert stuck.state is StreamState.CLOSED
    assert sum(1 for _ in slow) == 2


def test_one_that_comes_to_hold_most_is_judged_by_its_own_progress(export, clock):
    made = export()
    read, stuck = made.near.open(["rows", 7]), made.near.open(["rows", 5])
    settle()
    clock.advance(5.0)
    read.receive()
    clock.advance(7.0)
    assert stuck.state is not StreamState.CLOSED
    assert intake(made).paused
    read.receive()
    read.receive()
    settle()
    assert clock.now() == 12.0
    assert stuck.state is StreamState.CLOSED
    assert sum(1 for _ in read) == 4


def test_pause_timeouts_are_an_option(export, clock):
    made = export(receive_pause_timeout=2.5)
    stuck = made.near.open(["rows", 40])
    settle()
    clock.advance(2.5)
    assert stuck.state is StreamState.CLOSED


# Whose wait a pause would make last for ever


def request(made):
    return made.near.request("call")


def ping(made):
    made.near.ping(timeout=1e6)
    return "call"


def result_of_another_stream(made):
    return made.near.open("call", end=True).result()


def iteration_of_another_stream(made):
    return "".join(made.near.open("call", end=True))


@pytest.mark.parametrize(
    "wait", [request, ping, result_of_another_stream, iteration_of_another_stream], ids=lambda wait: wait.__name__
)
def test_a_consumer_that_waits_on_this_connection_is_not_held_up(export, clock, wait):
    made = export()
    answers = [wait(made) for _ in made.near.open(["rows", 30])]
    assert answers == ["call"] * 30
    assert clock.now() == 0.0


def test_a_consumer_that_waits_to_send_is_not_held_up(ends, clock):
    # Both ends send back what they get, so that with both of them paused neither would have room again.
    made = ends(clock=clock, capacity_bytes=1, receive_buffer_bytes=SOFT, send_buffer_bytes=100_000)

    def back(payload, stream):
        for row in stream:
            stream.send(row)

    for peer in (made.near, made.far):
        peer.on_stream(back)

    def exchange(peer):
        stream = peer.open()

        def send():
            for _ in range(15):
                stream.send(PAYLOAD)
            stream.end()

        sender = gevent.spawn(send)
        clock.sleep(0)
        got = sum(1 for _ in stream)
        sender.get()
        return got

    running = [gevent.spawn(exchange, peer) for peer in (made.near, made.far) for _ in range(2)]
    gevent.joinall(running, timeout=PATIENCE)
    assert [each.value for each in running] == [15] * 4
    assert clock.now() == 0.0


def test_a_handler_that_has_only_its_opening_payload_is_its_streams_consumer(export, clock):
    made, answers = export(), []

    def handle(payload, stream):
        gevent.sleep(0)
        answers.append(made.near.request("call"))
        answers.append(sum(1 for _ in stream))

    made.near.on_stream(handle)
    upload = made.far.open("upload")
    for _ in range(30):
        upload.send(PAYLOAD)
    upload.end()
    upload.closed.wait(PATIENCE)
    assert answers == ["call", 30]
    assert clock.now() == 0.0


def test_a_request_gets_an_answer_over_the_soft_limit_whose_end_comes_later(export, clock):
    made = export()
    big = "y" * 3 * SOFT

    def handle(payload, stream):
        stream.send(big)
        clock.sleep(1.0)
        stream.end()

    made.far.on_stream(handle)
    assert made.near.request(timeout=60.0) == big
    assert clock.now() == 1.0


@pytest.mark.parametrize("call", ["request", "result", "receive", "iterate"])
def test_a_payload_over_the_hard_limit_reaches_whoever_waits_for_it(export, clock, call):
    made = export()
    big = "y" * 10 * SOFT
    stream = None if call == "request" else made.near.open(big, end=True)
    calls = {
        "request": lambda: made.near.request(big),
        "result": lambda: stream.result(),
        "receive": lambda: stream.receive(),
        "iterate": lambda: next(iter(stream)),
    }
    assert calls[call]() == big
    assert clock.now() == 0.0


def test_reading_goes_on_to_the_hard_limit_and_then_the_stream_fails_alone(export, clock):
    made, answers = export(), []

    def consume():
        answers.extend(made.near.request("slow", timeout=1e6) for _ in made.near.open(["rows", 200]))

    def handle(payload, stream):
        if payload == "slow":
            clock.sleep(1.0)
            stream.reply("late")
        else:
            for _ in range(200):
                stream.send(PAYLOAD)

    made.far.on_stream(handle)
    consumer = outcome(consume)
    error = consumer.get(timeout=PATIENCE)
    assert isinstance(error, StreamReset)
    assert error.code is ResetCode.CANCELLED
    assert f"more than {4 * SOFT} bytes" in error.reason
    # The call was answered; only the stream that held so much is gone.
    assert answers == ["late"]
    assert made.near.request("slow") == "late"


def test_a_consumer_that_begins_to_wait_ends_the_pause(export, clock):
    made, gate = export(), Event()

    def consume():
        rows = iter(made.near.open(["rows", 30]))
        next(rows)
        gate.wait()
        answer = made.near.request("call")
        return answer, sum(1 for _ in rows)

    consumer = outcome(consume)
    with clock.held():
        settle()
        assert intake(made).paused
        gate.set()
        assert consumer.get(timeout=PATIENCE) == ("call", 29)


def test_a_consumer_that_waits_for_something_else_is_held_up(export, clock):
    made, gate = export(), Event()

    def consume():
        rows = iter(made.near.open(["rows", 30]))
        next(rows)
        gate.wait()
        return sum(1 for _ in rows)

    consumer = outcome(consume)
    with clock.held():
        settle()
        assert intake(made).paused
        gate.set()
        assert consumer.get(timeout=PATIENCE) == 29


# What is not counted


def rows_for(made, call):
    """Have the far end send rows that nobody can ask for."""
    if call == "notify":
        made.near.notify(["rows", 30])
        return None
    stream = made.near.open(["rows", 30])
    if call == "result":
        assert stream.result() == PAYLOAD
    elif call == "cancelled":
        stream.receive()
        stream.cancel()
    elif call == "left":
        for _ in stream:
            break
    return stream


@pytest.mark.parametrize("call", ["notify", "result", "cancelled", "left"])
def test_payloads_that_nobody_can_ask_for_are_dropped_and_not_counted(export, clock, call):
    made = export()
    stream = rows_for(made, call)
    with clock.held():
        settle()
        assert made.near.stats.held_bytes <= (SOFT + 90_000 if call == "cancelled" else 0)
        assert not intake(made).paused
        assert made.near.request("call") == "call"
    del stream


def test_the_stream_of_a_failed_handler_holds_nothing_although_somebody_keeps_it(export, clock):
    made, kept = export(), []

    def handle(payload, stream):
        kept.append(stream)
        clock.sleep(1.0)
        raise ValueError

    made.near.on_stream(handle)
    stream = made.far.open()
    for _ in range(3):
        stream.send(PAYLOAD)
    with clock.held():
        settle()
    assert made.near.stats.held_bytes > 60_000
    clock.advance(1.0)
    assert kept[0].state is StreamState.CLOSED
    assert made.near.stats.held_bytes == 0


def test_a_stream_that_is_garbage_holds_nothing(export, clock):
    made = export()
    stream = made.near.open(["rows", 3], end=True)
    settle()
    assert made.near.stats.held_bytes > 60_000
    assert stream.state is StreamState.CLOSED
    del stream
    gc.collect()
    assert made.near.stats.held_bytes == 0


def test_a_stream_that_had_ended_in_full_does_not_look_complete_when_it_pays(export, clock):
    made = export()
    stream = made.near.open(["rows", 11], end=True)
    rows = iter(stream)
    settle()
    assert next(rows) == PAYLOAD
    assert stream.state is StreamState.CLOSED
    assert intake(made).paused
    clock.advance(10.0)
    with pytest.raises(StreamReset, match="nothing was consumed"):
        list(rows)
    # The remote has nothing to do with it any more.
    assert made.sent_of("reset") == []
    assert made.near.is_open


# The end of the connection during a pause


@pytest.mark.parametrize("how", ["terminate", "close"])
def test_a_paused_reader_ends_with_its_connection(export, clock, how):
    made = export()
    stream, link = made.near.open(["rows", 50]), made.near._link
    with clock.held():
        settle()
        assert intake(made).paused
        if how == "terminate":
            link._writer.kill(block=False)
            settle()
    if how == "close":
        made.near.close(drain=0.0)
        assert clock.now() <= 2.0
        settle()
    assert link._reader.dead
    assert not link.intake.paused
    got = []
    with pytest.raises(ConnectionLost):
        got.extend(1 for _ in stream)
    # What had arrived is there all the same.
    assert len(got) >= 10


def test_a_pause_is_no_silence_of_the_remotes(export, clock):
    made = export(heartbeat=IdleHeartbeat(3.0, 2.0), receive_pause_timeout=30.0)
    stream = made.near.open(["rows", 50])
    settle()
    clock.advance(25.0)
    assert made.near.is_open
    assert sum(1 for _ in stream) == 50
    assert made.near.request("call") == "call"
