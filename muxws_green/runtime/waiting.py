"""Greenlets that wait for something on a connection.

A wait ends by a wake-up, by its deadline, or by whatever somebody throws into it: the caller's own `gevent.Timeout`, a
kill. The last comes out as that same object. Leaving a wait, however, takes its greenlet off every list.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from gevent import get_hub, getcurrent
from gevent.hub import Hub, Waiter
from greenlet import greenlet

from muxws_green.interfaces import IClock


class Parking:
    """What the waits on one connection share: the hub, the clock, and who is waiting.

    Args:
        hub: The hub of all the greenlets.
        clock: Measures deadlines.
    """

    __slots__ = ("clock", "hub", "on_park", "parked", "sending")

    def __init__(self, hub: Hub, clock: IClock) -> None:
        self.hub = hub
        self.clock = clock
        #: Greenlets of the application's that wait for something that only reading can bring.
        self.parked: set[greenlet] = set()
        #: Greenlets of the application's that wait for room to send, which the remote makes by reading.
        self.sending: set[greenlet] = set()
        #: Called when another one has been added to either; None: nobody wants to know.
        self.on_park: Callable[[], None] | None = None


class WaitList:
    """The greenlets that wait for one thing, oldest first.

    Args:
        parking: The connection's.
        counted: Whether those who wait here are the application's, and wait for the remote.
        sending: Whether they wait for room to send.
    """

    __slots__ = ("_counted", "_parking", "_those", "_waiters")

    def __init__(self, parking: Parking, *, counted: bool = True, sending: bool = False) -> None:
        self._parking = parking
        self._counted = counted
        self._those = parking.sending if sending else parking.parked
        self._waiters: list[tuple[Waiter[bool], object]] = []

    def __bool__(self) -> bool:
        """Whether somebody waits."""
        return bool(self._waiters)

    def wait(self, until: float | None = None, about: object = None) -> bool:
        """Wait to be woken.

        Args:
            until: The clock's time at which to give up; None or infinite: never.
            about: What it is waited for, for `wake_about`.

        Returns:
            False where the time came first.

        Raises:
            RuntimeError: The caller is a callback of the hub, or runs in another one.
        """
        parking = self._parking
        current = getcurrent()
        if current is parking.hub:
            raise RuntimeError("a callback of the hub must not wait; spawn a greenlet")
        if get_hub() is not parking.hub:
            raise RuntimeError("this peer belongs to another thread; hand the work over with peer.run_threadsafe(fn)")
        waiter: Waiter[bool] = Waiter(parking.hub)
        waiters = self._waiters
        entry = (waiter, about)
        waiters.append(entry)
        timer = None
        try:
            if self._counted:
                self._those.add(current)
                if parking.on_park is not None:
                    parking.on_park()
            if until is not None and until != math.inf:
                delay = until - parking.clock.now()
                timer = parking.clock.call_later(delay if delay > 0 else 0.0, lambda: waiter.switch(False))
            return waiter.get()
        finally:
            if timer is not None:
                timer.cancel()
            if self._counted:
                self._those.discard(current)
            if entry in waiters:
                waiters.remove(entry)

    def wake(self) -> None:
        """Let everybody who waits now run, in the hub's next turn."""
        waiters = self._waiters
        if waiters:
            run_callback = self._parking.hub.loop.run_callback
            for waiter, _ in waiters:
                run_callback(waiter.switch, True)
            self._waiters = []

    def wake_one(self) -> bool:
        """Let the one who has waited longest run. False where nobody waits."""
        if not self._waiters:
            return False
        self._parking.hub.loop.run_callback(self._waiters.pop(0)[0].switch, True)
        return True

    def wake_about(self, about: object) -> None:
        """Let those run who wait for this."""
        for entry in [entry for entry in self._waiters if entry[1] is about]:
            self._waiters.remove(entry)
            self._parking.hub.loop.run_callback(entry[0].switch, True)

    def is_about(self, about: object) -> bool:
        """Whether somebody waits for this."""
        return any(entry[1] is about for entry in self._waiters)
