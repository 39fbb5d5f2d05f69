"""Tells when a hub stands still: every greenlet that can run has run, and the event loop waits in the kernel in vain.

The loop's own order makes that certain without watching anything else. Each turn it runs what can run, then our prepare
watcher, which starts a timer, then it waits. If that timer is the only thing that the wait has ended with, nothing
happened for as long. Bytes take a moment to pass through the kernel, TLS and loopback included, so that moment is real
time and not zero.

Used by `testing.clock`, in the thread of the hub.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, cast

import gevent
from zope.interface import implementer

from muxws_green.interfaces import ITimerHandle


@implementer(ITimerHandle)
class Watch:
    """One function that `Stillness.watch` was given."""

    __slots__ = ("_watches", "pending")

    def __init__(self, watches: dict[Watch, None], pending: Callable[[], int | None]) -> None:
        self._watches = watches
        self.pending = pending

    def cancel(self) -> None:
        """Watch no longer."""
        self._watches.pop(self, None)


class Stillness:
    """Calls `on_still` in the hub of this thread as often as the hub stands still, while that is wanted.

    Args:
        on_still: Called in the hub.
        wanted: Whether anybody wants to know. While it says no, nothing of this is in the event loop; after it has
            become true again, `look` must be called.
        patience: For how many seconds of real time watched bytes may stand still before they count as stuck; asked each
            time.
        idle: Seconds of real time that the loop must wait in vain; above 0.

    Raises:
        RuntimeError: The loop of this hub is not libev's.
    """

    def __init__(
        self, on_still: Callable[[], object], wanted: Callable[[], bool], patience: Callable[[], float], idle: float
    ) -> None:
        self._on_still = on_still
        self._wanted = wanted
        self._patience = patience
        # What the stubs of gevent do not know is used of them: priorities, and the thread pool if there is one.
        self._hub = cast("Any", gevent.get_hub())
        self._loop = self._hub.loop
        self._watches: dict[Watch, None] = {}
        self._sample: dict[Watch, int] = {}
        self._changed_at = -math.inf
        self._stirred = False
        self._clean = False
        self._woken_by_us = False
        try:
            # The lowest priority: behind gevent's own, which runs the greenlets that can run.
            self._before_wait = self._loop.prepare(priority=self._loop.MINPRI)
        except TypeError as error:
            raise RuntimeError("a fake clock needs gevent's libev loop: set GEVENT_LOOP=libev-cext") from error
        # The highest: it is to see what else the same wait has ended with.
        self._waited = self._loop.timer(idle, repeat=idle, priority=self._loop.MAXPRI)

    def watch(self, pending: Callable[[], int | None]) -> Watch:
        """Do not call it stillness while this number changes, nor for `patience` afterwards; None and 0 do not count.

        A function that raises is forgotten, and its error goes to the hub's `handle_error`.
        """
        watch = Watch(self._watches, pending)
        self._watches[watch] = None
        return watch

    def look(self) -> None:
        """Begin to look for stillness, if that is wanted."""
        if not self._before_wait.active and self._wanted():
            # Nobody wanted it before, so it is not the end of a wait of ours that has led here.
            self._stirred = True
            # The wait of this turn does not count: greenlets may still take their time before it.
            self._clean = False
            self._before_wait.start(self._about_to_wait)
            self._waited.again(self._has_waited)

    def take_stirred(self) -> bool:
        """Whether, since the last call, the loop was woken by anything but the end of our own waits."""
        stirred, self._stirred = self._stirred, False
        return stirred

    def close(self) -> None:
        """Take the watchers out of the loop, for good. From now on nobody may want it."""
        self._before_wait.close()
        self._waited.close()

    def _about_to_wait(self) -> None:
        if not self._woken_by_us:
            self._stirred = True
        self._woken_by_us = False
        # Callbacks are left over where one turn is not enough for them, and where this loop runs them after us (cffi).
        # The pool is asked before the wait and not after it, since a task tells the loop that it has ended before it
        # leaves the pool.
        pool = self._hub._threadpool
        self._clean = not self._loop._callbacks and not pool
        if self._clean and not self._wanted():
            self._before_wait.stop()
            self._waited.stop()
        else:
            # The loop may think that it is still the beginning of its turn; the turn itself would count as waiting.
            self._loop.update_now()
            self._waited.again(self._has_waited)

    def _has_waited(self) -> None:
        self._woken_by_us = True
        if self._loop.pendingcnt:
            self._stirred = True
        elif self._clean and not self._moving():
            self._on_still()

    def _moving(self) -> bool:
        sample: dict[Watch, int] = {}
        for watch in list(self._watches):
            try:
                pending = watch.pending()
            except BaseException:
                # Asked again each time, it would flood the hub with the same error.
                watch.cancel()
                raise
            if pending:
                sample[watch] = pending
        before, self._sample = self._sample, sample
        if not sample:
            return False
        now = time.monotonic()
        if sample != before:
            self._changed_at = now
            self._stirred = True
            return True
        return now - self._changed_at < self._patience()
