"""Whose turn is next among the greenlets of a hub.

A greenlet that has been woken runs from the hub, which the greenlet that woke it gets to when it waits. A switch to the
hub and one from there, past all that lies in the loop between, cost more than most of what either greenlet does. So
where only one greenlet is due, whoever waits next here gives it the turn directly. Who runs before whom remains the
same: nothing is passed on where anything else is queued in the hub, and only so often between two looks of the hub at
its sockets and timers. What has been passed on is called back: as soon as it is the hub's turn, whoever still waits
does so there, since a greenlet that has switched to another keeps that one, and what it holds, alive.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Final

from gevent import getcurrent
from gevent.hub import Hub
from greenlet import greenlet

#: Turns that are passed on before the hub looks at its sockets and timers.
PASSES_A_LOOK = 4

_ATTRIBUTE = "_muxws_green_turns"


class Nobody(Enum):
    """What `Resume` returns where it has switched to nobody."""

    NOBODY = 0


NOBODY: Final = Nobody.NOBODY
#: What a greenlet that has passed its turn on is called back with.
_CALLED_BACK: Final = object()

#: Switches to a greenlet that waits, which returns this argument from its wait. Where it does not wait any more it
#: returns NOBODY; otherwise whatever the caller, which was switched away from, is given when its own wait ends.
Resume = Callable[[Any], Any]


class Waiter:
    """A greenlet that waits, about to, or has. What is to wake it may come at any of these times.

    An early wake-up is kept, and a late one does nothing.
    """

    __slots__ = ("early", "greenlet")

    def __init__(self) -> None:
        #: While it waits.
        self.greenlet: greenlet | None = None
        #: What it was woken with when it did not wait; None: it was not.
        self.early: Any = None

    def resume(self, value: Any) -> Any:
        """End its wait with this value, not None; see `Resume`."""
        if self.greenlet is None:
            self.early = value
            return NOBODY
        return self.greenlet.switch(value)

    def expire(self) -> None:
        """Its time has come."""
        self.resume(False)


class Turns:
    """Those of one hub. Of its thread only.

    Args:
        hub: The hub.
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        # What the hub will run next. Without it nobody can tell who else is due, and all turns are the hub's.
        self._queue = getattr(hub.loop, "_callbacks", None)
        self._due: Resume | None = None
        self._value: Any = None
        # Whether `_run` is in the queue, and whether something else has been seen there beside it.
        self._called = False
        self._crowded = self._queue is None
        # Those who have passed their turn on and were not called back, how many passed since the hub's last look, and
        # which look that was.
        self._passers: list[Waiter] = []
        self._passes = 0
        self._look: int | None = None
        #: Whether somebody in the hub has more turns to give before those that are queued.
        self.held = False
        #: How often somebody has waited. Whoever finds it unchanged has not waited meanwhile, provided that it was
        #: given its turn by the hub or from here.
        self.waits = 0

    def offer(self, resume: Resume, value: Any = None) -> bool:
        """Have `resume(value)` run next, by whoever waits here next or by the hub. Never switches.

        Returns:
            False where that would be out of turn: the caller is to queue it in the hub.
        """
        if not self.is_free():
            return False
        self._due = resume
        self._value = value
        if not self._called:
            self._called = True
            self._hub.loop.run_callback(self._run)
        return True

    def soon(self, resume: Resume, value: Any = None) -> None:
        """Have `resume(value)` run as soon as it is its turn. Never switches."""
        if not self.offer(resume, value):
            self._hub.loop.run_callback(resume, value)

    def wait(self) -> Any:
        """Wait until somebody switches to the calling greenlet, which must not be the hub; return what it is given."""
        self.waits += 1
        if self._due is not None and self._is_uncrowded() and self._may_pass_on():
            given = self._pass_on(self._due)
            if given is not NOBODY and given is not _CALLED_BACK:
                return given
        return self._hub.switch()

    def _may_pass_on(self) -> bool:
        # A loop that does not count its looks (libuv) has all turns after the first ones.
        look = getattr(self._hub.loop, "iteration", None)
        if look != self._look:
            self._look = look
            self._passes = 0
        return self._passes < PASSES_A_LOOK

    def _pass_on(self, due: Resume) -> Any:
        self._passes += 1
        value, self._due, self._value = self._value, None, None
        passer = Waiter()
        passer.greenlet = getcurrent()
        self._passers.append(passer)
        try:
            return due(value)
        finally:
            # It has been woken, called back, or ended; whichever it was, nobody is to call it back any more.
            passer.greenlet = None

    def is_free(self) -> bool:
        """Whether there is nobody to run before the hub looks at its sockets."""
        return self._due is None and self._is_uncrowded()

    def _is_uncrowded(self) -> bool:
        """Whether nothing is queued in the hub besides `_run`.

        To count what is queued takes as long as that is, so it is not done twice before the hub has run all of it.
        """
        if self._crowded or self.held:
            return False
        if not self._called:
            return not self._queue
        # One is `_run`.
        self._crowded = self._queue is None or len(self._queue) > 1
        return not self._crowded

    def _run(self) -> None:
        """In the hub: whoever was due has had its turn by now, or has it here."""
        self.waits += 1
        self._called = False
        self._crowded = self._queue is None
        passers, self._passers = self._passers, []
        for passer in passers:
            passer.resume(_CALLED_BACK)
        due, self._due = self._due, None
        if due is not None:
            value, self._value = self._value, None
            due(value)
            self.waits += 1


def turns_of(hub: Hub) -> Turns:
    """The turns of a hub, which keeps them."""
    turns: Turns | None = getattr(hub, _ATTRIBUTE, None)
    if turns is None:
        turns = Turns(hub)
        setattr(hub, _ATTRIBUTE, turns)
    return turns
