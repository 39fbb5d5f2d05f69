"""`python -m tests.soak.two_gigabytes`: 2 GiB in payloads of 64 KiB into a consumer that reads a twentieth as fast.

The server runs in a process of its own, and both are watched: neither may hold more than its buffers.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time

import gevent

from muxws_green import Peer, connect
from tests.soak.__main__ import Server
from tests.soak.figures import resident_kib

#: How much more either process may take than at the start: the default buffers, with what they weigh as objects.
MOST_KIB = 120 * 1024
ROW_BYTES = 65_536


def main() -> int:
    """Parse the command line and run. Returns 1 where a process has grown."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.two_gigabytes", description=__doc__)
    parser.add_argument("--mib", type=int, default=2_048, help="how much (default: %(default)s)")
    options = parser.parse_args()
    rows = options.mib * 2**20 // ROW_BYTES
    with tempfile.TemporaryDirectory() as directory:
        server = Server(os.path.join(directory, "log"))
        try:
            with (
                connect(f"ws://127.0.0.1:{server.port}/") as peer,
                connect(f"ws://127.0.0.1:{server.port}/") as beside,
            ):
                return consume(peer, beside, rows)
        finally:
            server.stop(9)


def consume(peer: Peer, beside: Peer, rows: int) -> int:
    """Read the rows, slowly, and watch."""
    began = time.monotonic()
    fast = time.monotonic()
    for _ in peer.open(["bulk", 2_000, ROW_BYTES], end=True):
        pass
    # What one payload takes at full speed; the consumer then takes twenty times as long for each.
    pause = 20 * (time.monotonic() - fast) / 2_000
    first, first_theirs = resident_kib(), beside.request(["figures"])["rss_kib"]
    most = most_theirs = held = 0
    slept = 0.0
    seen = size = 0
    for number, text in peer.open(["bulk", rows, ROW_BYTES], end=True):
        if number != seen:
            raise AssertionError(f"row {number} came where {seen} was due")
        seen += 1
        size += len(text)
        slept += pause
        if slept > 0.05:
            gevent.sleep(slept)
            slept = 0.0
        if not seen % 500:
            held = max(held, peer.stats.held_bytes)
            most = max(most, resident_kib() - first)
            most_theirs = max(most_theirs, beside.request(["figures"], timeout=30.0)["rss_kib"] - first_theirs)
    took = time.monotonic() - began
    print(
        f"{size / 2**20:.0f} MiB in {took:.0f} s, {pause * 1000:.2f} ms for each payload; "
        f"the consumer held {held / 2**20:.1f} "
        f"MiB at most and grew by {most / 1024:.0f} MiB, the sender by {most_theirs / 1024:.0f} MiB"
    )
    return 0 if seen == rows and max(most, most_theirs) < MOST_KIB else 1


if __name__ == "__main__":
    raise SystemExit(main())
