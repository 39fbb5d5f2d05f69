"""Lanes and payloads to put into them, for the tests of what leaves when."""

from __future__ import annotations

from muxws_green.protocol.fragments import Splitter
from muxws_green.protocol.lanes import Lane, Lanes
from tests.protocol.cores import MSGPACK


def lanes(limit: int = 1_000_000, lane_limit: int = 1_000_000) -> Lanes:
    return Lanes(limit, lane_limit)


def splitter(stream: int, size: int, cap: int = 1_000) -> Splitter:
    """A payload of `size` bytes, to be cut."""
    return Splitter(MSGPACK, MSGPACK, "data", stream, bytes(size), None, False, None, cap)


def put(queue: Lanes, lane: Lane, *items: bytes | Splitter) -> None:
    for item in items:
        queue.put(lane, item, len(item) if isinstance(item, bytes) else item.remaining_bytes)
