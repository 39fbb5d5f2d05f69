"""Peers and streams in `gevent.wait` and `gevent.iwait` (DESIGN §2)."""

from __future__ import annotations

import gevent
import pytest
from gevent.event import Event

from muxws_green.testing import settle
from tests.runtime.ends import PATIENCE, Gate, echo


def test_streams_are_ready_when_they_are_closed(ends):
    made, gate = ends(), Gate()
    made.far.on_stream(lambda payload, stream: gate(payload, stream) if payload else stream.reply(payload))
    quick, slow = made.near.open(0, end=True), made.near.open(1, end=True)
    assert gevent.wait([quick, slow], timeout=PATIENCE, count=1) == [quick]
    assert quick.ready()
    assert not slow.ready()
    gate.open.set()
    assert set(gevent.wait([quick, slow], timeout=PATIENCE)) == {quick, slow}
    # Again, now that both are over.
    assert set(gevent.wait([quick, slow], timeout=PATIENCE)) == {quick, slow}


def test_iwait_yields_them_as_they_end(ends):
    made, gates = ends(), {}

    def handle(payload, stream):
        gates[payload] = Event()
        gates[payload].wait()

    made.far.on_stream(handle)
    streams = [made.near.open(number, end=True) for number in range(3)]
    settle()
    order = []
    gates[1].set()
    for stream in gevent.iwait(streams, timeout=PATIENCE):
        order.append(stream.payload)
        if len(order) < 3:
            gates[[2, 0][len(order) - 1]].set()
    assert order == [1, 2, 0]


@pytest.mark.parametrize("how", ["lost", "closed", "reset"])
def test_every_end_counts(ends, clock, how):
    made = ends(clock=clock)
    made.far.on_stream(Gate())
    stream = made.near.open()
    settle()
    assert gevent.wait([stream, made.near], timeout=0) == []
    if how == "lost":
        made.drop()
    elif how == "closed":
        made.near.close(drain=0.0)
    else:
        stream.cancel()
    over = [stream] if how == "reset" else [stream, made.near]
    assert set(gevent.wait(over, timeout=PATIENCE)) == set(over)
    assert made.near.ready() is (how != "reset")


def test_peers_are_waited_for_among_other_things(ends):
    made = ends()
    event, greenlet = Event(), gevent.spawn(lambda: 7)
    assert gevent.wait([made.near, event, greenlet], timeout=PATIENCE, count=1) == [greenlet]
    event.set()
    assert set(gevent.wait([made.near, event], timeout=PATIENCE, count=1)) == {event}
    made.drop()
    assert gevent.wait([made.near], timeout=PATIENCE) == [made.near]


def test_waiting_with_a_timeout_leaves_nothing_behind(ends):
    made = ends()
    made.far.on_stream(echo)
    stream = made.near.open()
    for _ in range(5):
        assert gevent.wait([stream, made.near], timeout=0.001) == []
    assert stream.closed.linkcount() == 0
    assert not stream.__dict__.get("_links")
    assert not made.near.__dict__.get("_links")


def test_links_get_the_object_itself_and_can_be_removed(ends):
    made, seen = ends(), []
    stream = made.near.open()
    stream.rawlink(seen.append)
    stream.rawlink(lambda over: seen.append(("other", over)))
    unwanted = seen.remove
    stream.rawlink(unwanted)
    stream.unlink(unwanted)
    stream.unlink(unwanted)
    stream.unlink(print)
    stream.cancel()
    settle()
    assert seen == [stream, ("other", stream)]
    # One that is over already calls soon.
    stream.rawlink(seen.append)
    assert len(seen) == 2
    settle()
    assert seen[2] is stream
    assert not stream.__dict__["_links"]


def test_the_same_callback_may_be_linked_twice(ends):
    made, seen = ends(), []
    stream = made.near.open()
    callback = seen.append
    stream.rawlink(callback)
    stream.rawlink(callback)
    stream.unlink(callback)
    stream.cancel()
    settle()
    assert seen == [stream]


def test_a_link_that_raises_harms_no_other(ends, expected_hub_errors):
    made, seen = ends(), []
    stream = made.near.open()

    def fails(over):
        raise KeyError("mine")

    stream.rawlink(fails)
    stream.rawlink(seen.append)
    stream.cancel()
    settle()
    assert seen == [stream]
    assert isinstance(expected_hub_errors[0].error, KeyError)


def test_hashes_and_equality_are_those_of_identity(ends):
    made = ends()
    streams = [made.near.open() for _ in range(2)]
    assert len({*streams, *streams, made.near, made.far}) == 4
