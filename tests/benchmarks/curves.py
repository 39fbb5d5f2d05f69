"""How cost grows: `python -m tests.benchmarks.curves OUT.json` measures, and prints the tables of the documentation.

Three curves, each flat or linear if all is well: a call beside live streams, an idle connection among others, a push to
many receivers. Server and client are processes of their own, each on a core of its own where there are two, with
default settings but for the limit of streams; measured are CPU time of both, memory of the server, and for pushes also
the rate.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gevent
from gevent.event import Event
from gevent.pool import Pool
from gevent.pywsgi import WSGIServer

import muxws_green as m
from tests.benchmarks import workloads as w

STREAMS = (1, 10, 100, 500, 1_000, 2_000)
CONNECTIONS = (10, 100, 1_000, 3_000, 10_000)
RECEIVERS = (10, 50, 100, 500, 1_000, 2_000)
CALLS = 2_000
#: Longer than a heartbeat's interval.
IDLE_SECONDS = 25.0
ROUNDS = 5

#: One for the server, and one for the client where there are two: whether they share one shows in every figure.
CORES = sorted(os.sched_getaffinity(0))


def serve() -> None:
    """The server process: says its port, and answers until it is ended."""
    registry = m.PeerRegistry()

    def handle(payload: Any, stream: m.Stream) -> None:
        if payload == "figures":
            stream.reply([time.process_time(), w.rss_kib()])
        elif payload == "push":
            registry.notify_all(w.SMALL)
            stream.reply(None)
        elif payload == "wait":
            stream.closed.wait()
        else:
            stream.reply(payload)

    app = m.WSGIApp(handle, max_concurrent_streams=max(STREAMS) + 100, on_connect=registry.register)
    server = WSGIServer(("127.0.0.1", 0), app, log=None, backlog=1024)
    server.start()
    print(server.server_port, flush=True)
    server.serve_forever()


@contextmanager
def site() -> Iterator[tuple[str, m.Peer]]:
    """A fresh server, and a connection to it."""
    command = [sys.executable, "-m", "tests.benchmarks.curves", "serve", str(CORES[0])]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        url = f"ws://127.0.0.1:{int(server.stdout.readline())}/"
        with m.connect(url) as peer:
            yield url, peer
    finally:
        server.kill()
        server.wait()


def cpu_seconds(peer: m.Peer, work: Callable[[], object]) -> float:
    """What both ends use for some work."""
    before, mine = peer.request("figures")[0], time.process_time()
    work()
    return float(time.process_time() - mine + peer.request("figures")[0] - before)


def beside_streams() -> list[dict[str, float]]:
    """A call while a number of other streams are live on the connection."""
    found = []
    with site() as (_, peer):
        streams: list[m.Stream] = []
        for count in STREAMS:
            while len(streams) < count - 1:
                streams.append(peer.open("wait"))
            peer.request(w.SMALL)

            def calls() -> None:
                for _ in range(CALLS):
                    peer.request(w.SMALL)

            best = min(cpu_seconds(peer, calls) for _ in range(ROUNDS))
            found.append({"live streams": count, "µs of CPU a call": round(best / CALLS * 1e6, 1)})
        for stream in streams:
            stream.cancel()
    return found


def among_connections() -> list[dict[str, float]]:
    """An idle connection among others, both heartbeats at work."""
    found = []
    with site() as (url, peer):
        before = peer.request("figures")[1]
        peers: list[m.Peer] = []
        for count in CONNECTIONS:
            began = time.process_time()
            peers += Pool(32).map(lambda _: m.connect(url), range(count - len(peers)))
            made = time.process_time() - began
            used = cpu_seconds(peer, lambda: gevent.sleep(IDLE_SECONDS))
            found.append(
                {
                    "connections": count,
                    "KiB each (server)": round((peer.request("figures")[1] - before) / count, 1),
                    "µs of CPU a second each (both ends)": round(used / IDLE_SECONDS / count * 1e6, 1),
                }
            )
            print(f"{count} connections, the last of them made in {made:.1f} s of CPU", file=sys.stderr)
    return found


def to_receivers() -> list[dict[str, float]]:
    """One push to a number of connections."""
    return [pushes(count) for count in RECEIVERS]


def pushes(count: int) -> dict[str, float]:
    """Pushes to `count` connections, round after round."""
    arrived, seen, turns = Event(), 0, max(1, 4_000 // count)

    def push(_payload: Any, _stream: m.Stream) -> None:
        nonlocal seen
        seen += 1
        if seen % count == 0:
            arrived.set()

    def work() -> None:
        for _ in range(turns):
            arrived.clear()
            peer.request("push")
            arrived.wait()

    with site() as (url, peer):
        peers = Pool(32).map(lambda _: m.connect(url, on_stream=push), range(count))
        cpu_seconds(peer, work)
        rates, costs = [], []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            costs.append(cpu_seconds(peer, work) / turns / count)
            rates.append(turns * count / (time.perf_counter() - began))
        return {
            "receivers": len(peers),
            "deliveries a second": round(max(rates)),
            "µs of CPU a delivery": round(min(costs) * 1e6, 1),
        }


def table(rows: list[dict[str, float]]) -> str:
    """As Markdown."""
    lines = [f"| {' | '.join(rows[0])} |", f"|{'---|' * len(rows[0])}"]
    lines += [f"| {' | '.join(f'{value:,}' for value in row.values())} |" for row in rows]
    return "\n".join(lines)


def main() -> None:
    """Measure, keep the data, print the tables."""
    if sys.argv[1] == "serve":
        os.sched_setaffinity(0, {int(sys.argv[2])})
        serve()
        return
    os.sched_setaffinity(0, {CORES[-1]})
    curves = {curve.__name__: curve() for curve in (beside_streams, among_connections, to_receivers)}
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump(curves, file, indent=2, ensure_ascii=False)
        file.write("\n")
    print("\n\n".join(map(table, curves.values())))


if __name__ == "__main__":
    main()
