"""Our clocks keep the contract, and a double that breaks one promise of it is told so."""

from __future__ import annotations

import time

import gevent
import pytest

from muxws_green.runtime.clock import GeventClock
from muxws_green.testing import FakeClock
from muxws_green.testing.contracts import check_clock
from muxws_green.testing.contracts import clock as suite
from tests.testing.contracts.doubles import (
    Breaks,
    assert_all_are_broken,
    assert_rejected,
    be_impatient,
    breaks,
    every_double,
)

DOUBLES: Breaks = {}


class Handle:
    """A handle that does something else."""

    def __init__(self, cancel) -> None:
        self.cancel = cancel


@breaks(DOUBLES, suite.monotonic, "it went from")
class RunsBackwards(GeventClock):
    def now(self):
        return -super().now()


@breaks(DOUBLES, suite.monotonic, "it is '")
class TellsText(GeventClock):
    def now(self):
        return f"{super().now():020.9f}"


@breaks(DOUBLES, suite.passes, "returned after")
class DoesNotSleep(GeventClock):
    def sleep(self, seconds):
        super().sleep(0)


@breaks(DOUBLES, suite.lets_others_run, "another greenlet did not")
class Blocks(GeventClock):
    def sleep(self, seconds):
        time.sleep(seconds)


@breaks(DOUBLES, suite.yields_once, "in the order")
class DoesNotYield(GeventClock):
    def sleep(self, seconds):
        if seconds:
            super().sleep(seconds)


@breaks(DOUBLES, suite.calls_later, "2 times")
class CallsTwice(GeventClock):
    def call_later(self, seconds, callback):
        super().call_later(seconds + 0.005, callback)
        return super().call_later(seconds, callback)


@breaks(DOUBLES, suite.calls_later, "it called after")
class CallsEarly(GeventClock):
    def call_later(self, seconds, callback):
        return super().call_later(seconds / 2, callback)


@breaks(DOUBLES, suite.calls_later, "it called at once")
class CallsAtOnce(GeventClock):
    def call_later(self, seconds, callback):
        callback()
        return Handle(lambda: None)


@breaks(DOUBLES, suite.calls_later, "did not run in the hub")
class CallsInAGreenlet(GeventClock):
    def call_later(self, seconds, callback):
        return super().call_later(seconds, lambda: gevent.spawn(callback))


@breaks(DOUBLES, suite.calls_in_the_next_turn, "it called at once")
class CallsZeroAtOnce(GeventClock):
    def call_later(self, seconds, callback):
        if seconds == 0:
            callback()
        return super().call_later(seconds, callback)


@breaks(DOUBLES, suite.calls_in_the_next_turn, "in the order ['greenlet']")
class CallsZeroLate(GeventClock):
    def call_later(self, seconds, callback):
        return super().call_later(seconds or 0.001, callback)


@breaks(DOUBLES, suite.keeps_the_order, "was called as")
class TurnsTheOrder(GeventClock):
    def call_later(self, seconds, callback):
        return super().call_later(0.05 - seconds if seconds else 0, callback)


@breaks(DOUBLES, suite.cancels, "called was")
class CancelsNothing(GeventClock):
    def call_later(self, seconds, callback):
        super().call_later(seconds, callback)
        return Handle(lambda: None)


@breaks(DOUBLES, suite.cancels, "IndexError was raised")
class CancelsOnce(GeventClock):
    def call_later(self, seconds, callback):
        timers = [super().call_later(seconds, callback)]
        return Handle(lambda: timers.pop().cancel())


@breaks(DOUBLES, suite.cancels_from_a_callback, "called was")
class CancelsElsewhere(GeventClock):
    def call_later(self, seconds, callback):
        timer = super().call_later(seconds, callback)
        return Handle(lambda: None if gevent.getcurrent() is gevent.get_hub() else timer.cancel())


@breaks(DOUBLES, suite.watches, "IndexError was raised")
class WatchesOnce(GeventClock):
    def watch(self, pending):
        watched = [pending]
        return Handle(lambda: watched.pop())


@breaks(DOUBLES, suite.watches, "nothing had happened")
class WatchesForEver(GeventClock):
    def __init__(self):
        self.pending = []

    def watch(self, pending):
        self.pending.append(pending)
        return Handle(lambda: None)

    def sleep(self, seconds):
        while any(pending() for pending in self.pending):
            super().sleep(0.01)
        super().sleep(seconds)


@breaks(DOUBLES, suite.watches, "no time passed")
class StopsForWhatItWatches(GeventClock):
    def __init__(self):
        self.stopped = None

    def now(self):
        return super().now() if self.stopped is None else self.stopped

    def watch(self, pending):
        self.stopped = self.now()
        return super().watch(pending)


def test_real_time_keeps_it():
    check_clock(GeventClock)


def test_fake_time_keeps_it():
    clocks = []

    def make() -> FakeClock:
        clocks.append(FakeClock())
        return clocks[-1]

    check_clock(make)
    assert len(clocks) == len(suite.PROMISES)
    for clock in clocks:
        with pytest.raises(RuntimeError, match="closed"):
            clock.sleep(1.0)


@every_double(DOUBLES)
def test_a_broken_double_is_rejected(promise, double, complaint, monkeypatch):
    be_impatient(complaint, monkeypatch)
    assert_rejected(promise, complaint, lambda: check_clock(double))


def test_every_promise_has_a_double_that_breaks_it():
    assert_all_are_broken(suite.PROMISES, DOUBLES)
