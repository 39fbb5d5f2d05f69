"""`Peer.close` from first to last: goaway, drain, close frame, answer; and what can come in between (PROTOCOL §7)."""

from __future__ import annotations

import gevent
import pytest
from gevent.event import Event

from muxws_green import (
    CloseReason,
    ConnectionGoingAway,
    ConnectionLost,
    JsonCodec,
    ProtocolError,
    Reconnect,
    ResetCode,
    StreamRefused,
    StreamState,
)
from muxws_green.runtime.options import Options
from muxws_green.runtime.parting import PARTING_SECONDS
from muxws_green.runtime.peer import Peer
from muxws_green.testing import settle
from muxws_green.transports.memory import memory_pair
from tests.runtime.ends import PATIENCE, Gate, MemoryDialer, dialled, echo, outcome


def told_of(peer):
    told = []
    peer.on_close(told.append)
    return told


def test_an_idle_connection_closes_at_once_and_cleanly_at_both_ends(ends, clock):
    made = ends(clock=clock)
    near, far = told_of(made.near), told_of(made.far)
    made.near.close(reason="done")
    assert made.near.is_closed
    assert not made.near.is_open
    settle()
    assert clock.now() == 0.0
    assert made.sent == [{"type": "goaway", "code": 0, "last_stream": 0, "reason": "done"}]
    assert made.near_transport.closed_with == (1000, "done")
    assert made.far_transport.closed_with == (1000, "done")
    assert near == [CloseReason(1000, "done", True, False)]
    assert far == [CloseReason(1000, "done", True, False)]
    assert made.near.close_cause.code == 1000


def test_live_streams_may_finish_and_new_ones_are_refused(ends, clock):
    made, theirs = ends(clock=clock), Gate()
    made.near.on_stream(theirs)
    made.far.on_stream(Gate())
    ours, incoming = made.near.open(), made.far.open()
    far_stream = theirs.reached()
    settle()
    ours_there = made.far.streams[ours.id]
    closing = outcome(made.near.close, drain=60.0)
    settle()
    assert not closing.dead
    with pytest.raises(ConnectionGoingAway):
        made.near.open()
    with pytest.raises(ConnectionGoingAway):
        made.far.open()
    # What lives goes on in both directions, and so do pings.
    assert made.near.ping(timeout=1.0) == 0.0
    far_stream.send("still")
    assert incoming.result(PATIENCE) == "still"
    ours_there.send("going")
    assert ours.result(PATIENCE) == "going"
    incoming.end()
    theirs.open.set()
    settle()
    assert not closing.dead
    ours.end()
    ours_there.end()
    assert closing.get(timeout=PATIENCE) is None
    assert clock.now() == 0.0
    assert made.near.is_closed


def test_what_is_queued_leaves_before_the_close_frame(ends, clock):
    made, got = ends(clock=clock, capacity_bytes=70_000), []
    made.far.on_stream(lambda payload, stream: got.append((len(payload), sum(1 for _ in stream))))
    stream = made.near.open("x" * 1_000_000)
    for _ in range(20):
        stream.send("y" * 10_000)
    stream.end()
    made.near.close()
    settle()
    assert got == [(1_000_000, 20)]
    assert made.near.close_cause.was_clean


@pytest.mark.parametrize("size", [100_000, 300_000])
def test_a_slow_line_has_the_drain_for_what_is_queued(ends, clock, size):
    made = ends(clock=clock, capacity_bytes=1)
    made.near.on_stream(lambda payload, stream: stream.reply("x" * size))
    made.near_transport.outgoing.stall()
    stream = made.far.open(end=True)
    settle()
    # No stream of the near end's is live any more, only its last frames are not gone.
    assert not made.near.streams
    clock.call_later(5.0, made.near_transport.outgoing.resume)
    made.near.close(drain=10.0)
    assert clock.now() == 5.0
    assert len(stream.result(PATIENCE)) == size


def test_the_drain_is_a_deadline(ends, clock):
    made = ends(clock=clock)
    made.far.on_stream(Gate())
    stream = made.near.open()
    waiting = outcome(stream.result)
    settle()
    made.near.close(drain=7.0)
    assert clock.now() == 7.0
    assert isinstance(waiting.get(timeout=PATIENCE), ConnectionLost)
    assert made.near_transport.closed_with == (1000, "")


def test_the_drain_is_ten_seconds_unless_told_otherwise(ends, clock):
    made = ends(clock=clock)
    made.far.on_stream(Gate())
    made.near.open()
    settle()
    made.near.close()
    assert clock.now() == 10.0


def test_a_drain_of_zero_waits_for_no_stream(ends, clock):
    made, gate = ends(clock=clock), Gate()
    made.far.on_stream(gate)
    made.near.open()
    gate.reached()
    made.near.close(drain=0)
    assert clock.now() == 0.0
    settle()
    assert isinstance(gate.error.cause, ConnectionLost)
    assert made.far.close_cause.code == 1000


def test_an_infinite_drain_waits_for_ever(ends, clock):
    made, gate = ends(clock=clock), Gate()
    made.far.on_stream(gate)
    stream = made.near.open(end=True)
    gate.reached()
    clock.call_later(1e6, gate.open.set)
    made.near.close(drain=float("inf"))
    assert clock.now() == 1e6
    assert stream.state is StreamState.CLOSED


@pytest.mark.parametrize("drain", [-1, float("nan"), "soon", None, True])
def test_a_wrong_drain_changes_nothing(ends, drain):
    made = ends()
    with pytest.raises(ValueError, match="drain"):
        made.near.close(drain=drain)
    assert made.near.is_open
    made.far.on_stream(echo)
    assert made.near.request(1, timeout=PATIENCE) == 1


@pytest.mark.parametrize(
    "options, error", [({"code": 9}, ProtocolError), ({"code": "x"}, ProtocolError), ({"reason": 7}, TypeError)]
)
def test_a_wrong_code_or_reason_changes_nothing(ends, options, error):
    made = ends()
    with pytest.raises(error):
        made.near.close(**options)
    assert made.near.is_open
    made.far.on_stream(echo)
    assert made.near.request(1, timeout=PATIENCE) == 1


@pytest.mark.parametrize("reason", ["\ud800", "x" * 5_000, "ü" * 100, "nul \x00"])
def test_any_str_is_a_reason(ends, reason):
    made = ends()
    near, far = told_of(made.near), told_of(made.far)
    made.near.close(code=ResetCode.INTERNAL_ERROR, reason=reason)
    settle()
    assert near[0].reason == reason
    (goaway,) = made.sent_of("goaway")
    assert goaway["code"] == ResetCode.INTERNAL_ERROR
    assert len(goaway["reason"].encode()) <= 1_000
    assert far[0].code == 1000
    assert len(far[0].reason.encode()) <= 123


# A remote that does not play along


def test_a_remote_that_does_not_answer_is_given_a_second(ends, clock):
    made = ends(clock=clock)
    told = told_of(made.near)
    made.far_transport.outgoing.stall()
    made.near.close()
    assert clock.now() == PARTING_SECONDS
    settle()
    assert told == [CloseReason(1000, "", True, False)]


def test_a_remote_that_never_reads_is_given_the_drain_and_a_second(ends, clock):
    made = ends(clock=clock, capacity_bytes=1)
    told = told_of(made.near)
    made.near_transport.outgoing.stall()
    for _ in range(3):
        made.near.notify("stuck")
    made.near.close(drain=5.0)
    assert clock.now() == 5.0 + PARTING_SECONDS
    settle()
    assert told == [CloseReason(1000, "", True, False)]


def test_a_sender_that_never_stops_cannot_keep_it_open(ends, clock):
    made = ends(clock=clock, capacity_bytes=70_000)

    def swallow(payload, stream):
        for _ in stream:
            pass

    made.far.on_stream(swallow)
    stream = made.near.open()

    def send_for_ever():
        while True:
            stream.send("x" * 60_000)
            clock.sleep(0.01)

    sender = outcome(send_for_ever)
    made.near.close(drain=1.0)
    assert clock.now() <= 1.0 + 2 * PARTING_SECONDS
    assert isinstance(sender.get(timeout=PATIENCE), ConnectionLost)
    settle()
    assert made.far.close_cause.code == 1000


@pytest.mark.parametrize("how", ["close frame", "lost", "violation"])
def test_what_the_remote_does_during_the_drain_ends_it(ends, clock, how):
    made = ends(clock=clock)
    told = told_of(made.near)
    made.far.on_stream(Gate())
    made.near.open()
    closing = outcome(made.near.close, drain=60.0, reason="ours")
    settle()
    if how == "close frame":
        made.near_transport.inject_close(1001, "theirs")
    elif how == "lost":
        made.drop()
    else:
        made.near_transport.inject("{")
    assert closing.get(timeout=PATIENCE) is None
    assert clock.now() <= 2 * PARTING_SECONDS
    settle()
    (reason,) = told
    assert (reason.code, reason.will_retry) == ({"close frame": 1001, "lost": 1006, "violation": 1002}[how], False)


# Again, and from elsewhere


def test_closing_again_waits_for_the_first(ends, clock):
    made, gate = ends(clock=clock), Gate()
    told = told_of(made.near)
    made.far.on_stream(gate)
    made.near.open(end=True)
    first = outcome(made.near.close, reason="first", drain=60.0)
    gate.reached()
    second = outcome(made.near.close, reason="second", drain=90.0)
    settle()
    assert not first.dead
    assert not second.dead
    gate.open.set()
    gevent.joinall([first, second], timeout=PATIENCE)
    assert first.dead
    assert second.dead
    settle()
    assert [reason.code for reason in told] == [1000]
    assert len(made.sent_of("goaway")) == 1
    made.near.close()
    made.near.close(drain=0)
    assert len(told) == 1


def test_closing_what_is_failing_waits_for_its_end(ends, clock):
    """A rule was broken: what is told of that has its second, and nothing of this close is said besides."""
    made = ends(clock=clock)
    made.far_transport.outgoing.stall()
    made.far_transport.inject("{")
    settle()
    assert not made.far.is_open
    assert made.far.close_cause is None
    closing = outcome(made.far.close, reason="bye")
    settle()
    assert not closing.dead
    clock.advance(2 * PARTING_SECONDS)
    assert closing.get(timeout=PATIENCE) is None
    assert made.far.is_closed
    assert made.far.close_cause.code == 1002


def test_what_the_first_close_has_said_stands(ends, clock):
    made = ends(clock=clock)
    told = told_of(made.near)
    made.far_transport.outgoing.stall()
    first = outcome(made.near.close, reason="first")
    settle()
    assert made.near_transport.closed_with == (1000, "first")
    made.near._close(ws_code=1001, reason="second", drain=0.0)
    assert first.get(timeout=PATIENCE) is None
    settle()
    assert told == [CloseReason(1000, "first", True, False)]


def test_a_second_close_may_be_more_impatient(ends, clock):
    made = ends(clock=clock)
    made.far.on_stream(Gate())
    made.near.open()
    first = outcome(made.near.close, drain=60.0)
    settle()
    made.near.close(drain=0)
    assert first.get(timeout=PATIENCE) is None
    assert clock.now() == 0.0


def test_both_ends_close_at_once(ends, clock):
    made = ends(clock=clock)
    near, far = told_of(made.near), told_of(made.far)
    closing = [outcome(peer.close, reason="bye") for peer in (made.near, made.far)]
    gevent.joinall(closing, timeout=PATIENCE)
    settle()
    assert clock.now() == 0.0
    assert [reason.code for reason in near + far] == [1000, 1000]


@pytest.mark.parametrize("thrown", [gevent.Timeout(5), gevent.GreenletExit("stop"), KeyError("mine")])
def test_an_interrupted_close_ends_the_connection_at_once(ends, clock, thrown):
    made = ends(clock=clock)
    told = told_of(made.near)
    made.far.on_stream(Gate())
    made.near.open()
    closing = outcome(made.near.close, drain=60.0, reason="why")
    settle()
    closing.kill(thrown, block=False)
    assert closing.get(timeout=PATIENCE) is thrown
    settle()
    assert told == [CloseReason(1000, "why", True, False)]
    assert made.near.is_closed
    assert made.far.is_closed


def test_an_interrupted_second_close_does_not_cut_the_first(ends, clock):
    made, gate = ends(clock=clock), Gate()
    made.far.on_stream(gate)
    stream = made.near.open(end=True)
    first = outcome(made.near.close, drain=60.0)
    gate.reached()
    second = outcome(made.near.close, drain=60.0)
    settle()
    second.kill(gevent.Timeout(1), block=False)
    settle()
    assert second.dead
    assert not first.dead
    gate.open.set()
    first.get(timeout=PATIENCE)
    assert stream.state is StreamState.CLOSED


@pytest.mark.parametrize("count", [1, 3])
def test_a_stream_whose_handler_closes_is_not_waited_for(ends, clock, count):
    made, after = ends(clock=clock), []

    def handle(payload, stream):
        gate.wait()
        made.near.close(reason="from inside")
        after.append(payload)

    gate = Event()
    made.near.on_stream(handle)
    streams = [made.far.open(number) for number in range(count)]
    settle()
    gate.set()
    settle()
    # None of them is stopped: all of them wanted that.
    assert sorted(after) == list(range(count))
    assert clock.now() == 0.0
    for stream in streams:
        with pytest.raises(ConnectionLost):
            stream.result()


def test_other_streams_are_waited_for_by_a_handler_that_closes(ends, clock):
    made, gate, after = ends(clock=clock), Gate(), []

    def handle(payload, stream):
        if payload == "close":
            made.near.close(drain=60.0)
            after.append(clock.now())
        else:
            gate(payload, stream)

    made.near.on_stream(handle)
    other = made.far.open("other", end=True)
    gate.reached()
    made.far.open("close")
    settle()
    assert after == []
    clock.call_later(3.0, gate.open.set)
    assert other.closed.wait(PATIENCE)
    settle()
    assert after == [3.0]


HOOKS = {
    "on_frame rx": lambda peer, call: peer.on_frame(lambda d, frame, size: call() if d == "rx" else None),
    "on_frame tx": lambda peer, call: peer.on_frame(lambda d, frame, size: call() if d == "tx" else None),
    "incoming headers": lambda peer, call: peer.intercept_incoming_headers(lambda headers, stream: call()),
    "open headers": lambda peer, call: peer.intercept_open(lambda headers, payload: call()),
    "reply headers": lambda peer, call: peer.intercept_reply_headers(lambda headers, stream: call()),
    "on_close": lambda peer, call: peer.on_close(lambda reason: call()),
}


@pytest.mark.parametrize("hook", HOOKS)
def test_close_from_a_hook_holds_up_nobody(ends, clock, hook):
    made, took = ends(clock=clock), []

    def close():
        if not took:
            began = clock.now()
            took.append(None)
            made.near.close(reason="from a hook", drain=3.0)
            took[0] = clock.now() - began

    made.near.on_stream(echo)
    made.far.on_stream(echo)
    HOOKS[hook](made.near, close)
    calls = [outcome(made.far.request, 1), outcome(made.near.request, 1)]
    if hook == "on_close":
        made.drop()
    gevent.joinall(calls, timeout=PATIENCE)
    settle()
    clock.advance(5.0)
    assert made.near.is_closed
    # Those that run in a caller's own greenlet may wait, for others' streams but not for ever.
    assert took[0] <= (3.0 if hook in ("open headers", "reply headers") else 0.0)


def test_close_from_a_callback_of_the_hub_goes_on_in_the_background(ends, clock):
    made = ends(clock=clock)
    told = told_of(made.near)
    raised = []

    def close():
        try:
            made.near.close(reason="from the hub")
        except BaseException as error:
            raised.append(error)

    gevent.get_hub().loop.run_callback(close)
    settle()
    assert raised == []
    assert told == [CloseReason(1000, "from the hub", True, False)]


def test_a_peer_that_never_served_closes_too(clock):
    left, right = memory_pair()
    peer = Peer(Options(codec=JsonCodec(), clock=clock), dialer=False)
    peer._attach(left)
    told = told_of(peer)
    # The other end answers as a WebSocket does.
    answering = gevent.spawn(right.receive)
    peer.close(reason="not today")
    settle()
    assert told == [CloseReason(1000, "not today", True, False)]
    assert left.closed_with == (1000, "not today")
    assert peer.serve() == []
    answering.kill()
    right.abort()


# A dialer


@pytest.fixture
def far(clock):
    """A dialer in memory whose far ends echo."""
    return MemoryDialer(Options(codec=JsonCodec(), clock=clock), lambda peer: peer.on_stream(echo))


@pytest.mark.case("C30")
def test_close_between_sockets_returns_at_once(clock, far):
    peer = dialled(far, reconnect=Reconnect(initial_delay=30.0, jitter=0.0))
    told = told_of(peer)
    far.dials[0][0].drop()
    settle()
    assert peer.supervisor.next_delay == 30.0
    peer.close(reason="enough")
    assert clock.now() == 0.0
    settle()
    assert told == [CloseReason(1006, told[0].reason, False, True), CloseReason(1000, "enough", True, False)]
    clock.advance(300.0)
    assert len(far.dials) == 1
    assert peer.supervisor.greenlet.dead


def test_close_of_an_established_dialer_dials_no_more(clock, far):
    peer = dialled(far)
    told = told_of(peer)
    peer.close()
    settle()
    assert told == [CloseReason(1000, "", True, False)]
    clock.advance(300.0)
    assert len(far.dials) == 1
    assert peer.supervisor.greenlet.dead
    assert peer.serve() is None


def test_a_handler_registered_after_the_end_is_called_at_once(clock, far):
    peer = dialled(far)
    peer.close(reason="over")
    told = told_of(peer)
    assert told == [CloseReason(1000, "over", True, False)]
    peer.close()
    assert len(told) == 1

    @peer.on_close
    def raises(reason):
        raise gevent.Timeout(3)


def test_a_remote_that_goes_away_is_dialled_again(clock, far):
    peer = dialled(far)
    told, again = told_of(peer), []
    peer.on_reconnect(lambda attempt, same: again.append((attempt, same is peer)))
    first = peer.id
    far.dials[0][2]._close(ws_code=1001, reason="restart", drain=0.0)
    settle()
    assert told == [CloseReason(1001, "restart", False, True)]
    clock.advance(1.0)
    assert again == [(1, True)]
    assert peer.is_open
    assert peer.id != first
    assert peer.request(1) == 1
    peer.close()


def test_requests_during_the_far_ends_drain_are_refused_and_may_be_tried_again(ends, clock):
    made, gate = ends(clock=clock), Gate()
    made.near.on_stream(gate)
    made.far.open(end=True)
    gate.reached()
    # The goaway is still under way when the far end opens.
    made.near_transport.outgoing.stall()
    closing = outcome(made.near.close, drain=60.0)
    settle()
    asking = outcome(made.far.request, "x")
    settle()
    made.near_transport.outgoing.resume()
    assert isinstance(asking.get(timeout=PATIENCE), StreamRefused)
    gate.open.set()
    closing.get(timeout=PATIENCE)
