"""The clock of real time: never early, one for every hub, and nothing left in the loop."""

from __future__ import annotations

import math
import threading
import time
import weakref

import gevent
import pytest
from gevent.event import Event

from muxws_green.runtime.clock import GeventClock, default_clock

NOT_A_WAIT = [-1.0, -1e-9, math.inf, -math.inf, math.nan]


@pytest.fixture(autouse=True)
def _bounded():
    with gevent.Timeout(10):
        yield


def block_the_hub(seconds):
    """Take the processor, as a handler that computes does."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def test_now_is_monotonic_time():
    before = time.monotonic()
    now = default_clock.now()
    assert before <= now <= time.monotonic()


@pytest.mark.parametrize("seconds", NOT_A_WAIT)
def test_what_is_not_a_wait_is_refused(seconds):
    with pytest.raises(ValueError, match="finite number of seconds"):
        default_clock.sleep(seconds)
    with pytest.raises(ValueError, match="finite number of seconds"):
        default_clock.call_later(seconds, pytest.fail)


def test_sleeping_0_yields_once():
    order = []

    def other():
        order.append("other")
        default_clock.sleep(0)
        order.append("other again")

    gevent.spawn(other)
    default_clock.sleep(0)
    order.append("this one")
    default_clock.sleep(0)
    assert order == ["other", "this one", "other again"]


def test_sleep_lasts_as_long_as_it_was_told():
    before = time.monotonic()
    default_clock.sleep(0.01)
    assert time.monotonic() - before >= 0.01


def test_a_callback_runs_in_the_hub_after_its_time():
    ran = Event()
    seen = []
    before = time.monotonic()
    default_clock.call_later(0.01, lambda: (seen.append((gevent.getcurrent(), time.monotonic())), ran.set()))
    ran.wait()
    [(where, when)] = seen
    assert where is gevent.get_hub()
    assert when - before >= 0.01


@pytest.mark.parametrize("how", ["in a greenlet", "in a callback"])
def test_after_a_blocked_hub_no_timer_is_early(how):
    times = []
    ran = Event()

    def start():
        block_the_hub(0.03)
        times.append(time.monotonic())
        default_clock.call_later(0.02, lambda: (times.append(time.monotonic()), ran.set()))

    if how == "in a greenlet":
        gevent.spawn(start)
    else:
        default_clock.call_later(0.001, start)
    ran.wait()
    made, called = times
    assert called - made >= 0.02


def test_0_seconds_is_the_next_turn_behind_what_can_run_already():
    order = []
    gevent.spawn(order.append, "greenlet")
    default_clock.call_later(0, lambda: order.append("callback"))
    assert order == []
    gevent.sleep(0)
    assert order == ["greenlet", "callback"]


@pytest.mark.parametrize("seconds", [0.0, 0.001])
def test_a_cancelled_callback_does_not_run(seconds):
    order = []
    timer = default_clock.call_later(seconds, lambda: order.append("cancelled"))
    timer.cancel()
    timer.cancel()
    default_clock.call_later(seconds, lambda: order.append("kept"))
    default_clock.sleep(0.005)
    assert order == ["kept"]
    timer.cancel()


@pytest.mark.parametrize("seconds", [0.0, 0.001])
def test_a_callback_may_cancel_itself_and_be_cancelled_afterwards(seconds):
    order = []
    timer = default_clock.call_later(seconds, lambda: (timer.cancel(), order.append("ran")))
    default_clock.sleep(0.005)
    timer.cancel()
    assert order == ["ran"]


@pytest.mark.parametrize("seconds", [0.0, 0.001])
def test_an_error_in_a_callback_goes_to_the_hub_and_the_others_run(seconds, expected_hub_errors):
    order = []
    default_clock.call_later(seconds, lambda: 1 / 0)
    default_clock.call_later(seconds, lambda: order.append("other"))
    default_clock.sleep(0.005)
    assert order == ["other"]
    [found] = expected_hub_errors
    assert isinstance(found.error, ZeroDivisionError)


@pytest.mark.parametrize("seconds", [0.0, 0.001])
def test_nothing_stays_in_the_loop(seconds):
    loop = gevent.get_hub().loop
    before = loop.activecnt
    default_clock.call_later(seconds, int)
    default_clock.call_later(seconds, int).cancel()
    assert loop.activecnt > before
    default_clock.sleep(0.005)
    assert loop.activecnt == before


@pytest.mark.parametrize("seconds", [0.0, 0.001])
@pytest.mark.parametrize("how", ["ran", "cancelled"])
def test_a_timer_that_is_over_keeps_nothing_alive(seconds, how):
    class Callback:
        def __call__(self):
            pass

    callback = Callback()
    gone = weakref.ref(callback)
    timer = default_clock.call_later(seconds, callback)
    del callback
    if how == "cancelled":
        timer.cancel()
    default_clock.sleep(0.005)
    assert gone() is None


def test_one_clock_serves_the_hub_of_each_thread():
    found = {}

    def elsewhere():
        hub = gevent.get_hub()
        clock.call_later(0.001, lambda: found.update(where=gevent.getcurrent(), hub=hub))
        clock.sleep(0.005)
        hub.destroy(destroy_loop=True)

    clock = GeventClock()
    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join(5)
    assert found["where"] is found["hub"]
    assert found["hub"] is not gevent.get_hub()


def test_it_takes_no_hint():
    default_clock.watch(pytest.fail).cancel()
