"""A clock for tests that jumps to the next timer whenever nothing else can happen.

Sockets stay real. Minutes of heartbeats and backoff pass in milliseconds, each timer at its exact time, because fake
time moves only while the hub stands still: every greenlet that can run has run, and the event loop has waited in the
kernel for a moment without being woken. One rule follows from it: whoever is to wait in fake time waits on this clock.

What it cannot see: other processes, threads that are not tasks of the hub's own thread pool, the timers of the kernel
and a resolver other than gevent's threaded one. A test that waits for one of these holds the clock (`held`) or makes
the wait visible (`watch`). Timers of gevent's own (`gevent.sleep`, `gevent.Timeout`) go by real time, which makes a
`gevent.Timeout` a good bound of a test, and one that ends before `idle` is over a reason not to jump.

Made for libev, gevent's loop on Linux and macOS.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Self, cast

import gevent
from gevent import get_hub
from gevent.hub import Waiter
from zope.interface import implementer

from muxws_green.interfaces import IClock, ITimerHandle
from muxws_green.runtime.clock import check_seconds

#: Below this many cancelled timers, tidying up the heap costs more than it frees.
_COMPACT_ABOVE = 64
#: How many timers an error message lists.
_SHOWN = 10


class NoProgressError(RuntimeError):
    """The clock jumped again and again, and only its own timers ever ran: something is waited for that cannot come."""


@implementer(ITimerHandle)
class FakeTimer:
    """One call of `FakeClock.call_later` that is still to come."""

    __slots__ = ("_callback", "_clock", "when")

    def __init__(self, clock: FakeClock, when: float, callback: Callable[[], object]) -> None:
        self._clock = clock
        self._callback: Callable[[], object] | None = callback
        #: The fake time at which it runs.
        self.when = when

    def __repr__(self) -> str:
        return f"<timer at {self.when!r}: {self._callback!r}>"

    @property
    def live(self) -> bool:
        """Neither run nor cancelled."""
        return self._callback is not None

    def cancel(self) -> None:
        """Make sure that the callback does not run any more; any number of times, also after it ran."""
        if self._callback is not None:
            self._callback = None
            self._clock._dropped()

    def _run(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


@implementer(ITimerHandle)
class _Watch:
    """One function that `FakeClock.watch` was given."""

    __slots__ = ("_watches", "pending")

    def __init__(self, watches: dict[_Watch, None], pending: Callable[[], int | None]) -> None:
        self._watches = watches
        self.pending = pending

    def cancel(self) -> None:
        """Watch no longer."""
        self._watches.pop(self, None)


@implementer(IClock)
class FakeClock:
    """Fake time for one hub.

    Timers of the same time run in the order in which they were made; what a timer makes runnable, a timer of 0 seconds
    included, runs before time moves on. `now()` in a callback is exactly the time that the timer was made for.

    Use it as a context manager, or call `close`, so that nothing of it stays in the event loop.

    Args:
        start: What `now()` is at first, in seconds.
        autojump: Jump by itself. False: only `advance` and `jump` move time.
        idle: Seconds of real time for which the event loop must wait in vain before a jump; above 0. What is below
            a millisecond counts as one.
        patience: Seconds of real time for which watched bytes (see `watch`) may stand still before they count as stuck
            and no longer keep the clock.
        max_jumps: How many jumps without progress are too many. Progress is what does not come from the clock: an
            event on a socket, a signal, a task of the thread pool, a real timer, watched bytes that move, and a call of
            `advance` or `jump`.

    Raises:
        ValueError: `start` is not finite, `idle` is not above 0, or `patience` or `max_jumps` is negative.
        RuntimeError: The loop of this hub is not libev's.
    """

    def __init__(
        self,
        start: float = 0.0,
        autojump: bool = True,
        idle: float = 0.002,
        *,
        patience: float = 0.02,
        max_jumps: int = 10_000,
    ) -> None:
        if not math.isfinite(start):
            raise ValueError(f"start must be finite: {start!r}")
        if not check_seconds(idle):
            raise ValueError("idle must be above 0")
        check_seconds(patience)
        if max_jumps < 0:
            raise ValueError(f"max_jumps must not be below 0: {max_jumps!r}")
        # What is used of the two that the stubs of gevent do not know: priorities, and the thread pool if there is one.
        self._hub = cast("Any", get_hub())
        self._loop = self._hub.loop
        self._now = start
        self._autojump = autojump
        self._patience = patience
        self._max_jumps = max_jumps
        self._closed = False
        self._holds = 0
        self._heap: list[tuple[float, int, FakeTimer]] = []
        self._made = 0
        self._cancelled = 0
        self._sleepers: set[Waiter[None]] = set()
        self._settlers: list[Waiter[None]] = []
        self._watches: dict[_Watch, None] = {}
        self._sample: dict[_Watch, int] = {}
        self._sampled_at = -math.inf
        self._jumps = 0
        self._turns = 0
        self._progress = False
        self._clean = False
        try:
            # The lowest priority: behind gevent's own, which runs the greenlets that can run.
            self._before_wait = self._loop.prepare(ref=False, priority=self._loop.MINPRI)
        except TypeError as error:
            raise RuntimeError("FakeClock needs gevent's libev loop: set GEVENT_LOOP=libev-cext") from error
        # The highest: it is to see what else the same turn has found. Repeating, so that it keeps the loop alive.
        self._waited = self._loop.timer(idle, repeat=idle, priority=self._loop.MAXPRI)

    # IClock

    def now(self) -> float:
        """Fake seconds; they move only by jumps."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """Wait in fake time; 0 goes to the back of those that can run now.

        Args:
            seconds: How long.

        Raises:
            ValueError: `seconds` is negative, infinite or NaN.
            RuntimeError: The clock is closed, or was closed meanwhile, or belongs to another hub.
        """
        self._check()
        if not check_seconds(seconds):
            gevent.sleep(0)
            return
        waiter: Waiter[None] = Waiter(self._hub)
        timer = self.call_later(seconds, partial(waiter.switch, None))
        self._sleepers.add(waiter)
        try:
            waiter.get()
        finally:
            self._sleepers.discard(waiter)
            timer.cancel()

    def call_later(self, seconds: float, callback: Callable[[], object]) -> FakeTimer:
        """Run `callback` in the hub when fake time has moved on.

        Args:
            seconds: How long from now; 0 is the next turn, without a jump.
            callback: Must not block. An exception from it goes to the hub's `handle_error`.

        Returns:
            A handle to cancel it with.

        Raises:
            ValueError: `seconds` is negative, infinite or NaN.
            RuntimeError: The clock is closed, or belongs to another hub.
        """
        self._check()
        timer = FakeTimer(self, self._now + check_seconds(seconds), callback)
        heapq.heappush(self._heap, (timer.when, self._made, timer))
        self._made += 1
        self._release()
        self._update()
        return timer

    def watch(self, pending: Callable[[], int | None]) -> ITimerHandle:
        """Do not jump while the remote is still taking our bytes.

        They count as moving when the number has changed since the clock last looked, and for `patience` afterwards;
        a number that stays the same longer is a remote that has stopped reading, for which time must go on.

        Args:
            pending: How many bytes are on their way, such as `ITransport.unacknowledged`; None and 0 do not keep the
                clock. Called in the hub before each jump.

        Returns:
            A handle that ends it.
        """
        watch = _Watch(self._watches, pending)
        self._watches[watch] = None
        return watch

    # For tests

    def jump(self, seconds: float) -> None:
        """Let time pass as if the hub had been blocked: what became due meanwhile runs afterwards, late.

        Args:
            seconds: How long; 0 changes nothing.

        Raises:
            ValueError: `seconds` is negative, infinite or NaN.
            RuntimeError: The clock is closed, or belongs to another hub.
        """
        self._check()
        self._now += check_seconds(seconds)
        self._progress = True
        self._release()

    def advance(self, seconds: float, timeout: float = 5.0) -> None:
        """Let time pass, from one timer to the next, and return when nothing can happen any more at the new time.

        Everything that can run already runs first; each timer on the way runs at its exact time.

        Args:
            seconds: How long in fake time; 0 only settles.
            timeout: Real seconds for which things may go on happening at one moment of fake time.

        Raises:
            ValueError: `seconds` is negative, infinite or NaN.
            RuntimeError: The clock is closed, or belongs to another hub.
            TimeoutError: Things did not come to rest.
        """
        self._check()
        target = self._now + check_seconds(seconds)
        with self.held():
            self.settle(timeout)
            while self._heap and self._heap[0][0] <= target:
                self._move_to(self._heap[0][0])
                self.settle(timeout)
            self._move_to(target)
        self._progress = True

    def settle(self, timeout: float = 5.0) -> None:
        """Return when nothing can happen any more without time moving on; it does not move meanwhile.

        Args:
            timeout: Real seconds.

        Raises:
            RuntimeError: The clock is closed, or belongs to another hub.
            TimeoutError: Things did not come to rest.
        """
        self._check()
        waiter: Waiter[None] = Waiter(self._hub)
        late = TimeoutError(f"something goes on happening without any time passing, for {timeout} real seconds")
        with self.held(), gevent.Timeout(timeout, late):
            self._settlers.append(waiter)
            self._update()
            try:
                waiter.get()
            finally:
                if waiter in self._settlers:
                    self._settlers.remove(waiter)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Inside it the clock does not jump by itself. May be nested."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1
            self._update()

    def timers(self) -> list[FakeTimer]:
        """The timers that are still to run, in their order."""
        return [timer for _, _, timer in sorted(self._heap) if timer.live]

    def close(self) -> None:
        """Take everything of this clock out of the event loop. Timers never run; who sleeps gets a RuntimeError.

        May be called again.
        """
        if self._closed:
            return
        self._closed = True
        self._before_wait.stop()
        self._waited.stop()
        self._before_wait.close()
        self._waited.close()
        for waiter in [*self._sleepers, *self._settlers]:
            self._loop.run_callback(waiter.throw, RuntimeError("the fake clock was closed"))
        self._heap.clear()
        self._watches.clear()
        self._sample.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # How it finds out that nothing can happen

    def _check(self) -> None:
        if self._closed:
            raise RuntimeError("the fake clock is closed")
        if get_hub() is not self._hub:
            raise RuntimeError("a fake clock belongs to the hub that made it; this thread has another one")

    def _wanted(self) -> bool:
        return bool(self._settlers) or (bool(self._heap) and self._autojump and not self._holds)

    def _update(self) -> None:
        if not self._closed and not self._before_wait.active and self._wanted():
            self._before_wait.start(self._about_to_wait)
            self._waited.again(self._has_waited)

    def _busy(self) -> bool:
        pool = self._hub._threadpool
        return bool(self._loop._callbacks) or (pool is not None and len(pool) > 0)

    def _about_to_wait(self) -> None:
        """Each turn of the loop, before it waits in the kernel: measure the wait."""
        self._turns += 1
        self._clean = not self._busy()
        if self._clean and not self._wanted():
            # Whatever makes the next timer, it is not this clock that woke it up.
            self._progress = True
            self._before_wait.stop()
            self._waited.stop()
            return
        # Without this the time that greenlets took in this turn would count as waiting.
        self._loop.update_now()
        self._waited.again(self._has_waited)

    def _has_waited(self) -> None:
        """The wait was as long as `idle`: is there really nothing?"""
        self._turns -= 1
        if self._loop.pendingcnt:
            self._progress = True
        elif self._clean and not self._busy() and not self._moving():
            if self._settlers:
                settlers, self._settlers = self._settlers, []
                for waiter in settlers:
                    self._loop.run_callback(waiter.switch, None)
            elif self._wanted():
                self._autojump_once()

    def _moving(self) -> bool:
        sample: dict[_Watch, int] = {}
        for watch in list(self._watches):
            try:
                pending = watch.pending()
            except BaseException:
                # Once is enough: asked again each time, it would flood the log of the hub.
                watch.cancel()
                raise
            if pending:
                sample[watch] = pending
        before, self._sample = self._sample, sample
        if not sample:
            return False
        now = time.monotonic()
        if sample != before:
            self._sampled_at = now
            self._progress = True
            return True
        return now - self._sampled_at < self._patience

    # How it moves

    def _autojump_once(self) -> None:
        if self._progress or self._turns:
            self._jumps = 0
        self._progress = False
        self._turns = 0
        if self._jumps >= self._max_jumps:
            self._jumps = 0
            error = NoProgressError(self._complaint())
            self._hub.handle_system_error(NoProgressError, error)
            return
        self._jumps += 1
        self._move_to(self._heap[0][0])

    def _complaint(self) -> str:
        timers = self.timers()
        lines = [f"  {timer!r}" for timer in timers[:_SHOWN]]
        if len(timers) > _SHOWN:
            lines.append(f"  and {len(timers) - _SHOWN} more")
        return "\n".join(
            [
                f"{self._max_jumps} jumps, to {self._now!r}, and nothing but timers of this clock ever ran. Next are:",
                *lines,
            ]
        )

    def _move_to(self, when: float) -> None:
        self._now = when
        self._release()

    def _release(self) -> None:
        """Let those run that are due. Through the loop, so that one that raises takes nothing from the others."""
        heap = self._heap
        while heap and (heap[0][0] <= self._now or not heap[0][2].live):
            timer = heapq.heappop(heap)[2]
            if timer.live:
                self._loop.run_callback(timer._run)
            else:
                self._cancelled -= 1

    def _dropped(self) -> None:
        self._cancelled += 1
        if self._cancelled > _COMPACT_ABOVE and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].live]
            heapq.heapify(self._heap)
            self._cancelled = 0
        else:
            self._release()


def settle(clock: FakeClock | None = None, timeout: float = 5.0) -> None:
    """Return when the hub stands still: every greenlet that can run has run, and no socket has anything.

    Args:
        clock: It does not jump meanwhile, though idling is what makes it jump; None where there is none.
        timeout: Real seconds.

    Raises:
        TimeoutError: Things did not come to rest.
    """
    if clock is not None:
        clock.settle(timeout)
        return
    with FakeClock(autojump=False) as watcher:
        watcher.settle(timeout)
