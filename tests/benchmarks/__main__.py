"""Runs workloads for several peers in turns, and shows medians and ratios: `python -m tests.benchmarks --help`."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from functools import cache
from typing import Any, TextIO

from tests.benchmarks import workloads as w

#: What ours is compared with, by the codec: (peer, variant).
PLANS: dict[str, list[tuple[str, str]]] = {
    "json": [("ours", "json"), ("reference", "json")],
    "msgpack": [("ours", "msgpack"), ("reference", "msgpack")],
    "all": [
        ("ours", "json"),
        ("ours", "msgpack"),
        ("ours", "fast"),
        ("reference", "json"),
        ("reference", "msgpack"),
        ("reference", "json-deflate"),
        ("reference", "msgpack-deflate"),
        ("limit", "json"),
        ("plain_websockets", "sync"),
        ("plain_websockets", "asyncio"),
        ("plain_websockets", "asyncio-bytes"),
        ("plain_geventwebsocket", "json"),
        ("zerorpc_", "msgpack"),
        ("socketio_", "json"),
    ],
}


def measure(peer: str, variant: str, workload: str) -> dict[str, float]:
    """One workload in two fresh processes, the server on the first core and the client on the second."""
    base = [sys.executable, "-m", "tests.benchmarks.worker"]
    first, *others = sorted(os.sched_getaffinity(0))
    second = others[0] if others else first
    server = subprocess.Popen([*base, "server", peer, variant, str(first)], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        before = _cpu_seconds(server.pid)
        client = [*base, "client", peer, variant, str(second), port, workload]
        output = subprocess.run(client, stdout=subprocess.PIPE, text=True, timeout=300, check=True).stdout
        figures: dict[str, float] = json.loads(output.strip().splitlines()[-1])
        figures["server_cpu_seconds"] = _cpu_seconds(server.pid) - before
        return figures
    finally:
        server.kill()
        server.wait()


@cache
def _workloads(peer: str) -> list[str]:
    """What a peer can do. Asked in a process of its own, since importing some of them patches the interpreter."""
    command = [sys.executable, "-m", "tests.benchmarks.worker", "workloads", peer]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60, check=True).stdout
    return output.split()


def _cpu_seconds(pid: int) -> float:
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(plan: list[tuple[str, str]], names: list[str], rounds: int, out: TextIO | None) -> dict[str, Any]:
    """All rounds: inside each the peers take turns. Returns the figures by workload and peer, a list for each round."""
    results: dict[str, dict[str, list[dict[str, float]]]] = {}
    for workload in names:
        able = [(peer, variant) for peer, variant in plan if workload in _workloads(peer)]
        for number in range(rounds):
            for peer, variant in able:
                figures = measure(peer, variant, workload)
                results.setdefault(workload, {}).setdefault(f"{peer}:{variant}", []).append(figures)
                line = {"time": time.time(), "workload": workload, "round": number, "peer": peer, "variant": variant}
                if out is not None:
                    print(json.dumps({**line, **figures}), file=out, flush=True)
    return results


def table(results: dict[str, Any]) -> str:
    """Medians with their spread, and the median of paired ratios of ours to each other peer."""
    lines = [
        "| workload | peer | median | quarter to three quarters | ours / peer | others |",
        "|---|---|---|---|---|---|",
    ]
    for workload, by_peer in results.items():
        name, more_is_better = w.RATE[workload]
        for peer, rounds in by_peer.items():
            values = [figures[name] for figures in rounds]
            low, _, high = statistics.quantiles(values, n=4) if len(values) > 1 else (values[0],) * 3
            ratios = []
            for ours, theirs in _pairs(peer, by_peer):
                pairs = [a[name] / b[name] for a, b in zip(ours, theirs, strict=True)]
                ratio = statistics.median(pairs)
                ratios.append(
                    f"{ratio:.2f} ({min(pairs):.2f}-{max(pairs):.2f})" + ("" if more_is_better else " less is better")
                )
            rest = ", ".join(
                f"{key} {statistics.median(figures[key] for figures in rounds):.1f}" for key in rounds[0] if key != name
            )
            lines.append(
                f"| {workload} {name} | {peer} | {statistics.median(values):,.1f} | {low:,.1f} to {high:,.1f} "
                f"| {'; '.join(ratios) or ''} | {rest} |"
            )
    return "\n".join(lines)


def _pairs(peer: str, by_peer: dict[str, Any]) -> list[tuple[Any, Any]]:
    """Ours and the other's rounds, for the variant of ours that speaks the same."""
    if peer.startswith("ours"):
        return []
    binary = "msgpack" in peer or "bytes" in peer
    ours = by_peer.get("ours:msgpack" if binary else "ours:json") or by_peer.get("ours:fast")
    return [(ours, by_peer[peer])] if ours else []


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="rounds of each workload (default: %(default)s)")
    parser.add_argument("--workloads", default=",".join(w.RATE), help="such as W1,W3 (default: all)")
    parser.add_argument("--plan", choices=PLANS, default="all", help="which peers (default: %(default)s)")
    parser.add_argument("--peers", help="peer:variant,…, in place of a plan")
    parser.add_argument("--out", help="a file for JSON lines")
    options = parser.parse_args()
    plan = PLANS[options.plan]
    if options.peers:
        plan = [(peer, variant) for peer, _, variant in (entry.partition(":") for entry in options.peers.split(","))]
    out = open(options.out, "a", encoding="utf-8") if options.out else None  # noqa: SIM115 - closed with the process
    print(table(run(plan, options.workloads.split(","), options.rounds, out)))


if __name__ == "__main__":
    main()
