"""What every `IClock` promises, whether its time is real or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

import gevent
from gevent.event import Event

from muxws_green.interfaces import IClock
from muxws_green.testing.contracts.promises import expect, keep

#: The waits of the checks, in seconds of the clock.
_SHORT, _LONG = 0.01, 0.03


def check_clock(make_clock: Callable[[], IClock]) -> None:
    """Check that a clock keeps the contract of `IClock`.

    Args:
        make_clock: Makes a clock; called for each promise anew. What it returns is closed afterwards if it can be.

    Raises:
        AssertionError: It breaks a promise; the message says which, and how.
    """
    keep(PROMISES, partial(_closing, make_clock))


@contextmanager
def _closing(make_clock: Callable[[], IClock]) -> Iterator[IClock]:
    clock = make_clock()
    try:
        yield clock
    finally:
        close = getattr(clock, "close", None)
        if close is not None:
            close()


def monotonic(clock: IClock) -> None:
    """The time is a number of seconds that never goes down."""
    last = clock.now()
    for _ in range(100):
        now = clock.now()
        expect(now >= last, f"it went from {last!r} to {now!r}")
        last = now
        clock.sleep(0)
    expect(isinstance(last, (int, float)) and not isinstance(last, bool), f"it is {last!r}")


def passes(clock: IClock) -> None:
    """Time passes, and sleep returns once as much of it has passed."""
    for seconds in (_SHORT, _LONG):
        before = clock.now()
        clock.sleep(seconds)
        slept = clock.now() - before
        # A sum of floats may be a little off.
        expect(slept >= seconds - 1e-9, f"sleep({seconds}) returned after {slept}")


def lets_others_run(clock: IClock) -> None:
    """Others run while one sleeps."""
    ran = Event()
    gevent.spawn(ran.set)
    clock.sleep(_SHORT)
    expect(ran.is_set(), "another greenlet did not")


def yields_once(clock: IClock) -> None:
    """A sleep of 0 lets everybody have one turn who can run, and takes no longer."""
    order: list[str] = []

    def other() -> None:
        order.append("other")
        clock.sleep(0)
        order.append("other again")

    gevent.spawn(other)
    clock.sleep(0)
    order.append("this one")
    clock.sleep(0)
    expect(order == ["other", "this one", "other again"], f"they ran in the order {order}")


def calls_later(clock: IClock) -> None:
    """What is to be called later is called once, in the hub, not before its time."""
    calls: list[tuple[float, bool]] = []
    called = Event()

    def call() -> None:
        calls.append((clock.now(), gevent.getcurrent() is gevent.get_hub()))
        called.set()

    before = clock.now()
    clock.call_later(_SHORT, call)
    expect(not calls, "it called at once")
    called.wait()
    clock.sleep(_LONG)
    expect(len(calls) == 1, f"it called {len(calls)} times")
    ((when, in_hub),) = calls
    expect(when - before >= _SHORT - 1e-9, f"it called after {when - before} in place of {_SHORT}")
    expect(in_hub, "the callback did not run in the hub")


def calls_in_the_next_turn(clock: IClock) -> None:
    """What is to be called after 0 seconds is called in the next turn, behind what can run already."""
    order: list[str] = []
    gevent.spawn(order.append, "greenlet")
    clock.call_later(0, lambda: order.append("callback"))
    expect(not order, "it called at once")
    clock.sleep(0)
    clock.sleep(0)
    expect(order == ["greenlet", "callback"], f"they ran in the order {order}")


def keeps_the_order(clock: IClock) -> None:
    """What is due earlier is called earlier."""
    order: list[float] = []
    for seconds in (_LONG, 0.0, _SHORT):
        clock.call_later(seconds, partial(order.append, seconds))
    clock.sleep(2 * _LONG)
    expect(order == [0.0, _SHORT, _LONG], f"what was due after {_LONG}, 0 and {_SHORT} was called as {order}")


def cancels(clock: IClock) -> None:
    """What is cancelled is not called, and cancelling is allowed at any time."""
    calls: list[str] = []
    for seconds in (0.0, _SHORT):
        handle = clock.call_later(seconds, lambda: calls.append("cancelled"))
        handle.cancel()
        handle.cancel()
    done = clock.call_later(_SHORT, lambda: calls.append("done"))
    clock.sleep(_LONG)
    done.cancel()
    expect(calls == ["done"], f"called was {calls}")


def cancels_from_a_callback(clock: IClock) -> None:
    """A callback may cancel itself and one that is due at the same time."""
    calls: list[str] = []

    def first() -> None:
        calls.append("first")
        handles[0].cancel()
        handles[1].cancel()

    handles = [clock.call_later(_SHORT, first), clock.call_later(_LONG, lambda: calls.append("second"))]
    clock.sleep(2 * _LONG)
    expect(calls == ["first"], f"called was {calls}")


def watches(clock: IClock) -> None:
    """A hint to watch is taken, does not stop time for ever, and is forgotten when it is cancelled."""
    pending: list[int | None] = [7]
    handle = clock.watch(lambda: pending[0])
    nothing = clock.watch(lambda: None)
    before = clock.now()
    clock.sleep(_SHORT)
    expect(clock.now() > before, "no time passed")
    for each in (handle, nothing, handle):
        each.cancel()
    clock.sleep(_SHORT)


#: Each is tried on a clock of its own.
PROMISES: Final = (
    monotonic,
    passes,
    lets_others_run,
    yields_once,
    calls_later,
    calls_in_the_next_turn,
    keeps_the_order,
    cancels,
    cancels_from_a_callback,
    watches,
)
