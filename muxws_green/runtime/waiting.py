"""Greenlets that wait for something on a connection.

A wait can end by a wake-up, by its deadline, or by whatever somebody throws into it: the caller's own `gevent.Timeout`,
a kill. The last comes out as that same object. Nobody is ever lost in a list: leaving, however, takes the waiter off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gevent.hub import Hub, Waiter

if TYPE_CHECKING:
    from muxws_green.interfaces import IClock


class WaitList:
    """The greenlets that wait for one thing, oldest first.

    Args:
        hub: The hub of all of them.
        clock: Measures their deadlines.
    """

    __slots__ = ("_hub", "_clock", "_waiters")

    def __init__(self, hub: Hub, clock: IClock) -> None:
        self._hub = hub
        self._clock = clock
        self._waiters: list[Waiter[bool]] = []

    def __bool__(self) -> bool:
        """Whether somebody waits."""
        return bool(self._waiters)

    def wait(self, until: float | None = None) -> bool:
        """Wait to be woken.

        Args:
            until: The clock's time at which to give up; None: never.

        Returns:
            False where the time came first.
        """
        waiter: Waiter[bool] = Waiter(self._hub)
        waiters = self._waiters
        waiters.append(waiter)
        if until is None:
            try:
                return waiter.get()
            finally:
                if waiter in waiters:
                    waiters.remove(waiter)
        delay = until - self._clock.now()
        timer = self._clock.call_later(delay if delay > 0 else 0.0, lambda: waiter.switch(False))
        try:
            return waiter.get()
        finally:
            timer.cancel()
            if waiter in waiters:
                waiters.remove(waiter)

    def wake(self) -> None:
        """Let everybody who waits now run, in the hub's next turn."""
        waiters = self._waiters
        if waiters:
            run_callback: Callable[..., object] = self._hub.loop.run_callback
            for waiter in waiters:
                run_callback(waiter.switch, True)
            self._waiters = []

    def wake_one(self) -> bool:
        """Let the one who has waited longest run. False where nobody waits."""
        if not self._waiters:
            return False
        self._hub.loop.run_callback(self._waiters.pop(0).switch, True)
        return True
