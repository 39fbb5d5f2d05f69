"""One direction of a relayed connection: what is done to its bytes, and the two greenlets that move them.

The invariant: bytes leave in the order in which they came, none is made up, and none is lost but by `drop`,
`half_close`, a cut and a reset. At most a fixed number are held; then no more is read, which the sender feels once the
kernel's own buffers are full. Used by `testing.relay`.
"""

from __future__ import annotations

import math
import socket
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import gevent
from gevent.event import Event
from gevent.socket import socket as GeventSocket  # noqa: N812

from muxws_green.interfaces import IClock, ITimerHandle
from muxws_green.transports.tuning import unacknowledged_bytes

_READ_BYTES = 65_536

#: How often in a second a throttled direction lets something pass.
_PIECES_PER_SECOND = 50
#: How much of what a late timer has cost a throttled direction may make good, in seconds.
_CATCH_UP_SECONDS = 0.5


@dataclass
class Conditions:
    """What is done to the bytes of one direction.

    Attributes:
        delay_seconds: How much later than it was read a byte leaves.
        bytes_per_second: How many leave in a second at most; None: as many as can.
        dropping: Whether what should leave is thrown away.
        stalled: Whether nothing is read and nothing leaves.
        passing_bytes: How many may still leave before the connection is cut; None: it is not to be cut.
        cut_by_reset: Whether the cut is a reset.
        half_closed: Whether the receiver is to be told that nothing more will come.
    """

    delay_seconds: float = 0.0
    bytes_per_second: float | None = None
    dropping: bool = False
    stalled: bool = False
    passing_bytes: int | None = None
    cut_by_reset: bool = False
    half_closed: bool = False


class Faults:
    """The switches of one direction, or of several at once; they may be thrown at any time and together.

    Args:
        conditions: Gives what is to be changed.
        flows: Gives the directions that are to take notice.
    """

    def __init__(self, conditions: Callable[[], Iterable[Conditions]], flows: Callable[[], Iterable[Flow]]) -> None:
        self._all_conditions = conditions
        self._flows = flows

    @property
    def received_bytes(self) -> int:
        """How many bytes have been read from the senders."""
        return sum(flow.received for flow in self._flows())

    @property
    def delivered_bytes(self) -> int:
        """How many bytes have been handed to the receivers' kernel."""
        return sum(flow.delivered for flow in self._flows())

    @property
    def held_bytes(self) -> int:
        """How many bytes are here: under a delay or a stall, or because the receivers do not take them."""
        return sum(flow.held for flow in self._flows())

    def delay(self, seconds: float) -> None:
        """Let each byte that is read from now on leave `seconds` later; 0: at once.

        Raises:
            ValueError: It is negative, infinite or NaN.
        """
        if not 0 <= seconds < math.inf:
            raise ValueError(f"a delay is a finite number of seconds, 0 or more, not {seconds!r}")
        self._set(delay_seconds=seconds)

    def throttle(self, bytes_per_second: float | None) -> None:
        """Let no more than so many bytes leave in a second; None: as many as can.

        Raises:
            ValueError: It is not above 0, or infinite.
        """
        if bytes_per_second is not None and not 0 < bytes_per_second < math.inf:
            raise ValueError(f"bytes_per_second must be finite and above 0, not {bytes_per_second!r}")
        self._set(bytes_per_second=bytes_per_second)

    def drop(self) -> None:
        """Throw away every byte from now on, those that are held included, and keep the end of the connection back.

        The receiver hears nothing more and the sender notices nothing, as if a cable had been pulled out or a machine
        had lost its power. `restore` ends it, and then what follows is out of step.
        """
        self._set(dropping=True)

    def stall(self) -> None:
        """Read and deliver nothing until `resume`; nothing is lost.

        The sender fills the kernel's buffers and then has to wait, as if a program were frozen or did not read. A read
        that has begun already may still end.
        """
        self._set(stalled=True)

    def resume(self) -> None:
        """End a stall; what has been waiting leaves in its order."""
        self._set(stalled=False)

    def cut_after(self, passing_bytes: int, *, reset: bool = False) -> None:
        """Let so many more bytes of this direction leave and then end the connection, both ways and without a word.

        Of a whole relay, each connection that is still to come is cut after its own first bytes.

        Args:
            passing_bytes: How many; 0 ends the connection at once. What is held has yet to leave.
            reset: End it with a reset in place of an end of file; what a receiver has not taken yet may be lost then.

        Raises:
            ValueError: It is negative.
        """
        if passing_bytes < 0:
            raise ValueError(f"passing_bytes must not be negative: {passing_bytes!r}")
        self._set(passing_bytes=passing_bytes, cut_by_reset=reset)

    def half_close(self) -> None:
        """Tell the receiver now that nothing more will come, and throw away what does; the other direction goes on."""
        self._set(half_closed=True)

    def restore(self) -> None:
        """End a delay, a throttle, a drop and a stall, and call off a cut."""
        self._set(delay_seconds=0.0, bytes_per_second=None, dropping=False, stalled=False, passing_bytes=None)

    def _set(self, **changes: object) -> None:
        for conditions in self._all_conditions():
            for name, value in changes.items():
                setattr(conditions, name, value)
        for flow in self._flows():
            flow.wake()


class _Parcel(NamedTuple):
    """Bytes under way; none at all is the end of the stream."""

    data: bytes
    due: float


class Flow(Faults):
    """One direction of one connection.

    Args:
        name: Names its greenlets.
        conditions: What is done to the bytes; this object changes it.
        clock: Tells when.
        capacity_bytes: How many are held at most.
        ended: Called when the sender's end has been passed on to the receiver, with whether the sender was reset.
        broken: Called when the receiver takes nothing any more.
        cut: Called when the connection is to be cut, with whether by a reset.
    """

    def __init__(
        self,
        name: str,
        conditions: Conditions,
        clock: IClock,
        capacity_bytes: int,
        *,
        ended: Callable[[Flow, bool], None],
        broken: Callable[[Flow], None],
        cut: Callable[[bool], None],
    ) -> None:
        super().__init__(lambda: (conditions,), lambda: (self,))
        self.name = name
        self.conditions = conditions
        self.received = self.delivered = self.held = 0
        #: Whether the sender's end has been passed on.
        self.over = False
        #: Whether the end, when it comes, is to be taken for a reset.
        self.ends_by_reset = False
        self._clock = clock
        self._capacity_bytes = capacity_bytes
        self._on_end, self._on_break, self._on_cut = ended, broken, cut
        self._queue: deque[_Parcel] = deque()
        #: Nothing is to be delivered any more.
        self._deaf = False
        #: When the last throttled piece had passed; None where nothing was passing.
        self._line_free_at: float | None = None
        self._may_read, self._may_write = Event(), Event()
        self._greenlets: list[gevent.Greenlet[..., None]] = []
        self._watch: ITimerHandle | None = None

    def start(self, source: GeventSocket, sink: GeventSocket | None) -> None:
        """Begin to move bytes from `source` to `sink`; None: to nowhere."""
        if sink is None:
            self._deaf = True
        else:
            # A fake clock is not to jump while the receiver is still taking bytes.
            self._watch = self._clock.watch(lambda: unacknowledged_bytes(sink))
        for job, work in (
            ("reads", gevent.Greenlet(self._read, source)),
            ("writes", gevent.Greenlet(self._write, sink)),
        ):
            work.name = f"relay {job} {self.name}"
            self._greenlets.append(work)
            work.start()

    def stop(self) -> None:
        """End at once; never switches. Who calls it from a greenlet of the flow ends by returning."""
        if self._watch is not None:
            self._watch.cancel()
        own = [greenlet for greenlet in self._greenlets if greenlet is not gevent.getcurrent()]
        gevent.killall(own, block=False)
        self._queue.clear()
        self.held = 0
        self.over = True

    def deafen(self) -> None:
        """Tell the receiver nothing more; read to the end, whatever conditions there were, and throw it away."""
        self._deaf = True
        self.restore()

    def wake(self) -> None:
        """Look at the conditions again."""
        self._line_free_at = None
        self._may_read.set()
        self._may_write.set()

    # Reading

    def _read(self, source: GeventSocket) -> None:
        data = b" "
        while data:
            while self.conditions.stalled or self.held >= self._capacity_bytes:
                self._may_read.clear()
                self._may_read.wait()
            try:
                data = source.recv(min(_READ_BYTES, self._capacity_bytes - self.held))
            except OSError:
                self.ends_by_reset = True
                data = b""
            self.received += len(data)
            self.held += len(data)
            self._queue.append(_Parcel(data, self._clock.now() + self.conditions.delay_seconds))
            self._may_write.set()

    # Writing

    def _write(self, sink: GeventSocket | None) -> None:
        while not self.over:
            wait = self._write_once(sink)
            if wait > 0.0:
                self._rest(wait)

    def _rest(self, seconds: float) -> None:
        self._may_write.clear()
        timer = None if math.isinf(seconds) else self._clock.call_later(seconds, self._may_write.set)
        try:
            self._may_write.wait()
        finally:
            if timer is not None:
                timer.cancel()

    def _write_once(self, sink: GeventSocket | None) -> float:
        """Do one thing, and say for how many seconds there is nothing to do; infinite: until something changes."""
        conditions = self.conditions
        if conditions.passing_bytes == 0:
            self._on_cut(conditions.cut_by_reset)
            return 0.0
        if conditions.half_closed and not self._deaf and sink is not None:
            self._deaf = True
            tell_end(sink)
        if conditions.stalled or not self._queue:
            self._line_free_at = None
            return math.inf
        now = self._clock.now()
        data, due = self._queue[0]
        if due > now:
            self._line_free_at = None
            return due - now
        if not data:
            return self._pass_end(sink)
        if sink is None or self._deaf or conditions.dropping:
            self._take(len(data))
            return 0.0
        size = len(data)
        if conditions.passing_bytes is not None:
            size = min(size, conditions.passing_bytes)
        if conditions.bytes_per_second is None:
            self._deliver(sink, size)
            return 0.0
        return self._throttled(sink, size, conditions.bytes_per_second, now)

    def _throttled(self, sink: GeventSocket, size: int, rate: float, now: float) -> float:
        size = min(size, max(1, int(rate / _PIECES_PER_SECOND)))
        if self._line_free_at is None:
            self._line_free_at = now
        passed_at = self._line_free_at + size / rate
        if passed_at > now:
            return passed_at - now
        self._deliver(sink, size)
        self._line_free_at = max(passed_at, self._clock.now() - _CATCH_UP_SECONDS)
        return 0.0

    def _deliver(self, sink: GeventSocket, size: int) -> None:
        try:
            sent = sink.send(memoryview(self._queue[0].data)[:size])
        except OSError:
            self._deaf = True
            self._on_break(self)
            return
        # Whoever has stopped this flow meanwhile has emptied the queue too.
        if self._queue:
            self.delivered += sent
            if self.conditions.passing_bytes is not None:
                self.conditions.passing_bytes -= sent
            self._take(sent)

    def _take(self, size: int) -> None:
        """Count so many bytes of the first parcel as gone."""
        data, due = self._queue.popleft()
        if size < len(data):
            self._queue.appendleft(_Parcel(data[size:], due))
        self.held -= size
        self._may_read.set()

    def _pass_end(self, sink: GeventSocket | None) -> float:
        if self.conditions.dropping and not self._deaf:
            return math.inf
        self.over = True
        if sink is not None and not self._deaf and not self.ends_by_reset:
            tell_end(sink)
        self._on_end(self, self.ends_by_reset)
        return 0.0


def tell_end(sink: GeventSocket) -> None:
    """Send a receiver the end of the stream, if it is still there."""
    try:
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        # It has gone before.
        pass
