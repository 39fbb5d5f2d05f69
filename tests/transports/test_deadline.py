"""The deadline ends its own body, once, by the clock that it was given."""

from __future__ import annotations

from collections.abc import Iterator

import gevent
import pytest
from gevent.event import Event

from muxws_green.testing.clock import FakeClock
from muxws_green.transports.deadline import Deadline


@pytest.fixture
def clock() -> Iterator[FakeClock]:
    with FakeClock() as clock:
        yield clock


def test_a_body_that_takes_too_long_ends_with_the_message_at_the_exact_time(clock):
    with pytest.raises(TimeoutError, match=r"^too slow$"), Deadline(clock, 10.0, "too slow"):
        clock.sleep(60.0)
    assert clock.now() == 10.0


def test_a_body_that_is_in_time_is_left_alone_afterwards(clock):
    with Deadline(clock, 1.0, "") as deadline:
        clock.sleep(0.25)
        assert deadline.remaining() == 0.75
    clock.sleep(5.0)
    assert clock.timers() == []


@pytest.mark.parametrize("seconds", [None, float("inf")])
def test_without_a_bound_nothing_ends_it(clock, seconds):
    with Deadline(clock, seconds, "") as deadline:
        clock.sleep(1e9)
        assert deadline.remaining() is None


def test_nothing_is_thrown_after_the_body_has_ended_in_the_same_moment(clock):
    """The time is up, the throw is on its way, and the body ends by itself before it comes."""
    with Deadline(clock, 1.0, "late"):
        clock.jump(1.0)
        gevent.sleep(0)
    gevent.idle()


@pytest.mark.parametrize("outer, inner, ended", [(1.0, 2.0, "outer"), (2.0, 1.0, "inner")])
def test_nested_deadlines_each_end_their_own_body(clock, outer, inner, ended):
    with pytest.raises(TimeoutError, match=ended), Deadline(clock, outer, "outer"):  # noqa: SIM117
        with Deadline(clock, inner, "inner"):
            clock.sleep(9.0)
    assert clock.now() == 1.0


def test_the_body_goes_on_after_an_inner_deadline(clock):
    with Deadline(clock, 3.0, "outer"):
        with pytest.raises(TimeoutError, match="inner"), Deadline(clock, 1.0, "inner"):
            clock.sleep(9.0)
        clock.sleep(1.0)
    assert clock.now() == 2.0


def test_an_except_clause_for_errors_does_not_catch_it(clock):
    with pytest.raises(TimeoutError, match="seen"), Deadline(clock, 1.0, "seen"):
        try:
            clock.sleep(9.0)
        except Exception:
            clock.sleep(9.0)


def test_other_exceptions_pass_unchanged(clock):
    with pytest.raises(gevent.Timeout) as caught, gevent.Timeout(0.001) as mine:  # noqa: SIM117
        with Deadline(clock, None, ""):
            Event().wait()
    assert caught.value is mine
    with pytest.raises(KeyError), Deadline(clock, 1.0, ""):
        raise KeyError
    assert clock.timers() == []


def test_a_clock_that_calls_from_a_greenlet_gets_it_back(clock):
    """`jump` in another greenlet than the body's must return."""
    ended = []

    def wait() -> None:
        try:
            with Deadline(clock, 1.0, ""):
                Event().wait()
        except TimeoutError:
            ended.append(clock.now())

    waiting = gevent.spawn(wait)
    gevent.sleep(0)
    clock.advance(1.0)
    waiting.join(5.0)
    assert ended == [1.0]
