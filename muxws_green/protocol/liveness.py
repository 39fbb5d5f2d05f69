"""When to ping, and when a silent remote is dead: arithmetic on times that others tell.

Two policies. `IdleHeartbeat` pings a connection on which nothing happens and waits for an answer (seed A).
`CountingHeartbeat` pings at once and at every interval, and counts (seed B). Whatever arrives saves the remote under
either; so does a ping of ours that has not left yet, which `Outflow` finds out. The state of one connection belongs to
the runtime of that connection; a policy is immutable and may serve any number.

A death is found only by `look`, and `due` says when to look at the latest. Of what happens in between nothing makes
that earlier, so one timer for a connection is enough, and a received message costs a store or two.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from zope.interface import implementer

from muxws_green.errors import HeartbeatTimeoutError
from muxws_green.interfaces import IHeartbeat, IHeartbeatPolicy

#: How finely `Outflow` looks: its first step is one part in this many of the time to the next look, and then they
#: double, up to one in the second number.
_FIRST_STEP = 32
_LARGEST_STEP = 8

#: So few bytes before a ping do not hold it up. Otherwise every small frame just before one would move its deadline.
_FEW_BYTES = 4096


@implementer(IHeartbeatPolicy)
@dataclass(frozen=True, slots=True)
class IdleHeartbeat:
    """Pings a connection that has been idle, and gives the remote a time to show any sign of life (seed A).

    Received frames restart the idle time. A sent frame restarts it only if something has been received since the last
    restart by sending; being established counts as received. So a connection that only sends is pinged at most one
    interval after its first frame that nothing has answered, and a dead remote is found at most `interval + timeout`
    after the last frame that was not one of a row of unanswered ones.

    Args:
        interval: Seconds without traffic until a ping; above 0.
        timeout: Seconds from the ping until the remote is dead; above 0. They begin anew while bytes queued before the
            ping are still leaving.

    Raises:
        ValueError: One of them is not a finite number above 0.
    """

    interval: float = 20.0
    timeout: float = 10.0

    def __post_init__(self) -> None:
        _check_duration("interval", self.interval)
        _check_duration("timeout", self.timeout)

    def start(self, now: float, nonces: Callable[[], str]) -> IdleBeat:
        """The state for a connection that is established at `now`; `nonces` gives a fresh nonce for each ping."""
        return IdleBeat(self, now, nonces)


@implementer(IHeartbeatPolicy)
@dataclass(frozen=True, slots=True)
class CountingHeartbeat:
    """Pings at once and at every interval, whatever else happens, and counts the unanswered ones (seed B).

    Anything received sets the count back to zero. Where more than `max_missed` in a row are unanswered when the next
    one would be due, the remote is dead: `(max_missed + 1) * interval` after the first of them. Its nonces are "1", "2"
    and so on.

    Args:
        interval: Seconds between pings; above 0.
        max_missed: How many unanswered pings in a row the remote may survive; 0 or more.

    Raises:
        ValueError: `interval` is not a finite number above 0, or `max_missed` is not an int from 0.
    """

    interval: float = 5.0
    max_missed: int = 3

    def __post_init__(self) -> None:
        _check_duration("interval", self.interval)
        # True would count as 1.
        if type(self.max_missed) is not int or self.max_missed < 0:
            raise ValueError(f"max_missed must be an int, not below 0: {self.max_missed!r}")

    def start(self, now: float, nonces: Callable[[], str]) -> CountingBeat:
        """The state for a connection whose first ping is due at `now`; `nonces` is not used."""
        return CountingBeat(self, now)


def _check_duration(name: str, seconds: object) -> None:
    if type(seconds) not in (int, float) or not 0 < seconds < math.inf:  # type: ignore[operator]
        raise ValueError(f"{name} must be a finite number of seconds above 0: {seconds!r}")


@implementer(IHeartbeat)
class IdleBeat:
    """`IdleHeartbeat` at work on one connection."""

    __slots__ = ("_answered", "_deadline", "_interval", "_looked", "_nonces", "_pinged", "_restarted", "_timeout")

    def __init__(self, policy: IdleHeartbeat, now: float, nonces: Callable[[], str]) -> None:
        self._interval = policy.interval
        self._timeout = policy.timeout
        self._nonces = nonces
        self._restarted = now
        #: Something has been received since sending last restarted the idle time.
        self._answered = True
        #: When the outstanding ping was queued.
        self._pinged: float | None = None
        self._deadline = math.inf
        self._looked = now

    def received(self, now: float) -> None:
        """Something has arrived: the idle time begins anew, and no ping is outstanding."""
        self._restarted = now
        self._answered = True
        self._pinged = None

    def sent(self, now: float) -> None:
        """Frames other than pings have been sent: the idle time begins anew, once for each answer."""
        if self._answered:
            self._answered = False
            self._restarted = now

    def leaving(self, now: float) -> None:
        """The outstanding ping was still on its way out at `now`: its wait begins there."""
        if self._pinged is not None:
            self._deadline = now + self._timeout

    def due(self) -> float:
        """When to look again, at the latest."""
        if self._pinged is None:
            return self._restarted + self._interval
        # An answer right after the last look makes the next ping due so early.
        return min(self._deadline, self._looked + self._interval)

    def look(self, now: float) -> str | None:
        """A nonce to ping with, or None.

        Raises:
            HeartbeatTimeoutError: Nothing has been received for `timeout` since the ping.
        """
        self._looked = now
        if self._pinged is None:
            if now < self._restarted + self._interval:
                return None
            self._pinged = now
            self._deadline = now + self._timeout
            return self._nonces()
        if now < self._deadline:
            return None
        raise HeartbeatTimeoutError(reason=f"no pong within {self._timeout:g}s")


@implementer(IHeartbeat)
class CountingBeat:
    """`CountingHeartbeat` at work on one connection."""

    __slots__ = ("_anchor", "_deadline", "_interval", "_max_missed", "_pings", "_steps", "_unanswered", "_waits_from")

    def __init__(self, policy: CountingHeartbeat, now: float) -> None:
        self._interval = policy.interval
        self._max_missed = policy.max_missed
        #: The next ping is due so many intervals after this; multiplied, since a sum of many would drift.
        self._anchor = now
        self._steps = 0
        self._pings = 0
        self._unanswered = 0
        #: Since when, and until when, the first unanswered ping waits.
        self._waits_from = now
        self._deadline = math.inf

    def received(self, now: float) -> None:
        """Something has arrived: no ping counts as unanswered any more."""
        self._unanswered = 0

    def sent(self, now: float) -> None:
        """Nothing: pings go out whether or not anything is sent."""

    def leaving(self, now: float) -> None:
        """The first unanswered ping was still on its way out at `now`: its wait begins there."""
        # At its own time nothing changes; the sum may not be what the product in `look` is.
        if self._unanswered and now > self._waits_from:
            self._waits_from = now
            self._deadline = now + (self._max_missed + 1) * self._interval

    def due(self) -> float:
        """When to look again, at the latest."""
        ping = self._anchor + self._steps * self._interval
        return min(ping, self._deadline) if self._unanswered > self._max_missed else ping

    def look(self, now: float) -> str | None:
        """A nonce to ping with, or None.

        Raises:
            HeartbeatTimeoutError: More than `max_missed` pings in a row are unanswered, the first of them for
                `(max_missed + 1) * interval`.
        """
        if self._unanswered > self._max_missed and now >= self._deadline:
            seconds = (self._max_missed + 1) * self._interval
            raise HeartbeatTimeoutError(reason=f"no answer to {self._unanswered} pings within {seconds:g}s")
        ping = self._anchor + self._steps * self._interval
        if now < ping:
            return None
        if now > ping:
            # Late: the next one is due a whole interval after this one, not sooner.
            self._anchor = now
            self._steps = 0
        self._steps += 1
        if self._unanswered > self._max_missed and self._deadline < now + self._interval:
            # The wait began a little after a ping's own time, and its end is near: the verdict takes this one's place.
            return None
        if not self._unanswered:
            self._waits_from = now
            self._deadline = self._anchor + (self._steps + self._max_missed) * self._interval
        self._pings += 1
        self._unanswered += 1
        return str(self._pings)


class Outflow:
    """Whether a ping is still on its way out: then a remote that has not answered it is not silent (DESIGN §1).

    Follows the first unanswered ping. What was handed to the socket before it has to be acknowledged first; as long as
    the number of those bytes goes down, the ping is leaving. Where it stands still the remote has stopped taking them,
    and the wait runs on.

    The runtime calls `queued` for each ping, and while it `follows` one, `moved` before each look and after each write;
    it looks again at `look_at`. Counters are of bytes since the connection began. `handed` includes those of a
    write that is not over, as `unacknowledged` does; a count of `handed` that leaves out some framing makes it see less
    movement, never more.
    """

    __slots__ = ("_acked", "_ahead", "_handed", "_left", "_queued", "_received", "_span")

    def __init__(self) -> None:
        #: Bytes that go before the ping; None where no ping is unanswered.
        self._ahead: int | None = None
        #: All of those have been acknowledged, as far as can be known, and the ping has been handed over.
        self._left = False
        self._received = -1
        self._handed = 0
        self._acked: int | None = None
        self._queued = 0.0
        self._span = 0.0

    def queued(self, now: float, due: float, received: int, handed: int, unacknowledged: int | None) -> None:
        """A ping has been queued and will be part of the next write.

        Args:
            now: The time.
            due: When the policy wants to look next.
            received: Bytes received.
            handed: Bytes handed to the socket.
            unacknowledged: How many of those the remote has not acknowledged; None where that cannot be known.
        """
        if self._ahead is None or received != self._received:
            self._ahead = handed
            self._left = False
            self._received = received
            self._handed = handed
            self._acked = None if unacknowledged is None else handed - _in_the_way(unacknowledged)
            self._queued = now
            self._span = due - now

    @property
    def follows(self) -> bool:
        """Whether there is a ping that may still be on its way; `moved` is False where there is none."""
        return self._ahead is not None and not self._left

    def moved(self, received: int, handed: int, unacknowledged: int | None) -> bool:
        """Whether, since the last call, the ping or bytes before it have moved on.

        Args:
            received: Bytes received.
            handed: Bytes handed to the socket.
            unacknowledged: How many of those the remote has not acknowledged; None where that cannot be known.
        """
        if self._ahead is None or self._left:
            return False
        if received != self._received:
            self._ahead = None
            return False
        handed_before, self._handed = self._handed, handed
        handed_over = handed_before <= self._ahead < handed
        if unacknowledged is None:
            self._left = handed > self._ahead
            return handed_over
        in_the_way = _in_the_way(unacknowledged)
        acked_before, self._acked = self._acked, handed - in_the_way
        if acked_before is None:
            acked_before = self._acked
        self._left = handed > self._ahead <= self._acked
        # Nothing is in its way and it is still here: the writer has not had its turn.
        waiting_for_us = handed <= self._ahead and not in_the_way
        return handed_over or waiting_for_us or acked_before < self._acked

    def look_at(self, now: float, due: float) -> float:
        """When to look again, at the latest: sooner than `due` while bytes before the ping have not been acknowledged.

        The wait begins when they stop moving, so that moment must not be missed by much.
        """
        if self._ahead is None or self._acked is None or self._acked >= self._ahead:
            return due
        step = min(max(now - self._queued, self._span / _FIRST_STEP), self._span / _LARGEST_STEP)
        return min(due, now + step)


def _in_the_way(unacknowledged: int) -> int:
    return max(0, unacknowledged - _FEW_BYTES)
