"""A peer as a context manager: what leaving it cancels, waits for, and does not wait for (DESIGN §2)."""

from __future__ import annotations

import gevent
import pytest

from muxws_green import ConnectionLost, ResetCode, StreamState
from muxws_green.testing import settle
from tests.runtime.ends import PATIENCE, Gate, echo, outcome


def test_leaving_closes_the_peer(ends, clock):
    made = ends(clock=clock)
    made.far.on_stream(echo)
    with made.near as peer:
        assert peer is made.near
        assert peer.request(1) == 1
    assert made.near.is_closed
    assert made.near_transport.closed_with == (1000, "")
    assert clock.now() == 0.0


def test_own_streams_that_nobody_waits_for_are_cancelled(ends, clock):
    made = ends(clock=clock)
    made.far.on_stream(Gate())
    with made.near as peer:
        streams = [peer.open(), peer.open(end=True)]
        settle()
    assert clock.now() == 0.0
    assert [frame["code"] for frame in made.sent_of("reset")] == [ResetCode.CANCELLED] * 2
    assert [stream.state for stream in streams] == [StreamState.CLOSED] * 2


WAITS = {
    "result": lambda stream: stream.result(),
    "receive": lambda stream: stream.receive(),
    "iteration": lambda stream: list(stream),
    "closed": lambda stream: stream.closed.wait(),
    "reply headers": lambda stream: stream.reply_headers_arrived.wait(),
    "gevent.wait": lambda stream: gevent.wait([stream]),
}


@pytest.mark.parametrize("wait", WAITS)
def test_streams_that_somebody_waits_for_are_drained(ends, clock, wait):
    made, gate = ends(clock=clock), Gate()

    def handle(payload, stream):
        gate(payload, stream)
        stream.reply("late")

    made.far.on_stream(handle)
    clock.call_later(4.0, gate.open.set)
    with made.near as peer:
        waiting = outcome(WAITS[wait], peer.open(end=True))
        gate.reached()
    assert clock.now() == 4.0
    assert not isinstance(waiting.get(timeout=PATIENCE), BaseException)
    assert made.sent_of("reset") == []


def test_a_call_of_somebody_elses_is_drained(ends, clock):
    made, gate = ends(clock=clock), Gate()

    def handle(payload, stream):
        gate(payload, stream)
        stream.reply("late")

    made.far.on_stream(handle)
    clock.call_later(4.0, gate.open.set)
    with made.near as peer:
        call = outcome(peer.request)
        gate.reached()
    assert call.get(timeout=PATIENCE) == "late"


def test_a_stream_on_which_somebody_waits_to_send_is_drained(ends, clock):
    made = ends(clock=clock, capacity_bytes=1, near_options={"send_buffer_bytes": 100_000})
    got = []
    made.far.on_stream(lambda payload, stream: got.append(sum(1 for _ in stream)))
    made.near_transport.outgoing.stall()
    clock.call_later(4.0, made.near_transport.outgoing.resume)

    def send(stream):
        for _ in range(5):
            stream.send("x" * 70_000)
        stream.end()

    with made.near as peer:
        sender = outcome(send, peer.open())
        settle()
        assert not sender.dead
    assert sender.get(timeout=PATIENCE) is None
    assert got == [5]


def test_an_iteration_at_rest_belongs_to_somebody(ends, clock):
    made, gate = ends(clock=clock), Gate()

    def handle(payload, stream):
        stream.send(1)
        gate(payload, stream)

    made.far.on_stream(handle)
    clock.call_later(4.0, gate.open.set)
    with made.near as peer:
        rows = iter(peer.open(end=True))
        assert next(rows) == 1
    assert clock.now() == 4.0
    assert list(rows) == []


def test_one_that_has_come_to_its_end_belongs_to_nobody(ends, clock):
    made = ends(clock=clock)
    made.far.on_stream(lambda payload, stream: stream.send(1))
    with made.near as peer:
        # This side has not ended it.
        assert list(peer.open()) == [1]
    assert clock.now() == 0.0


def test_what_was_told_is_delivered(ends, clock):
    made, got = ends(clock=clock, capacity_bytes=70_000), []
    made.far.on_stream(lambda payload, stream: got.append(len(payload)))
    with made.near as peer:
        for _ in range(20):
            peer.notify("x" * 100_000)
    settle()
    assert got == [100_000] * 20
    assert made.sent_of("reset") == []


def test_the_remotes_streams_are_not_cancelled(ends, clock):
    made, gate = ends(clock=clock), Gate()
    made.near.on_stream(gate)
    with made.near:
        stream = made.far.open(end=True)
        gate.reached()
        clock.call_later(4.0, gate.open.set)
    assert clock.now() == 4.0
    assert stream.state is StreamState.CLOSED
    assert list(stream) == []


@pytest.mark.parametrize("error", [KeyError("mine"), gevent.Timeout(5), gevent.GreenletExit("stop"), SystemExit(3)])
def test_after_an_exception_nothing_is_waited_for(ends, clock, error):
    made, gate = ends(clock=clock), Gate()
    made.far.on_stream(gate)
    with pytest.raises(type(error)) as caught, made.near as peer:
        call = outcome(peer.request)
        gate.reached()
        raise error
    assert caught.value is error
    assert clock.now() == 0.0
    assert made.near.is_closed
    assert isinstance(call.get(timeout=PATIENCE), ConnectionLost)


def test_leaving_one_that_is_over_already(ends):
    made = ends()
    with made.near:
        made.drop()
        settle()
    assert made.near.close_cause.code == 1006
    with made.far:
        pass


def test_leaving_one_that_was_closed_inside(ends, clock):
    made = ends(clock=clock)
    with made.near as peer:
        peer.close(reason="inside")
    assert made.near.close_cause.reason == "inside"
