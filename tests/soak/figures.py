"""What a process holds, as the soak runs compare it from one minute to the next."""

from __future__ import annotations

import gc
import os
from dataclasses import dataclass

import gevent

from muxws_green import Peer
from muxws_green.protocol.streams import LiveStream
from muxws_green.runtime.link import Link
from muxws_green.runtime.stream import Stream


@dataclass(frozen=True)
class Figures:
    """Of one process, after its garbage has been collected.

    Attributes:
        rss_kib: Resident memory.
        descriptors: Open files.
        peers, links, streams, live: Objects of the library.
        greenlets: Greenlets that have not ended.
    """

    rss_kib: int
    descriptors: int
    peers: int
    links: int
    streams: int
    live: int
    greenlets: int


def figures() -> Figures:
    """Those of this process."""
    gc.collect()
    found = dict.fromkeys((Peer, Link, Stream, LiveStream), 0)
    greenlets = 0
    for each in gc.get_objects():
        kind = type(each)
        if kind in found:
            found[kind] += 1
        elif issubclass(kind, gevent.Greenlet) and not each.dead:
            greenlets += 1
    return Figures(
        rss_kib=resident_kib(),
        descriptors=len(os.listdir("/proc/self/fd")),
        peers=found[Peer],
        links=found[Link],
        streams=found[Stream],
        live=found[LiveStream],
        greenlets=greenlets,
    )


def resident_kib() -> int:
    """Resident memory of this process."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    raise RuntimeError("/proc/self/status says nothing of VmRSS")
