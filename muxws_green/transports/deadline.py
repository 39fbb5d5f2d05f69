"""One deadline over a stretch of blocking code, told by an `IClock`.

`gevent.Timeout` would do the same by the wall clock; this one follows the clock that the caller was given, so that
tests need not wait. Invariant: nothing is thrown once the stretch has been left, and what is thrown inside it is no
Exception, so that no `except OSError` on the way takes it for a failure of the network.
"""

from __future__ import annotations

import math
from types import TracebackType

from gevent import get_hub, getcurrent

from muxws_green.interfaces import IClock, ITimerHandle


class _Expired(BaseException):
    """Thrown into the greenlet inside the stretch; each deadline knows its own."""


class Deadline:
    """A context manager that raises the builtin TimeoutError once its time is up, wherever its body waits.

    Deadlines may be nested; each ends its own body. Other exceptions, a caller's `gevent.Timeout` or a kill, pass.

    Args:
        clock: Tells the time.
        seconds: How long the body may take; None or infinity: for ever.
        message: That of the TimeoutError; holds nothing secret.
    """

    def __init__(self, clock: IClock, seconds: float | None, message: str) -> None:
        self._clock = clock
        self._seconds = None if seconds is None or math.isinf(seconds) else seconds
        self._message = message
        self._end = 0.0
        self._timer: ITimerHandle | None = None
        self._expired = _Expired()
        self._greenlet = getcurrent()
        self._inside = False

    def remaining(self) -> float | None:
        """Seconds that are left, never negative; None without a bound. Only inside the body."""
        return None if self._seconds is None else max(0.0, self._end - self._clock.now())

    def __enter__(self) -> Deadline:
        self._greenlet = getcurrent()
        self._inside = True
        if self._seconds is not None:
            self._end = self._clock.now() + self._seconds
            self._timer = self._clock.call_later(self._seconds, self._expire)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._inside = False
        if self._timer is not None:
            self._timer.cancel()
        if error is self._expired:
            raise TimeoutError(self._message) from None

    def _expire(self) -> None:
        # A throw switches to the greenlet and does not come back to whoever called; a clock driven by a test may call
        # from a greenlet that must go on, the loop's own callbacks may not.
        get_hub().loop.run_callback(self._throw)

    def _throw(self) -> None:
        if self._inside:
            self._greenlet.throw(self._expired)
