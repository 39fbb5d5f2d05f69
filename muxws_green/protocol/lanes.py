"""What is queued to be sent, and in which order it leaves.

Each stream has a lane, in which order is kept. Connection-level frames go before all lanes at every batch. Lanes whose
next frame is whole take turns, one frame each, up to `BATCH_BYTES`; after them lanes whose next frame is a fragment of
something bigger take turns, at least one fragment a batch and at most one of a stream. So a small frame, and a ping,
leaves at most one batch after it was queued however many streams send in bulk, and bulk always moves on. Opens leave in
the order of their ids, or the remote would end the connection: the first fragment of an `open` takes its turn among the
whole frames.

Sizes are counted here for the send limits of DESIGN §5; who waits for room, and how, is the runtime's business.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from muxws_green.protocol.fragments import Splitter

#: About how much one batch holds, in bytes.
BATCH_BYTES = 65_536


class Lane:
    """The frames of one stream that have not left yet, oldest first."""

    __slots__ = ("stream", "items", "queued_bytes", "open_unsent", "owes_reset", "failure")

    def __init__(self, stream: int) -> None:
        self.stream = stream
        self.items: deque[bytes | Splitter] = deque()
        self.queued_bytes = 0
        #: True while the stream's `open` is in the lane and nothing of it has left.
        self.open_unsent = False
        #: Whether the lane ends with a reset of a stream that the remote opened.
        self.owes_reset = False
        #: What kept a fragment from being built; the lane has been emptied then.
        self.failure: Exception | None = None


class Lanes:
    """All that one connection has queued.

    Args:
        limit_bytes: Queued bytes past which only payloads that fit one frame may be queued, in a reserve of a quarter
            of it.
        lane_limit_bytes: Queued bytes of one lane past which nothing is added to it; an empty lane takes anything.
    """

    def __init__(self, limit_bytes: int, lane_limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.lane_limit_bytes = lane_limit_bytes
        self.reserve_bytes = limit_bytes // 4
        self.queued_bytes = 0
        #: The part of `queued_bytes` that is whole frames.
        self.whole_bytes = 0
        #: Resets of streams of the remote's that have not left yet: what a remote that does not read piles up here.
        self.owed_resets = 0
        self._has_leader = False
        self._control: deque[bytes] = deque()
        self._whole: deque[Lane] = deque()
        self._bulk: deque[Lane] = deque()

    def __bool__(self) -> bool:
        """Whether anything waits to be sent."""
        return bool(self._whole or self._bulk or self._control)

    @property
    def control_frames(self) -> int:
        """How many connection-level frames wait."""
        return len(self._control)

    def has_room(self, lane: Lane | None, size: int, whole: bool) -> bool:
        """Whether a payload of `size` encoded bytes may be queued now (DESIGN §5).

        Args:
            lane: Its lane; None for a stream that is about to be opened.
            size: Encoded bytes.
            whole: Whether it fits one frame.
        """
        if lane is not None and lane.items and lane.queued_bytes + size > self.lane_limit_bytes:
            return False
        if self.queued_bytes < self.limit_bytes:
            return True
        return whole and self.whole_bytes < self.reserve_bytes

    def put_control(self, message: bytes) -> None:
        """Queue a connection-level frame behind the others of its kind."""
        self._control.append(message)

    def put(self, lane: Lane, item: bytes | Splitter, size: int) -> None:
        """Queue one whole message, or a payload to be cut, at the end of its lane."""
        items = lane.items
        items.append(item)
        lane.queued_bytes += size
        self.queued_bytes += size
        whole = type(item) is bytes
        if whole:
            self.whole_bytes += size
        if len(items) == 1:
            (self._whole if whole or lane.open_unsent else self._bulk).append(lane)

    def put_first(self, lane: Lane, item: bytes | Splitter, size: int) -> None:
        """Queue what must leave before everything else, connection-level frames included; only on empty lanes."""
        self._has_leader = True
        self.put(lane, item, size)

    def put_reset(self, lane: Lane, message: bytes, *, owed: bool) -> None:
        """Queue the reset that ends its stream; `owed` where the remote opened that."""
        if owed:
            lane.owes_reset = True
            self.owed_resets += 1
        self.put(lane, message, len(message))

    def discard(self, lane: Lane, *, keep_unsent_open: bool) -> None:
        """Throw away what waits in a lane.

        Args:
            keep_unsent_open: Keep the first frame of an `open` of which nothing has left, since a reset for an id that
                the remote never saw would break the connection; the rest of a fragmented one is dropped.
        """
        items = lane.items
        if not items:
            return
        first = items[0]
        self.queued_bytes -= lane.queued_bytes
        self.whole_bytes -= sum(len(item) for item in items if isinstance(item, bytes))
        items.clear()
        lane.queued_bytes = 0
        self._pay(lane)
        if keep_unsent_open and lane.open_unsent:
            # The lane keeps its turn, since opens that were queued behind this one must leave behind it.
            kept = first if isinstance(first, bytes) else first.next_message()
            items.append(kept)
            lane.queued_bytes = len(kept)
            self.queued_bytes += len(kept)
            self.whole_bytes += len(kept)
        else:
            (self._whole if isinstance(first, bytes) or lane.open_unsent else self._bulk).remove(lane)

    def _pay(self, lane: Lane) -> None:
        if lane.owes_reset:
            lane.owes_reset = False
            self.owed_resets -= 1

    def clear(self) -> None:
        """The socket is dead: nothing is kept for the next one."""
        for lane in (*self._whole, *self._bulk):
            lane.items.clear()
            lane.queued_bytes = 0
        self._has_leader = False
        self._control.clear()
        self._whole.clear()
        self._bulk.clear()
        self.queued_bytes = self.whole_bytes = self.owed_resets = 0

    def take_batch(self) -> tuple[list[bytes], list[Lane]]:
        """The messages that are to leave next, and the lanes in which a fragment could not be built (`Lane.failure`)."""
        batch: list[bytes] = []
        failed: list[Lane] = []
        begun: list[Lane] = []
        if self._has_leader:
            self._has_leader = False
            # The least room there is: exactly one frame of the one lane.
            self._take_whole(batch, 1, begun)
        batch.extend(self._control)
        self._control.clear()
        room = BATCH_BYTES - sum(map(len, batch))
        if self._whole:
            room = self._take_whole(batch, room, begun)
        if self._bulk:
            self._take_fragments(batch, room, failed)
        self._bulk.extend(begun)
        return batch, failed

    def _take_whole(self, batch: list[bytes], room: int, begun: list[Lane]) -> int:
        """Whole frames, and first fragments of opens: the lanes of those have had their turn and go to `begun`."""
        rotation = self._whole
        taken = 0
        while rotation and room > 0:
            lane = rotation.popleft()
            items = lane.items
            message = items[0]
            if isinstance(message, bytes):
                size = len(message)
                taken += size
                lane.queued_bytes -= size
                items.popleft()
                if items:
                    (rotation if type(items[0]) is bytes else self._bulk).append(lane)
                elif lane.owes_reset:
                    self._pay(lane)
            else:
                message = self._take_fragment(lane, message)
                if not items:
                    pass
                elif isinstance(items[0], bytes):
                    rotation.append(lane)
                else:
                    begun.append(lane)
            batch.append(message)
            room -= len(message)
            lane.open_unsent = False
        self.queued_bytes -= taken
        self.whole_bytes -= taken
        return room

    def _take_fragment(self, lane: Lane, splitter: Splitter) -> bytes:
        """The next fragment of the payload that heads a lane. Has changed nothing where the codec raises."""
        before = splitter.remaining_bytes
        message = splitter.next_message()
        left = before - splitter.remaining_bytes
        lane.queued_bytes -= left
        self.queued_bytes -= left
        if splitter.done:
            lane.items.popleft()
        return message

    def _take_fragments(self, batch: list[bytes], room: int, failed: list[Lane]) -> None:
        rotation = self._bulk
        served: list[Lane] = []
        while rotation:
            lane = rotation.popleft()
            items = lane.items
            splitter: Splitter = items[0]  # type: ignore[assignment]  # only payloads to be cut head this one
            try:
                message = self._take_fragment(lane, splitter)
            except Exception as error:  # a codec of the application's may raise anything; its stream alone pays
                lane.failure = error
                failed.append(lane)
                rotation.appendleft(lane)
                self.discard(lane, keep_unsent_open=False)
                continue
            batch.append(message)
            room -= len(message)
            if items:
                if isinstance(items[0], bytes):
                    self._whole.append(lane)
                else:
                    served.append(lane)
            if room <= 0:
                break
        rotation.extend(served)
