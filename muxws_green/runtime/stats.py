"""Counts of what went over a peer's sockets, for dashboards."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from muxws_green.errors import ResetCode, known_reset_code

if TYPE_CHECKING:
    from muxws_green.runtime.link import Link

#: What resets with a code that is no `ResetCode` are counted under: a remote may send any number.
UNKNOWN_CODE = -1


@dataclass(slots=True)
class LinkStats:
    """The counts of a connection, or of all connections of a peer, up to a moment."""

    frames_sent: int = 0
    frames_received: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    late_frames: int = 0
    streams_opened: int = 0
    streams_accepted: int = 0
    resets: dict[int, int] = field(default_factory=dict)

    def add(self, other: LinkStats) -> None:
        """Count what another connection counted."""
        self.frames_sent += other.frames_sent
        self.frames_received += other.frames_received
        self.bytes_sent += other.bytes_sent
        self.bytes_received += other.bytes_received
        self.late_frames += other.late_frames
        self.streams_opened += other.streams_opened
        self.streams_accepted += other.streams_accepted
        for code, count in other.resets.items():
            self.resets[code] = self.resets.get(code, 0) + count


def count_reset(resets: dict[int, int] | None, code: int) -> dict[int, int]:
    """One more stream ended by a reset with this code.

    Args:
        resets: What has been counted, by code; None: nothing yet.
        code: The code.

    Returns:
        What has been counted now, in the same dict if there was one.
    """
    resets = {} if resets is None else resets
    known = known_reset_code(code)
    counted = int(known) if isinstance(known, ResetCode) else UNKNOWN_CODE
    resets[counted] = resets.get(counted, 0) + 1
    return resets


@dataclass(frozen=True)
class Stats:
    """A peer's figures at one moment; `Peer.stats` makes a fresh one on each read.

    Counts are over all sockets of the peer so far, the rest is of the present one.

    Args:
        frames_sent, frames_received: muxws frames.
        bytes_sent, bytes_received: Bytes on the socket, WebSocket framing included, TLS not.
        streams_opened, streams_accepted: Streams by who opened them.
        live_streams: Live streams now.
        resets: Streams ended by a reset of either side, by code; -1 is whatever is no `ResetCode`.
        queued_bytes: Encoded bytes that wait to be sent.
        held_bytes: Encoded bytes of payloads that have arrived and were not consumed.
        late_frames: Frames for streams that had closed here, ignored.
        last_round_trip: Seconds of the last answered `ping()` or heartbeat; None before.
        reconnects: How many times the connection was established again.
    """

    frames_sent: int
    frames_received: int
    bytes_sent: int
    bytes_received: int
    streams_opened: int
    streams_accepted: int
    live_streams: int
    resets: dict[int, int]
    queued_bytes: int
    held_bytes: int
    late_frames: int
    last_round_trip: float | None
    reconnects: int


def figures(link: Link | None, past: LinkStats | None, reconnects: int) -> Stats:
    """A peer's figures of this moment.

    Args:
        link: Its present connection, if it has one.
        past: What its earlier ones have counted, if there were any.
        reconnects: How many times it was established again.
    """
    counts = LinkStats()
    if past is not None:
        counts.add(past)
    if link is not None:
        counts.add(link.counts())
    return Stats(
        frames_sent=counts.frames_sent,
        frames_received=counts.frames_received,
        bytes_sent=counts.bytes_sent,
        bytes_received=counts.bytes_received,
        streams_opened=counts.streams_opened,
        streams_accepted=counts.streams_accepted,
        live_streams=len(link.core.streams) if link is not None else 0,
        resets=counts.resets,
        queued_bytes=link.core.lanes.queued_bytes if link is not None else 0,
        held_bytes=link.intake.held_bytes if link is not None else 0,
        late_frames=counts.late_frames,
        last_round_trip=link.last_round_trip if link is not None else None,
        reconnects=reconnects,
    )
