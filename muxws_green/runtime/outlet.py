"""Who may queue, and who has to wait for room (DESIGN §5). The rule itself is `protocol.lanes.Lanes.has_room`.

No room is ever left unused while somebody waits for it: whoever leaves a wait, for whatever reason, has the next one
looked at behind it.
"""

from __future__ import annotations

from gevent import getcurrent

from muxws_green.protocol.lanes import BATCH_BYTES, Lanes
from muxws_green.protocol.states import CLOSED
from muxws_green.protocol.streams import LiveStream
from muxws_green.runtime.waiting import Parking, WaitList

#: What an envelope takes at the least. Without it a loop that sends tiny payloads would let nobody else have a turn for
#: as many of them as a batch has bytes.
LEAST_ENVELOPE_BYTES = 48


class Outlet(Lanes):
    """A connection's lanes, with a waiting room in front of them.

    Args:
        parking: The connection's waits.
        limit_bytes: See `Lanes`.
    """

    def __init__(self, parking: Parking, limit_bytes: int) -> None:
        super().__init__(limit_bytes)
        self._parking = parking
        #: Those who wait for room in the connection; None where nobody ever did.
        self._small: WaitList | None = None
        self._big: WaitList | None = None
        #: Those who wait for room in a lane; None where nobody ever did.
        self._of_lane: dict[LiveStream, WaitList] | None = None
        self._unyielded = 0
        self._closed = False
        self._going_away = False

    def takes(self, live: LiveStream, size: int, whole: bool) -> bool:
        """Whether a payload may be queued on a stream at once; if so it counts as queued. Else `wait_for_room`."""
        if self._unyielded >= BATCH_BYTES or not self.has_room(live.lane, size, whole):
            return False
        self._unyielded += size + LEAST_ENVELOPE_BYTES
        return True

    def wait_for_room(self, live: LiveStream | None, size: int, whole: bool, until: float | None) -> bool:
        """Wait until a payload may be queued, or its stream or the connection is over.

        Args:
            live: Its stream; None for one that is about to be opened.
            size: Encoded bytes.
            whole: Whether it fits one frame.
            until: The clock's time at which to give up; None: never.

        Returns:
            False where the time came first. The caller looks again whether it may still send.
        """
        lane = None if live is None else live.lane
        if self._unyielded >= BATCH_BYTES and not self._closed:
            self._yield()
        if not self.has_room(lane, size, whole):
            try:
                while not self._closed and not self.has_room(lane, size, whole):
                    if self._going_away if live is None else live.state is CLOSED:
                        break
                    if not self._list_for(live, size, whole).wait(until, live):
                        return False
            finally:
                # It may be that this greenlet was woken and will not use the room after all: it is killed, late, or its
                # call fails. Behind its next steps the others are looked at.
                if self._small or self._big:
                    self._parking.hub.loop.run_callback(self.admit)
        self._unyielded += size + LEAST_ENVELOPE_BYTES
        return True

    def _list_for(self, live: LiveStream | None, size: int, whole: bool) -> WaitList:
        if live is not None:
            lane = live.lane
            if lane.items and lane.queued_bytes + size > self.lane_limit_bytes:
                if self._of_lane is None:
                    self._of_lane = {}
                waits = self._of_lane.get(live)
                if waits is None:
                    waits = self._of_lane[live] = WaitList(self._parking, sending=True)
                return waits
        if whole:
            self._small = self._small or WaitList(self._parking, sending=True)
            return self._small
        self._big = self._big or WaitList(self._parking, sending=True)
        return self._big

    def _yield(self) -> None:
        """A loop that only sends must let the writer, and everybody else, have a turn now and then."""
        self._unyielded = 0
        hub = self._parking.hub
        if getcurrent() is not hub:
            turn = WaitList(self._parking, counted=False)
            hub.loop.run_callback(turn.wake)
            turn.wait()

    def batch_left(self) -> None:
        """The writer has had its turn."""
        self._unyielded = 0
        if self._small or self._big or self._of_lane:
            self.admit()

    def admit(self) -> None:
        """Wake those for whom there is room now. Never switches."""
        of_lane = self._of_lane or {}
        for live, waits in list(of_lane.items()):
            lane = live.lane
            if lane.queued_bytes <= self.lane_limit_bytes // 2 or not lane.items:
                del of_lane[live]
                waits.wake()
        if self._big and self.queued_bytes < self.limit_bytes:
            self._big.wake_one()
        if self._small:
            room = max(self.limit_bytes - self.queued_bytes, self.reserve_bytes - self.whole_bytes)
            while room > 0 and self._small.wake_one():
                room -= BATCH_BYTES

    def stream_closed(self, live: LiveStream) -> None:
        """A stream is over: its senders find that out, and what it had queued may have made room. Never switches."""
        if not (self._small or self._big or self._of_lane):
            return
        waits = self._of_lane.pop(live, None) if self._of_lane else None
        if waits is not None:
            waits.wake()
        for shared in self._shared():
            shared.wake_about(live)
        self.admit()

    def open_no_more(self) -> None:
        """One side is going away: those who wait for room to open a stream find that out. Never switches."""
        self._going_away = True
        for shared in self._shared():
            shared.wake_about(None)

    def is_awaited(self, live: LiveStream) -> bool:
        """Whether somebody waits to send on this stream."""
        return bool(self._of_lane and self._of_lane.get(live)) or any(
            shared.is_about(live) for shared in self._shared()
        )

    def close(self) -> None:
        """The connection is over: nobody waits any longer. Those who wait for room on a stream were told with it."""
        self._closed = True
        for shared in self._shared():
            shared.wake()

    def _shared(self) -> list[WaitList]:
        return [waits for waits in (self._small, self._big) if waits]
