"""A clock for tests that jumps to the next timer whenever nothing else can happen.

Sockets stay real. Minutes of heartbeats and backoff pass in milliseconds, each timer at its exact time, because fake
time moves only while the hub stands still. One rule follows: whoever is to wait in fake time waits on this clock.

What it cannot see: other processes, threads that are not tasks of the hub's own thread pool, the timers of the kernel,
and a resolver other than gevent's threaded one. A test that waits for one of these holds the clock (`held`) or makes
the wait visible (`watch`). `gevent.sleep` and `gevent.Timeout` go by real time, which makes a `gevent.Timeout` a good
bound of a test; one that is shorter than `idle` and made again and again keeps the clock from ever jumping.

Made for libev, gevent's loop on Linux and macOS.
"""

from __future__ import annotations

import gc
import heapq
import math
import weakref
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
from muxws_green.testing.stillness import Stillness, Watch

#: The clock of each hub. A clock that nobody uses any more need not have been closed.
_OF_HUB: weakref.WeakKeyDictionary[Any, weakref.ref[FakeClock]] = weakref.WeakKeyDictionary()

#: So many more timers than live ones may be in the heap: below that, tidying up costs more than it frees.
_SLACK = 64
#: Watched bytes that stand still hold a jump up for at most this part of its length.
_PATIENT_PART = 0.05
#: How many timers an error message lists.
_SHOWN = 10


class NoProgressError(RuntimeError):
    """The clock jumped again and again, and only its own timers ever ran: something is waited for that cannot come."""


@implementer(ITimerHandle)
class FakeTimer:
    """One call of `FakeClock.call_later`."""

    __slots__ = ("_callback", "_clock", "queued", "when")

    def __init__(self, clock: FakeClock, when: float, callback: Callable[[], object]) -> None:
        self._clock = clock
        self._callback: Callable[[], object] | None = callback
        #: The fake time at which it runs.
        self.when = when
        #: False once its time has come.
        self.queued = True

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
            if self.queued:
                self._clock._cancelled()

    def _run(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None and not self._clock._closed:
            callback()


@implementer(IClock)
class FakeClock:
    """Fake time for the hub of the thread that makes it; a hub has one at a time.

    Timers of the same time run in the order in which they were made; what a timer makes runnable, a timer of 0 seconds
    included, runs before time moves on. `now()` in a callback is exactly the time that the timer was made for.

    After `max_jumps` jumps without progress a `NoProgressError` is raised in the hub's parent, the main greenlet, where
    a test runs. Progress is whatever does not come from this clock: an event on a socket, a signal, a task of the
    thread pool, a real timer, watched bytes that move, a call of `advance` or `jump`.

    Use it as a context manager, or call `close`, so that nothing of it stays in the event loop.

    Args:
        start: What `now()` is at first, in seconds.
        autojump: Jump by itself. False: only `advance` and `jump` move time.
        idle: Seconds of real time for which the event loop must wait in vain before a jump; above 0. Less than a
            millisecond counts as one.
        patience: Seconds of real time for which watched bytes (see `watch`) may stand still before they count as stuck
            and no longer keep the clock, and at most a twentieth of the jump that waits for them: the timers of TCP are
            real, up to a quarter of a second, and a long jump would skip them. 0 keeps the clock only while they change
            from one look to the next.
        max_jumps: How many jumps without progress are allowed; 0 allows none.

    Raises:
        ValueError: `start` is not finite, `idle` is not above 0, or `patience` or `max_jumps` is negative.
        RuntimeError: This hub has a fake clock that is not closed, or its loop is not libev's.
    """

    def __init__(
        self,
        start: float = 0.0,
        autojump: bool = True,
        idle: float = 0.002,
        *,
        patience: float = 0.25,
        max_jumps: int = 10_000,
    ) -> None:
        if not math.isfinite(start):
            raise ValueError(f"start must be finite: {start!r}")
        if not check_seconds(idle):
            raise ValueError("idle must be above 0")
        if max_jumps < 0:
            raise ValueError(f"max_jumps must not be below 0: {max_jumps!r}")
        self._hub = cast("Any", get_hub())
        if _clock_of(self._hub) is not None:
            gc.collect()
            if _clock_of(self._hub) is not None:
                raise RuntimeError("this hub has a fake clock already; two would not know of each other's jumps")
        self._now = start
        self._autojump = autojump
        self._patience = check_seconds(patience)
        self._max_jumps = max_jumps
        self._jumps = 0
        self._holds = 0
        self._closed = False
        #: With cancelled ones in it, but never at the top.
        self._heap: list[tuple[float, int, FakeTimer]] = []
        self._made = 0
        self._live = 0
        self._sleeping: set[Waiter[None]] = set()
        self._settling: set[Waiter[None]] = set()
        self._stillness = Stillness(self._still, self._wanted, self._patience_now, idle)
        _OF_HUB[self._hub] = weakref.ref(self)

    # IClock

    def now(self) -> float:
        """Fake seconds; they move only by jumps. May be asked in any thread."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """Wait in fake time.

        Args:
            seconds: How long; 0 goes to the back of those that can run now.

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
        self._sleeping.add(waiter)
        try:
            waiter.get()
        finally:
            self._sleeping.discard(waiter)
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
        self._live += 1
        self._release()
        self._stillness.look()
        return timer

    def watch(self, pending: Callable[[], int | None]) -> Watch:
        """Do not jump while the remote is still taking our bytes.

        They count as moving when the number has changed since the clock last looked, and for `patience` afterwards. A
        number that stays the same for longer is a remote that has stopped reading, for which time must go on; from then
        on it costs nothing until it changes again.

        Args:
            pending: How many bytes are on their way, such as `ITransport.unacknowledged`; None and 0 do not keep the
                clock. Called in the hub before each jump.

        Returns:
            A handle that ends it.
        """
        return self._stillness.watch(pending)

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
        self._jumps = 0
        self._move_to(self._now + check_seconds(seconds))

    def advance(self, seconds: float, timeout: float = 5.0) -> None:
        """Let time pass, from one timer to the next, and return when nothing is left to happen at the new time.

        What can happen already happens first; each timer on the way runs at its exact time.

        Args:
            seconds: How long in fake time; 0 only settles.
            timeout: Real seconds for which things may go on happening at one moment of fake time.

        Raises:
            ValueError: `seconds` is negative, infinite or NaN.
            RuntimeError: The clock is closed, or belongs to another hub.
            TimeoutError: Things did not come to rest.
        """
        self._check()
        self._jumps = 0
        target = self._now + check_seconds(seconds)
        with self.held():
            self.settle(timeout)
            while self._heap and self._heap[0][0] <= target:
                self._move_to(self._heap[0][0])
                self.settle(timeout)
            # A jump that somebody made meanwhile may have gone further.
            self._now = max(self._now, target)

    def settle(self, timeout: float = 5.0) -> None:
        """Return when nothing is left to happen unless time moves on; it does not move meanwhile.

        Args:
            timeout: Real seconds.

        Raises:
            RuntimeError: The clock is closed, or was closed meanwhile, or belongs to another hub.
            TimeoutError: Things did not come to rest.
        """
        self._check()
        waiter: Waiter[None] = Waiter(self._hub)
        late = TimeoutError(f"things went on happening for {timeout} real seconds without any time passing")
        with self.held(), gevent.Timeout(timeout, late):
            self._settling.add(waiter)
            self._stillness.look()
            try:
                waiter.get()
            finally:
                self._settling.discard(waiter)  # pragma: no cover - a switch always precedes it, which hides a line

    @contextmanager
    def held(self) -> Iterator[None]:
        """Inside it the clock does not jump by itself. May be nested."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1
            self._stillness.look()

    def timers(self) -> list[FakeTimer]:
        """The timers whose time has not come yet, in their order."""
        return [timer for _, _, timer in sorted(self._heap) if timer.live]

    def close(self) -> None:
        """Take everything of this clock out of the event loop; any number of times.

        Timers do not run any more; who sleeps or settles gets a RuntimeError.
        """
        if self._closed:
            return
        self._closed = True
        _OF_HUB.pop(self._hub, None)
        self._stillness.close()
        self._heap.clear()
        self._live = 0
        for waiter in (*self._sleeping, *self._settling):
            self._hub.loop.run_callback(waiter.throw, RuntimeError("the fake clock was closed"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _check(self) -> None:
        if self._closed:
            raise RuntimeError("the fake clock is closed")
        if get_hub() is not self._hub:
            raise RuntimeError("a fake clock belongs to the hub that made it; this thread has another one")

    def _wanted(self) -> bool:
        return bool(self._settling) or (self._live > 0 and self._autojump and not self._holds)

    def _patience_now(self) -> float:
        if not self._heap:
            return self._patience
        return min(self._patience, (self._heap[0][0] - self._now) * _PATIENT_PART)

    def _still(self) -> None:
        if self._settling:
            for waiter in self._settling:
                self._hub.loop.run_callback(waiter.switch, None)
            return
        if self._stillness.take_stirred():
            self._jumps = 0
        if self._jumps >= self._max_jumps:
            self._jumps = 0
            self._hub.handle_system_error(NoProgressError, NoProgressError(self._complaint()))
        else:
            self._jumps += 1
            self._move_to(self._heap[0][0])

    def _complaint(self) -> str:
        timers = self.timers()
        lines = [f"{self._max_jumps} jumps, to {self._now!r}, and nothing but this clock's own timers ran. Next are:"]
        lines += [f"  {timer!r}" for timer in timers[:_SHOWN]]
        if len(timers) > _SHOWN:
            lines.append(f"  and {len(timers) - _SHOWN} more")
        return "\n".join(lines)

    def _move_to(self, when: float) -> None:
        self._now = when
        self._release()

    def _release(self) -> None:
        """Let those run whose time has come; through the loop, so that one that raises costs the others nothing."""
        heap = self._heap
        while heap and (heap[0][0] <= self._now or not heap[0][2].live):
            timer = heapq.heappop(heap)[2]
            timer.queued = False
            if timer.live:
                self._live -= 1
                self._hub.loop.run_callback(timer._run)

    def _cancelled(self) -> None:
        """A timer in the heap is not live any more."""
        self._live -= 1
        self._release()
        if len(self._heap) > 2 * self._live + _SLACK:
            self._heap = [entry for entry in self._heap if entry[2].live]
            heapq.heapify(self._heap)


def _clock_of(hub: Any) -> FakeClock | None:
    reference = _OF_HUB.get(hub)
    return None if reference is None else reference()


def settle(clock: FakeClock | None = None, timeout: float = 5.0) -> None:
    """Return when the hub stands still: every greenlet that can run has run, and no socket has anything for one.

    Args:
        clock: Does not jump meanwhile, though standing still is what makes it jump. None: the hub's, if it has one.
        timeout: Real seconds.

    Raises:
        RuntimeError: The clock is closed, or belongs to another hub.
        TimeoutError: Things did not come to rest.
    """
    clock = clock or _clock_of(get_hub())
    if clock is not None:
        clock.settle(timeout)
        return
    with FakeClock(autojump=False) as temporary:
        temporary.settle(timeout)
