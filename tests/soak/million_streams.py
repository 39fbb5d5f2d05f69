"""`python -m tests.soak.million_streams`: a million streams on one connection, which leave nothing behind.

The server runs in a process of its own; both are measured after a warm-up and in the end.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time

import gevent

from muxws_green import Peer, connect
from tests.soak.__main__ import Server
from tests.soak.figures import figures

#: Each may have two streams at a time: the server counts a cancelled one until its handler has ended.
WORKERS = 20
WARM_UP = 20_000
#: How much more a process may take in the end than after the warm-up.
MOST_KIB = 8 * 1024


def main() -> int:
    """Parse the command line and run. Returns 1 where something is left."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.million_streams", description=__doc__)
    parser.add_argument("--streams", type=int, default=1_000_000, help="how many (default: %(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        server = Server(os.path.join(directory, "log"))
        try:
            with connect(f"ws://127.0.0.1:{server.port}/") as peer:
                return count(peer, options.streams)
        finally:
            server.stop(9)


def count(peer: Peer, streams: int) -> int:
    """Open them, and compare."""
    work(peer, WARM_UP)
    ours, theirs = vars(figures()), peer.request(["figures"])
    began = time.monotonic()
    work(peer, streams)
    took = time.monotonic() - began
    ours_now, theirs_now = vars(figures()), peer.request(["figures"])
    failed = 0
    for whose, before, after in (("client", ours, ours_now), ("server", theirs, theirs_now)):
        grown = {name: after[name] - before[name] for name in before}
        print(
            f"{whose}: {before['rss_kib'] // 1024} MiB before, {after['rss_kib'] // 1024} MiB after; grown by {grown}"
        )
        failed += any(value > (MOST_KIB if name == "rss_kib" else 0) for name, value in grown.items())
    print(f"{peer.stats.streams_opened} streams, {took:.0f} s for {streams}, {streams / took:.0f} a second")
    return 1 if failed else 0


def work(peer: Peer, streams: int) -> None:
    """Let greenlets open so many of each way in which a stream can end."""

    def some(number: int) -> None:
        for each in range(number):
            kind = each % 4
            if kind == 0:
                peer.open(["wait"]).cancel()
            elif kind == 1:
                stream = peer.open(["mirror"])
                stream.send(each)
                stream.end()
                if list(stream) != [each]:
                    raise AssertionError("a mirror showed something else")
            elif peer.request(["echo", each], timeout=60.0) != each:
                raise AssertionError("an echo was something else")

    gevent.joinall([gevent.spawn(some, streams // WORKERS) for _ in range(WORKERS)], raise_error=True)
    if peer.streams:
        raise AssertionError(f"{len(peer.streams)} streams are left")


if __name__ == "__main__":
    raise SystemExit(main())
