"""Waiting in the time of a clock: what ends a wait, and that it leaves nothing behind."""

from __future__ import annotations

import math

import pytest
from gevent.event import Event

from muxws_green.messaging.waiting import deadline, seconds, wait
from tests.seeds.scripted import outcome


def test_a_wait_ends_by_its_event_or_by_its_time(clock) -> None:
    event = Event()
    waiting = [outcome(wait, event, clock, until) for until in (None, 10.0, 2.0, 0.0, -5.0)]
    clock.advance(3.0)
    assert [greenlet.value for greenlet in waiting] == [None, None, False, False, False]
    assert [greenlet.ready() for greenlet in waiting] == [False, False, True, True, True]
    event.set()
    clock.settle()
    assert [greenlet.value for greenlet in waiting[:2]] == [True, True]
    assert clock.now() == 3.0


@pytest.mark.parametrize("until", [None, 0.0, -5.0, 10.0])
def test_an_event_that_is_set_is_not_waited_for(clock, until) -> None:
    event = Event()
    event.set()
    assert wait(event, clock, until)
    assert clock.timers() == []


def test_nothing_is_left_behind(clock) -> None:
    event = Event()
    assert not wait(event, clock, 1.0)
    waiting = outcome(wait, event, clock, 100.0)
    with clock.held():
        clock.settle()
        assert event.linkcount() == 1
        waiting.kill(block=False)
        clock.settle()
    assert event.linkcount() == 0
    assert clock.timers() == []


def test_deadlines(clock) -> None:
    clock.jump(5.0)
    assert [deadline(clock, timeout) for timeout in (None, math.inf, 0, 2.5)] == [None, None, 5.0, 7.5]


@pytest.mark.parametrize("value", [-1, -0.1, math.nan, True, "1", None])
def test_what_is_no_duration(value) -> None:
    with pytest.raises(ValueError, match="drain is a number of seconds"):
        seconds("drain", value)
