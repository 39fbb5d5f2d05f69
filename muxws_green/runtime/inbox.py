"""What has arrived on one stream and has not been consumed, and what all of that together may weigh (DESIGN §5)."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any

from gevent import getcurrent
from greenlet import greenlet

from muxws_green.errors import ResetCode, StreamReset
from muxws_green.protocol.streams import LiveStream
from muxws_green.runtime.waiting import Parking, WaitList

#: How many times the soft limit the hard one is.
HARD_FACTOR = 4


class Inbox:
    """The receiving half of a stream.

    Args:
        intake: The connection's.
        live: The stream.
    """

    __slots__ = (
        "_intake",
        "dropping",
        "ended",
        "error",
        "held_bytes",
        "items",
        "live",
        "taken_at",
        "taker",
        "waiters",
    )

    def __init__(self, intake: Intake, live: LiveStream) -> None:
        self._intake = intake
        self.live = live
        self.items: deque[tuple[Any, int]] = deque()
        self.held_bytes = 0
        #: True where nobody can ever ask for a payload: it is dropped on arrival.
        self.dropping = False
        #: The remote has ended its side.
        self.ended = False
        #: The reset that ended the stream.
        self.error: StreamReset | None = None
        #: Where somebody waits for something to arrive; None where nobody ever did.
        self.waiters: WaitList | None = None
        #: The greenlet that took a payload last, or took it upon itself to wait for one.
        self.taker: greenlet | None = None
        #: When a payload was last taken during a pause.
        self.taken_at = -math.inf

    def deliver(self, payload: Any, size: int) -> None:
        """A payload has arrived."""
        if self.dropping:
            return
        self.items.append((payload, size))
        self.held_bytes += size
        intake = self._intake
        intake.holders[self] = None
        intake.held_bytes += size
        if intake.held_bytes > intake.hard_bytes:
            intake.overfilled(self, size)
        waiters = self.waiters
        if waiters is not None and waiters.waiters:
            waiters.wake()

    def wait(self, until: float | None) -> bool:
        """Wait for something to arrive; False where the clock's time `until` came first."""
        if self.waiters is None:
            self.waiters = WaitList(self._intake.parking)
        return self.waiters.wait(until)

    def take(self) -> Any:
        """The oldest payload; there must be one."""
        payload, size = self.items.popleft()
        self.held_bytes -= size
        self.taker = getcurrent()
        intake = self._intake
        intake.held_bytes -= size
        if not self.held_bytes:
            intake.holders.pop(self, None)
        if intake.paused:
            intake.released(self)
        return payload

    def forget_taker(self, taker: greenlet) -> None:
        """That greenlet takes nothing any more. It is not kept, as what it has returned or raised would be with it."""
        if self.taker is taker:
            self.taker = None

    def drop(self) -> None:
        """Nobody will ask for what is here, or for what still comes."""
        self.dropping = True
        self.taker = None
        if self.items:
            self.items.clear()
            intake = self._intake
            intake.held_bytes -= self.held_bytes
            self.held_bytes = 0
            intake.holders.pop(self, None)
            if intake.paused:
                intake.released(self)

    def close(self, error: StreamReset | None) -> None:
        """Nothing more will arrive: the remote has ended (None) or the stream was reset."""
        if error is None:
            self.ended = True
        elif self.error is None:
            self.error = error
        if self.waiters is not None:
            self.waiters.wake()


class Intake:
    """Everything held on one connection, and the pause that holds back the remote.

    The reader pauses while the soft limit is passed, unless the greenlet that consumes the stream holding most is
    itself waiting for something that reading must bring. A stream that keeps it there too long is ended alone.

    A consumer that waits for room to send, as every echo of a slow reader does, waits for the remote to read. Reading
    goes on for it to `brim_bytes`, since two ends that both stopped reading for that would wait for each other; but no
    further, since it is this pause that tells a remote which sends and does not read to slow down.

    Args:
        parking: The connection's waits.
        soft_bytes: Past this the reader pauses; it resumes at half.
        pause_timeout: Seconds without progress after which the stream holding most is ended.
        refuse: Ends a stream for what it holds: called with the stream and the reason.
    """

    def __init__(
        self,
        parking: Parking,
        soft_bytes: int,
        pause_timeout: float,
        refuse: Callable[[LiveStream, str], None],
    ) -> None:
        self.parking = parking
        self.soft_bytes = soft_bytes
        self.hard_bytes = HARD_FACTOR * soft_bytes
        self.brim_bytes = self.hard_bytes - self.hard_bytes // 8
        self.pause_timeout = pause_timeout
        self._refuse = refuse
        self.held_bytes = 0
        self.paused = False
        #: The streams that hold something, for the inboxes to note themselves.
        self.holders: dict[Inbox, None] = {}
        #: Where the reader waits during a pause; None before the first.
        self._resume: WaitList | None = None
        self._closed = False

    def overfilled(self, inbox: Inbox, size: int) -> None:
        """With `size` bytes more in `inbox` the hard limit is passed."""
        # What somebody waits for at this moment is as good as taken.
        if not (inbox.waiters and inbox.held_bytes == size):
            self._end_biggest(f"more than {self.hard_bytes} bytes were waiting to be consumed")

    def released(self, inbox: Inbox) -> None:
        """Something of `inbox` has been consumed or dropped during a pause."""
        inbox.taken_at = self.parking.clock.now()
        if self.held_bytes <= self.soft_bytes // 2 or self._biggest() is not inbox:
            self._go_on()

    def pause(self) -> None:
        """Wait while too much is held; called by the reader between reads."""
        if self.held_bytes <= self.soft_bytes or self._is_waited_for():
            return
        self.paused = True
        parking = self.parking
        told = parking.on_park
        parking.on_park = self._reconsider
        began = parking.clock.now()
        resume = self._resume = self._resume or WaitList(parking, counted=False)
        try:
            while self.held_bytes > self.soft_bytes // 2 and not self._closed and not self._is_waited_for():
                until = self._patience(began)
                if not resume.wait(until) and parking.clock.now() >= self._patience(began):
                    # Everybody else has waited long enough: whoever holds most pays, and reading goes on.
                    self._end_biggest(f"nothing was consumed for {self.pause_timeout} s")
                    if self.held_bytes <= self.soft_bytes:
                        break
        finally:
            self.paused = False
            parking.on_park = told

    def close(self) -> None:
        """The connection is over: a paused reader goes on, to find that out."""
        self._closed = True
        self._go_on()

    def _patience(self, began: float) -> float:
        """Until when the stream holding most may go on doing so, in a pause that began at `began`."""
        biggest = self._biggest()
        return (began if biggest is None else max(began, biggest.taken_at)) + self.pause_timeout

    def _biggest(self) -> Inbox | None:
        # Of a list, since the garbage collector may take one away meanwhile.
        return max(list(self.holders), key=lambda inbox: inbox.held_bytes, default=None)

    def _is_waited_for(self) -> bool:
        """Whether the consumer of the stream holding most waits for what a pause would withhold."""
        biggest = self._biggest()
        if biggest is None:
            return True
        parking, taker = self.parking, biggest.taker
        if taker in (parking.parked or ()):
            return True
        return taker in (parking.sending or ()) and self.held_bytes < self.brim_bytes

    def _reconsider(self) -> None:
        if self._is_waited_for():
            self._go_on()

    def _go_on(self) -> None:
        """Let a paused reader look again."""
        if self._resume is not None:
            self._resume.wake()

    def _end_biggest(self, why: str) -> None:
        biggest = self._biggest()
        assert biggest is not None
        reason = f"{why}; read faster, or give this stream a connection of its own"
        biggest.drop()
        self._refuse(biggest.live, reason)
        # Where the stream had closed before, its consumer must not take what is left for everything.
        biggest.close(StreamReset(reason, code=ResetCode.CANCELLED))
