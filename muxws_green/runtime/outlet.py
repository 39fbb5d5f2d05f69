"""Who may queue, and who has to wait for room (DESIGN §5). The rule itself is `protocol.lanes.Lanes.has_room`."""

from __future__ import annotations

from muxws_green.protocol.lanes import BATCH_BYTES, Lane, Lanes
from muxws_green.runtime.waiting import Parking, WaitList


class Outlet:
    """The waiting room in front of a connection's lanes.

    Args:
        parking: The connection's waits.
        lanes: What is queued.
    """

    def __init__(self, parking: Parking, lanes: Lanes) -> None:
        self._parking = parking
        self._lanes = lanes
        self._small = WaitList(parking)
        self._big = WaitList(parking)
        self._of_lane: dict[Lane, WaitList] = {}
        self._turn = WaitList(parking, counted=False)
        self._unyielded = 0
        self._closed = False

    def wait_for_room(self, lane: Lane | None, size: int, whole: bool, until: float | None) -> bool:
        """Wait until a payload may be queued, or the connection is over.

        Args:
            lane: Its lane; None for a stream that is about to be opened.
            size: Encoded bytes.
            whole: Whether it fits one frame.
            until: The clock's time at which to give up; None: never.

        Returns:
            False where the time came first. The caller looks again whether it may still send.
        """
        lanes = self._lanes
        if self._unyielded >= BATCH_BYTES and not self._closed:
            self._yield()
        while not self._closed and not lanes.has_room(lane, size, whole):
            waits = self._list_for(lane, size, whole)
            try:
                if not waits.wait(until):
                    return False
            except BaseException:
                # This greenlet may have been the one that was woken; the room is somebody else's now.
                self.admit()
                raise
        self._unyielded += size
        return True

    def _list_for(self, lane: Lane | None, size: int, whole: bool) -> WaitList:
        if lane is not None and lane.items and lane.queued_bytes + size > self._lanes.lane_limit_bytes:
            waits = self._of_lane.get(lane)
            if waits is None:
                waits = self._of_lane[lane] = WaitList(self._parking)
            return waits
        return self._small if whole else self._big

    def _yield(self) -> None:
        """A loop that only sends must let the writer, and everybody else, have a turn now and then."""
        self._unyielded = 0
        self._turn.wake()
        hub = self._parking.hub
        hub.loop.run_callback(self._turn.wake)
        self._turn.wait()

    def batch_left(self) -> None:
        """The writer has had its turn."""
        self._unyielded = 0
        self.admit()

    def admit(self) -> None:
        """Wake those for whom there is room now."""
        lanes = self._lanes
        for lane, waits in list(self._of_lane.items()):
            if lane.queued_bytes <= lanes.lane_limit_bytes // 2 or not lane.items:
                del self._of_lane[lane]
                waits.wake()
        if self._big and lanes.queued_bytes < lanes.limit_bytes:
            self._big.wake_one()
        if self._small:
            room = max(lanes.limit_bytes - lanes.queued_bytes, lanes.reserve_bytes - lanes.whole_bytes)
            while room > 0 and self._small.wake_one():
                room -= BATCH_BYTES

    def close(self) -> None:
        """The connection is over: nobody waits any longer."""
        self._closed = True
        self._small.wake()
        self._big.wake()
        for waits in self._of_lane.values():
            waits.wake()
        self._of_lane.clear()
