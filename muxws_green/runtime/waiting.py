"""Greenlets that wait for something on a connection.

A wait ends by a wake-up, by its deadline, or by whatever somebody throws into it: the caller's own `gevent.Timeout`, a
kill. The last comes out as that same object. Leaving a wait, however, takes its greenlet off every list.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NoReturn

from gevent import get_hub, getcurrent
from gevent.hub import Hub
from greenlet import greenlet

from muxws_green.interfaces import IClock
from muxws_green.runtime.turns import NOBODY, Waiter, turns_of


class Parking:
    """What the waits on one connection share: the hub, the clock, and who is waiting.

    Args:
        hub: The hub of all the greenlets.
        clock: Measures deadlines.
    """

    __slots__ = ("clock", "hub", "on_park", "parked", "sending", "turns")

    def __init__(self, hub: Hub, clock: IClock) -> None:
        self.hub = hub
        self.turns = turns_of(hub)
        self.clock = clock
        #: Greenlets of the application's that wait for something that only reading can bring; None before the first.
        self.parked: dict[greenlet, None] | None = None
        #: Greenlets of the application's that wait for room to send, which the remote makes by reading; likewise.
        self.sending: dict[greenlet, None] | None = None
        #: Called when another one has been added to either; None: nobody wants to know.
        self.on_park: Callable[[], None] | None = None

    def those(self, sending: bool) -> dict[greenlet, None]:
        """`sending` or `parked`, to add oneself to."""
        if sending:
            if self.sending is None:
                self.sending = {}
            return self.sending
        if self.parked is None:
            self.parked = {}
        return self.parked


class WaitList:
    """The greenlets that wait for one thing, oldest first.

    Args:
        parking: The connection's.
        counted: Whether those who wait here are the application's, and wait for the remote.
        sending: Whether they wait for room to send.
    """

    __slots__ = ("_parking", "_those", "waiters")

    def __init__(self, parking: Parking, *, counted: bool = True, sending: bool = False) -> None:
        self._parking = parking
        self._those = parking.those(sending) if counted else None
        #: Who waits, and what for; for others to look whether it is empty. None where nobody ever waited since a wake.
        self.waiters: dict[Waiter, object] | None = None

    def __bool__(self) -> bool:
        """Whether somebody waits."""
        return bool(self.waiters)

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
        hub = parking.hub
        current = getcurrent()
        if current is hub or get_hub() is not hub:
            refuse_to_wait(current is hub)
        waiter = Waiter()
        if self.waiters is None:
            self.waiters = {waiter: about}
        else:
            self.waiters[waiter] = about
        those = self._those
        timer = None
        try:
            if those is not None:
                those[current] = None
                if parking.on_park is not None:
                    parking.on_park()
            if until is not None and until != math.inf:
                delay = until - parking.clock.now()
                timer = parking.clock.call_later(delay if delay > 0 else 0.0, waiter.expire)
            woken: bool | None = waiter.early
            if woken is None:
                waiter.greenlet = current
                woken = parking.turns.wait()
            return bool(woken)
        finally:
            waiter.greenlet = None
            if timer is not None:
                timer.cancel()
            if those is not None:
                those.pop(current, None)
            if self.waiters is not None:
                self.waiters.pop(waiter, None)

    def wake(self) -> None:
        """Let everybody who waits now run, in the hub's next turn."""
        waiters = self.waiters
        if waiters:
            self.waiters = None
            soon = self._parking.turns.soon
            for waiter in waiters:
                soon(waiter.resume, True)

    def wake_one(self) -> bool:
        """Let the one who has waited longest run. False where nobody waits."""
        if not self.waiters:
            return False
        self._wake(next(iter(self.waiters)))
        return True

    def wake_about(self, about: object) -> None:
        """Let those run who wait for this."""
        for waiter in [waiter for waiter, what in (self.waiters or {}).items() if what is about]:
            self._wake(waiter)

    def _wake(self, waiter: Waiter) -> None:
        assert self.waiters is not None
        del self.waiters[waiter]
        self._parking.turns.soon(waiter.resume, True)

    def is_about(self, about: object) -> bool:
        """Whether somebody waits for this."""
        return any(what is about for what in (self.waiters or {}).values())


class Doorbell:
    """Where one greenlet of a connection's or a dialer's own rests until there is something for it to do.

    A ring that finds nobody resting is not kept: whoever rests here has looked for work just before, without a switch
    in between. Cheaper than a `WaitList`, which many may use at once and leave by a deadline.

    Args:
        hub: The hub of the greenlet.
    """

    __slots__ = ("_greenlet", "_turns", "resting")

    def __init__(self, hub: Hub) -> None:
        self._turns = turns_of(hub)
        self._greenlet: greenlet | None = None
        #: Whether the greenlet rests here, and nobody has rung.
        self.resting = False

    def rest(self) -> None:
        """Wait for a ring."""
        self.resting = True
        self._greenlet = getcurrent()
        try:
            self._turns.wait()
        finally:
            self._greenlet = None
            self.resting = False

    def rest_until(self, until: float, clock: IClock) -> None:
        """Wait for a ring, or for the clock's time `until`."""
        delay = until - clock.now()
        # What a policy of the application's made NaN is over at once, as what lies behind.
        timer = None if delay == math.inf else clock.call_later(delay if delay > 0 else 0.0, self.ring)
        try:
            self.rest()
        finally:
            if timer is not None:
                timer.cancel()

    def ring(self) -> None:
        """Let the greenlet run in the hub's next turn, if it rests."""
        if self.resting:
            self.resting = False
            self._turns.soon(self._resume)

    def _resume(self, _: None) -> Any:
        return NOBODY if self._greenlet is None else self._greenlet.switch()


def refuse_to_wait(in_hub: bool) -> NoReturn:
    """Raise RuntimeError: the caller is the hub itself, or belongs to another one."""
    if in_hub:
        raise RuntimeError("a callback of the hub must not wait; spawn a greenlet")
    raise RuntimeError("this peer belongs to another thread; hand the work over with peer.run_threadsafe(fn)")
