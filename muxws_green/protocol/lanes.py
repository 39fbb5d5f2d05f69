"""What is queued to be sent, and in which order it leaves.

Each stream has a lane, in which order is kept. Connection-level frames go before all lanes at every batch. Lanes whose
next frame is whole take turns, one frame each, up to `BATCH_BYTES`; after them lanes whose next frame is a fragment of
something bigger take turns, at least one fragment a batch and at most one of a stream. So a small frame, and a ping,
leaves at most one batch after it was queued however many streams send in bulk, and bulk always moves on.

Opens leave in the order of their ids, or the remote would end the connection. They all stand among the whole frames;
where the first of them is a fragment, it heads the fragments of its batch and the opens behind it wait for that.

Sizes are counted here for the send limits of DESIGN §5; who waits for room, and how, is the runtime's business.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from muxws_green.protocol.fragments import Splitter

#: About how much one batch holds, in bytes.
BATCH_BYTES = 65_536
#: Room in which no further fragment is begun: one of full size is shorter than a batch by up to this, and fills it.
SCRAP_BYTES = 512
#: Lanes whose own weight is not counted.
FREE_LANES = 1_000
#: What each further lane weighs besides its frames, in bytes. Otherwise a remote that does not read could make us keep
#: hundreds of thousands of tiny answers, each on a lane of its own that takes more memory than the answer.
LANE_BYTES = 1_024
#: Queued bytes of one stream past which `send` waits.
LANE_LIMIT_BYTES = 1_048_576
#: Bytes that frames which wait for no room (resets, ends without payload) may take beyond the limit and the reserve.
OVERDUE_BYTES = 4_194_304


class Lane:
    """The frames of one stream that have not left yet, oldest first."""

    __slots__ = ("failure", "items", "open_unsent", "queued_bytes", "stream")

    def __init__(self, stream: int) -> None:
        self.stream = stream
        self.items: deque[bytes | Splitter] = deque()
        self.queued_bytes = 0
        #: True while the stream's `open` is in the lane and nothing of it has left.
        self.open_unsent = False
        #: What kept a fragment from being built; the lane has been emptied then.
        self.failure: Exception | None = None


class Lanes:
    """All that one connection has queued.

    Args:
        limit_bytes: Queued bytes past which only payloads that fit one frame may be queued, in a reserve of a quarter
            of it.
        lane_limit_bytes: Queued bytes of one lane past which nothing is added to it; an empty lane takes anything. Not
            above `limit_bytes` in any case.
    """

    def __init__(self, limit_bytes: int, lane_limit_bytes: int = LANE_LIMIT_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self.lane_limit_bytes = min(lane_limit_bytes, limit_bytes)
        self.reserve_bytes = limit_bytes // 4
        self.queued_bytes = 0
        #: The part of `queued_bytes` that is whole frames.
        self.whole_bytes = 0
        self._has_leader = False
        #: Connection-level frames; None where none waits.
        self._control: list[bytes] | None = None
        #: Lanes whose next frame is whole, or an `open` of which nothing has left; None before there was one.
        self._whole: deque[Lane] | None = None
        #: Lanes whose next frame is any other fragment; None before there was one.
        self._bulk: deque[Lane] | None = None

    def __bool__(self) -> bool:
        """Whether anything waits to be sent."""
        return bool(self._whole or self._bulk or self._control)

    def has_room(self, lane: Lane | None, size: int, whole: bool) -> bool:
        """Whether a payload of `size` encoded bytes may be queued now (DESIGN §5).

        Args:
            lane: Its lane; None for a stream that is about to be opened.
            size: Encoded bytes.
            whole: Whether it fits one frame.
        """
        if lane is not None and lane.items and lane.queued_bytes + size > self.lane_limit_bytes:
            return False
        lanes = len(self._whole) if self._whole else 0
        if self._bulk:
            lanes += len(self._bulk)
        besides = (lanes - FREE_LANES) * LANE_BYTES if lanes > FREE_LANES else 0
        if self.queued_bytes + besides < self.limit_bytes:
            return True
        return whole and self.whole_bytes + besides < self.reserve_bytes

    @property
    def overdue(self) -> bool:
        """Whether more waits than all that may be queued for payloads: the remote has us answer and does not read."""
        lanes = (len(self._whole) if self._whole else 0) + (len(self._bulk) if self._bulk else 0)
        besides = (lanes - FREE_LANES) * LANE_BYTES if lanes > FREE_LANES else 0
        return self.whole_bytes + besides > self.limit_bytes + self.reserve_bytes + OVERDUE_BYTES

    def _wholes(self) -> deque[Lane]:
        if self._whole is None:
            self._whole = deque()
        return self._whole

    def _fragments(self) -> deque[Lane]:
        if self._bulk is None:
            self._bulk = deque()
        return self._bulk

    def put_control(self, message: bytes) -> None:
        """Queue a connection-level frame behind the others of its kind."""
        if self._control is None:
            self._control = []
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
            (self._wholes() if whole or lane.open_unsent else self._fragments()).append(lane)

    def put_first(self, lane: Lane, item: bytes | Splitter, size: int) -> None:
        """Queue the `open` that must leave before all else, connection-level frames included; only on empty lanes."""
        self._has_leader = True
        self.put(lane, item, size)

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
        if keep_unsent_open and lane.open_unsent:
            # The lane keeps its turn, since opens that were queued behind this one must leave behind it.
            kept = first if isinstance(first, bytes) else first.next_message()
            items.append(kept)
            lane.queued_bytes = len(kept)
            self.queued_bytes += len(kept)
            self.whole_bytes += len(kept)
        else:
            (self._wholes() if isinstance(first, bytes) or lane.open_unsent else self._fragments()).remove(lane)
            lane.open_unsent = False

    def abandon(self, stream_id: int) -> None:
        """Drop the rest of a fragmented payload of a stream that has closed here; the remote wants no more of it."""
        for lane in self._bulk or ():
            if lane.stream == stream_id:
                self.discard(lane, keep_unsent_open=False)
                return

    def clear(self) -> None:
        """The socket is dead: nothing is kept for the next one."""
        whole, bulk = self._wholes(), self._fragments()
        for lane in (*whole, *bulk):
            lane.items.clear()
            lane.queued_bytes = 0
            lane.open_unsent = False
        self._has_leader = False
        self._control = None
        whole.clear()
        # Emptied, not replaced: `take_batch` may be in the middle of it.
        bulk.clear()
        self.queued_bytes = self.whole_bytes = 0

    def take_batch(self) -> tuple[list[bytes], list[Lane]]:
        """The messages that are to leave next, and the lanes whose fragment could not be built (`Lane.failure`)."""
        failed: list[Lane] = []
        control, self._control = self._control, None
        leads, self._has_leader = self._has_leader, False
        batch: list[bytes] = []
        room, opening = BATCH_BYTES, None
        if leads:
            # The least room there is, hence one frame; it makes a batch with those that had to wait for it.
            room = 1
        elif control is not None:
            batch, room = control, BATCH_BYTES - sum(map(len, control))
        if self._whole:
            room, opening = self._take_whole(batch, room)
        if self._bulk or opening is not None:
            self._take_fragments(batch, room, opening, failed)
        if leads and control is not None:
            batch += control
        return batch, failed

    def _take_whole(self, batch: list[bytes], room: int) -> tuple[int, Lane | None]:
        """Take whole frames while there is room.

        Returns:
            The room that is left, and the lane of the `open` that holds back later ones since its first frame is a
            fragment: it stands first in the rotation.
        """
        rotation = self._wholes()
        held: list[Lane] = []
        taken = 0
        while rotation and room > 0:
            lane = rotation.popleft()
            items = lane.items
            if lane.open_unsent:
                if held or not isinstance(items[0], bytes):
                    held.append(lane)
                    continue
                lane.open_unsent = False
            before = room
            while True:
                # But for opens only whole frames head this rotation.
                whole: Any = items.popleft()
                batch.append(whole)
                room -= len(whole)
                if rotation or room <= 0 or not items or type(items[0]) is not bytes:
                    break
                # It is alone, and the next turn is its own too.
            size = before - room
            taken += size
            lane.queued_bytes -= size
            if items:
                (rotation if type(items[0]) is bytes else self._fragments()).append(lane)
        self.queued_bytes -= taken
        self.whole_bytes -= taken
        if not held:
            return room, None
        rotation.extendleft(reversed(held))
        return room, held[0]

    def _take_fragments(self, batch: list[bytes], room: int, opening: Lane | None, failed: list[Lane]) -> None:
        """Take fragments while there is room: one at least, one of a stream at most, first that of `opening`."""
        rotation = self._fragments()
        turns = len(rotation)
        if opening is not None:
            self._wholes().popleft()
            opening.open_unsent = False
            splitter: Splitter = opening.items[0]  # type: ignore[assignment]  # its first frame is a fragment
            before = splitter.remaining_bytes
            message = splitter.next_message()
            room -= len(message)
            batch.append(message)
            self._taken(opening, splitter, before - splitter.remaining_bytes)
            if room <= SCRAP_BYTES:
                return
        while turns and rotation:
            turns -= 1
            lane = rotation[0]
            items = lane.items
            splitter = items[0]  # type: ignore[assignment]  # only payloads to be cut head this one
            before = splitter.remaining_bytes
            fragment = self._build(lane, splitter)
            if not items or items[0] is not splitter:
                # A codec of the application's may switch, and another greenlet has reset the stream meanwhile.
                continue
            if fragment is None:
                failed.append(lane)
                self.discard(lane, keep_unsent_open=False)
                continue
            rotation.popleft()
            room -= len(fragment)
            batch.append(fragment)
            self._taken(lane, splitter, before - splitter.remaining_bytes)
            if room <= SCRAP_BYTES:
                return

    def _build(self, lane: Lane, splitter: Splitter) -> bytes | None:
        try:
            return splitter.next_message()
        except Exception as error:  # a codec of the application's may raise anything; its stream alone pays
            lane.failure = error
            return None

    def _taken(self, lane: Lane, splitter: Splitter, size: int) -> None:
        """A fragment has left a lane, which stands in no rotation now."""
        items = lane.items
        lane.queued_bytes -= size
        self.queued_bytes -= size
        if splitter.done:
            items.popleft()
        if items:
            (self._wholes() if type(items[0]) is bytes else self._fragments()).append(lane)
