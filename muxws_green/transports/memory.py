"""Two connected transports without a socket, for tests and for the conformance runner.

Whole messages travel between the two ends; everything that a reader or a writer can observe of `SocketTransport` holds
here too: text and binary are kept apart, a close frame arrives after what was sent before it, its answer is written by
the next `send` or `abort`, an end without one is 1006, and an interrupted `send` makes the transport unusable. Each
direction is a `Line`, where faults and a bound for the bytes under way are set while the connection lives.

Nothing here looks inside a message. Both ends belong to one hub.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import gevent
from gevent.event import Event
from zope.interface import implementer

from muxws_green.errors import ConnectionClosed
from muxws_green.interfaces import IClock, ITransport
from muxws_green.websocket import encode_close

#: Twice the cap of one message (PROTOCOL §5).
DEFAULT_MAX_MESSAGE_BYTES = 131_072

#: About what one `receive` returns, as one read of a socket would.
_READ_BYTES = 65_536

_REASON_BYTES = 123

_LOST = (1006, "connection lost without a close frame")


@dataclass(frozen=True, slots=True)
class _CloseFrame:
    """A close frame under way; the code None is an empty one."""

    code: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class _Violation:
    """In place of a message that the receiving end may not accept."""

    code: int
    reason: str


class _EndOfFile:
    """The sending end has gone; nothing follows."""


_Item = str | bytes | _CloseFrame | _Violation | _EndOfFile


@dataclass(slots=True)
class _Parcel:
    item: _Item
    size_bytes: int
    due: bool


class Line:
    """One direction of a pair: what one end has sent and the other has not taken, oldest first; nothing overtakes.

    Made by `memory_pair`. The methods make faults; they may be called at any time and in any order.

    Args:
        capacity_bytes: How much may be under way before `send` waits; one message of any size passes on an empty line.
            None: no bound.
    """

    def __init__(self, capacity_bytes: int | None) -> None:
        self.capacity_bytes = capacity_bytes
        #: Bytes that have been sent and have not arrived, for the stall or the delay.
        self.travelling_bytes = 0
        #: Bytes that have arrived and that `receive` has not returned.
        self.arrived_bytes = 0
        #: True once the end of the stream has arrived.
        self.ended = False
        self._travelling: deque[_Parcel] = deque()
        self._arrived: deque[_Parcel] = deque()
        self._stalled = False
        self._dropping = False
        self._delay_seconds = 0.0
        self._bytes_per_second: float | None = None
        self._passing_bytes: int | None = None
        self._free_at = -math.inf
        self._clock: IClock | None = None
        self._readable = Event()
        self._changed = Event()
        self._on_end: Callable[[], None] = lambda: None

    def stall(self) -> None:
        """Let nothing arrive until `resume`: a frozen machine, a dead link. Sending goes on up to the capacity."""
        self._stalled = True

    def resume(self) -> None:
        """End a stall; what has been waiting arrives in its order."""
        self._stalled = False
        self._move()

    def delay(self, seconds: float, clock: IClock) -> None:
        """Let everything sent from now on arrive `seconds` later by `clock`; 0 ends the delay for what follows."""
        if not seconds >= 0:
            raise ValueError(f"seconds must not be negative, got {seconds!r}")
        self._delay_seconds = seconds
        self._clock = clock

    def throttle(self, bytes_per_second: float | None, clock: IClock) -> None:
        """Let what is sent from now on arrive at this rate by `clock`, each message when it is whole; None ends it."""
        if bytes_per_second is not None and not bytes_per_second > 0:
            raise ValueError(f"bytes_per_second must be above 0, got {bytes_per_second!r}")
        self._bytes_per_second = bytes_per_second
        self._free_at = -math.inf
        self._clock = clock

    def drop(self) -> None:
        """Lose what has not arrived and all that is sent from now on, the end included: a cable that was pulled out."""
        self._dropping = True
        self._move()

    def cut_after(self, passing_bytes: int) -> None:
        """Let so many bytes more arrive and then `cut`; a message that they end within is lost."""
        if passing_bytes < 0:
            raise ValueError(f"passing_bytes must not be negative, got {passing_bytes!r}")
        self._passing_bytes = passing_bytes
        if passing_bytes == 0:
            self.cut()

    def cut(self) -> None:
        """Lose what has not arrived and end the stream without a close frame; what has arrived can still be read."""
        self._travelling.clear()
        self.travelling_bytes = 0
        self._stalled = False
        self._deliver(_Parcel(_EndOfFile(), 0, True))
        self._changed.set()

    def _has_room(self, size_bytes: int) -> bool:
        under_way = self.travelling_bytes + self.arrived_bytes
        return self.capacity_bytes is None or under_way == 0 or under_way + size_bytes <= self.capacity_bytes

    def _wait_for_change(self) -> None:
        self._changed.clear()
        self._changed.wait()

    def _put(self, item: _Item, size_bytes: int) -> None:
        wait = self._travel_seconds(size_bytes)
        parcel = _Parcel(item, size_bytes, due=wait == 0)
        self._travelling.append(parcel)
        self.travelling_bytes += size_bytes
        if not parcel.due and self._clock is not None:

            def arrive() -> None:
                parcel.due = True
                self._move()

            self._clock.call_later(wait, arrive)
        self._move()

    def _travel_seconds(self, size_bytes: int) -> float:
        if self._bytes_per_second is None or self._clock is None:
            return self._delay_seconds
        now = self._clock.now()
        self._free_at = max(now, self._free_at) + size_bytes / self._bytes_per_second
        return self._free_at - now + self._delay_seconds

    def _move(self) -> None:
        while self._travelling and (self._dropping or (self._travelling[0].due and not self._stalled)):
            parcel = self._travelling.popleft()
            self.travelling_bytes -= parcel.size_bytes
            if self._dropping:
                self._changed.set()
            elif self._passing_bytes is None:
                self._deliver(parcel)
            else:
                self._passing_bytes -= parcel.size_bytes
                if self._passing_bytes >= 0:
                    self._deliver(parcel)
                if self._passing_bytes <= 0:
                    self.cut()

    def _deliver(self, parcel: _Parcel) -> None:
        if self.ended:
            return
        self._arrived.append(parcel)
        self.arrived_bytes += parcel.size_bytes
        self._readable.set()
        if isinstance(parcel.item, _EndOfFile):
            self.ended = True
            self._on_end()

    def _discard(self) -> None:
        """The receiving end is gone: nothing arrives any more, and whoever waits to read is woken."""
        self._arrived.clear()
        self.arrived_bytes = 0
        self.ended = True
        self._readable.set()

    def _take(self) -> _Parcel | None:
        if not self._arrived:
            self._readable.clear()
            return None
        parcel = self._arrived.popleft()
        self.arrived_bytes -= parcel.size_bytes
        self._changed.set()
        return parcel


def memory_pair(
    *, capacity_bytes: int | None = None, max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
) -> tuple[MemoryTransport, MemoryTransport]:
    """Two transports of which each receives what the other sends.

    Args:
        capacity_bytes: How many bytes may be under way in each direction before `send` waits; None: no bound.
        max_message_bytes: A longer message is refused by the end that receives it, which is to close with 1009.
    """
    there, back = Line(capacity_bytes), Line(capacity_bytes)
    return MemoryTransport(there, back, max_message_bytes), MemoryTransport(back, there, max_message_bytes)


@implementer(ITransport)
class MemoryTransport:
    """One end of a `memory_pair`; besides the transport's own methods it has those that a test needs.

    `sent` holds the messages that this end has sent, `closed_with` the (code, reason) of the close frame that it sent.
    Faults of what this end sends are made on `outgoing`, of what it receives on `incoming`.
    """

    def __init__(self, outgoing: Line, incoming: Line, max_message_bytes: int) -> None:
        self.outgoing = outgoing
        self.incoming = incoming
        self.max_message_bytes = max_message_bytes
        #: Every message that this end has put on the line, in order, in its encoded form.
        self.sent: list[bytes] = []
        #: The close frame that this end has sent, the answer to the remote's included; the code None: an empty one.
        self.closed_with: tuple[int | None, str] | None = None
        #: Bytes of the messages received and sent.
        self.received_bytes = 0
        self.sent_bytes = 0
        #: Whether this end is to close for a WebSocket rule that the remote broke.
        self.violated = False
        self._wake: Callable[[], None] = lambda: None
        self._end: tuple[int, str] | None = None
        self._answer: _CloseFrame | None = None
        self._waiting_bytes = 0
        self._kept: list[tuple[bytes, bool]] = []
        self._yield_first = False
        self._aborted = False
        self._broken = False
        incoming._on_end = outgoing._changed.set

    # -- the transport

    def attach(self, wake: Callable[[], None]) -> None:
        """See `ITransport`: `wake` is called when the answer to a close frame is due."""
        self._wake = wake

    def receive(self) -> Sequence[str | bytes]:
        """Wait for messages; see `ITransport`."""
        if self._yield_first:
            self._yield_first = False
            gevent.sleep(0)
        messages: list[str | bytes] = []
        size_bytes = 0
        while self._end is None and size_bytes < _READ_BYTES:
            parcel = self.incoming._take()
            if parcel is not None:
                size_bytes += parcel.size_bytes
                self.received_bytes += parcel.size_bytes
                self._accept(parcel.item, messages)
            elif messages:
                break
            else:
                self.incoming._readable.wait()
        if messages:
            self._yield_first = size_bytes >= _READ_BYTES
            return messages
        raise self._ended()

    def send(self, messages: Sequence[bytes], binary: bool) -> None:
        """Put `messages` on the line; wait while it is full. See `ITransport`."""
        self._write_kept()
        self._write_answer()
        if not messages:
            return
        if self.closed_with is not None:
            raise ConnectionClosed("nothing can be sent after a close frame")
        self.sent_bytes += sum(map(len, messages))
        self._write([(message, binary) for message in messages])

    def send_at_once(self, messages: Sequence[bytes], binary: bool) -> None:
        """Put on the line what it has room for. See `ITransport`."""
        self._check_usable()
        if self.closed_with is not None:
            raise ConnectionClosed("nothing can be sent after a close frame")
        self.sent_bytes += sum(map(len, messages))
        for number, message in enumerate(messages):
            if self._kept or not self.outgoing._has_room(len(message)):
                self._kept += [(late, binary) for late in messages[number:]]
                self._waiting_bytes = sum(len(late) for late, _ in self._kept)
                self._wake()
                return
            self._write([(message, binary)])

    def close(self, code: int, reason: str) -> None:
        """Send a close frame, once; see `ITransport`."""
        frame = _close_frame(code, reason)
        self._write_kept()
        self._write_answer()
        if self.closed_with is None:
            self._write_close(frame)

    def abort(self, code: int | None = None) -> None:
        """End this end at once; the other sees the close frame that could still be sent, or 1006. See `ITransport`."""
        if self._aborted:
            return
        frame = self._answer or (None if code is None else _close_frame(code, ""))
        self._aborted = True
        if frame is not None and self.closed_with is None and self._waiting_bytes == 0 and not self._broken:
            self.closed_with = (frame.code, frame.reason)
            self.outgoing._put(frame, 0)
        self.outgoing._put(_EndOfFile(), 0)
        self._end = self._end or _LOST
        self.incoming._discard()
        self.outgoing._changed.set()

    def disown(self) -> None:
        """End this end without a word; there is no descriptor. See `ITransport.disown`."""
        self._aborted = True
        self._end = self._end or _LOST
        self.incoming._discard()

    def unacknowledged(self) -> int | None:
        """Bytes that are held up on the line, and those of a `send` that waits."""
        return self.outgoing.travelling_bytes + self._waiting_bytes

    # -- for tests

    def inject(self, message: str | bytes) -> None:
        """Deliver `message` to this end as if the remote had sent it, behind what has arrived."""
        self.incoming._deliver(_Parcel(message, _length(message), True))

    def inject_close(self, code: int | None = None, reason: str = "") -> None:
        """Deliver a close frame to this end as if the remote had sent it; None: an empty one."""
        self.incoming._deliver(_Parcel(_CloseFrame(code, reason), 0, True))

    def inject_violation(self, code: int, reason: str = "") -> None:
        """Let this end find a broken WebSocket rule: `receive` raises with the `code` that it is to close with."""
        self.incoming._deliver(_Parcel(_Violation(code, reason), 0, True))

    def drop(self) -> None:
        """The death of the connection: both ends read what has arrived and then see 1006."""
        self.outgoing.cut()
        self.incoming.cut()

    # -- inside

    def _accept(self, item: _Item, messages: list[str | bytes]) -> None:
        match item:
            case _EndOfFile():
                self._end = _LOST
            case _CloseFrame(code, reason):
                self._end = (1005 if code is None else code, reason)
                if self.closed_with is None:
                    self._answer = item
                    self._wake()
            case _Violation(code, reason):
                self.violated = True
                self._end = (code, reason)
            case _ if _length(item) > self.max_message_bytes:
                self.violated = True
                self._end = (1009, f"message of {_length(item)} bytes is over the limit of {self.max_message_bytes}")
            case _:
                messages.append(item)

    def _ended(self) -> ConnectionClosed:
        code, reason = self._end or _LOST
        return ConnectionClosed(code=code, reason=reason, was_clean=code == 1000)

    def _put(self, item: _Item, size_bytes: int) -> None:
        self._check_usable()
        while not self.outgoing._has_room(size_bytes):
            try:
                self.outgoing._wait_for_change()
            except BaseException:
                self._broken = True
                raise
            self._check_usable()
        self.outgoing._put(item, size_bytes)

    def _check_usable(self) -> None:
        if self._aborted or self._broken or self.incoming.ended:
            raise ConnectionClosed(_LOST[1])

    def _write(self, messages: Sequence[tuple[bytes, bool]]) -> None:
        self._waiting_bytes = sum(len(message) for message, _ in messages)
        try:
            for message, binary in messages:
                self._put(message if binary else message.decode(), len(message))
                self.sent.append(message)
                self._waiting_bytes -= len(message)
        finally:
            self._waiting_bytes = 0

    def _write_kept(self) -> None:
        """What `send_at_once` had no room for."""
        kept, self._kept = self._kept, []
        if kept:
            self._write(kept)

    def _write_answer(self) -> None:
        if self._answer is not None and self.closed_with is None:
            self._write_close(self._answer)

    def _write_close(self, frame: _CloseFrame) -> None:
        self._put(frame, 0)
        self.closed_with = (frame.code, frame.reason)


def _length(message: str | bytes) -> int:
    return len(message.encode("utf-8", "surrogatepass")) if isinstance(message, str) else len(message)


def _close_frame(code: int, reason: str) -> _CloseFrame:
    # For what it refuses; the length of the reason is another matter here, where nothing is encoded.
    encode_close(code, "", False)
    return _CloseFrame(code, reason.encode("utf-8", "replace")[:_REASON_BYTES].decode("utf-8", "ignore"))
