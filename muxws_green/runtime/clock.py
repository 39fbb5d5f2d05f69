"""Real time, as the runtime sees it: monotonic, and from the event loop of whichever thread asks.

Nothing else in `runtime/` reads a clock, sleeps or builds a timer, so that a test can put a fake one in its place.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import gevent
from gevent import get_hub
from zope.interface import implementer

from muxws_green.interfaces import IClock, ITimerHandle


def check_seconds(seconds: float) -> float:
    """The duration itself, if it is one.

    Raises:
        ValueError: It is negative, infinite or NaN.
    """
    if not 0.0 <= seconds < math.inf:
        raise ValueError(f"a wait must be a finite number of seconds, not below 0: {seconds!r}")
    return seconds


@implementer(ITimerHandle)
class Timer:
    """One call of `GeventClock.call_later` that is still to come; belongs to the thread that made it."""

    __slots__ = ("_watcher",)

    def __init__(self, seconds: float, callback: Callable[[], object]) -> None:
        loop = get_hub().loop
        if seconds:
            # The loop counts from the time that it read at the start of its turn. After a turn that took long, a
            # timer counted from there would fire early.
            loop.update_now()
            self._watcher: Any = loop.timer(seconds)
            self._watcher.start(callback)
        else:
            self._watcher = loop.run_callback(callback)

    def cancel(self) -> None:
        """Make sure that the callback does not run any more; any number of times, also after it ran."""
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            # One that has been closed calls nobody.
            watcher.close()


@implementer(ITimerHandle)
class _Nothing:
    """The handle of something that a clock has no use for."""

    __slots__ = ()

    def cancel(self) -> None:
        """Do nothing."""


_NOTHING = _Nothing()


@implementer(IClock)
class GeventClock:
    """`time.monotonic` and gevent's timers. Keeps no state: one serves every hub of the process."""

    __slots__ = ()

    def now(self) -> float:
        """Seconds of `time.monotonic`."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Let other greenlets run.

        Args:
            seconds: How long at least; 0 goes to the back of those that can run now.

        Raises:
            ValueError: `seconds` is negative, infinite or NaN.
        """
        gevent.sleep(check_seconds(seconds))

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Run `callback` in the hub of this thread.

        Args:
            seconds: How long from now at least; 0 is the next turn, behind what can run already.
            callback: Must not block. An exception from it goes to the hub's `handle_error`, as any from a timer does.

        Returns:
            A handle to cancel it with, from this thread.

        Raises:
            ValueError: `seconds` is negative, infinite or NaN.
        """
        return Timer(check_seconds(seconds), callback)

    def watch(self, pending: Callable[[], int | None]) -> ITimerHandle:
        """Do nothing: real time passes whoever is busy."""
        return _NOTHING


#: What everything uses that was not given another clock.
default_clock = GeventClock()
