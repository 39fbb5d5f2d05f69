"""One process of a benchmark: `workloads PEER`, `server PEER VARIANT CPU`, `client PEER VARIANT CPU PORT WORKLOAD`."""

from __future__ import annotations

import importlib
import json
import os
import sys


def main() -> None:
    """Pin this process to its core and do the work."""
    role, name = sys.argv[1:3]
    if role == "workloads":
        print(*importlib.import_module(f"tests.benchmarks.peers.{name}").WORKLOADS)
        return
    variant, cpu = sys.argv[3:5]
    os.sched_setaffinity(0, {int(cpu)})
    peer = importlib.import_module(f"tests.benchmarks.peers.{name}")
    if role == "server":
        peer.serve(variant)
        return
    port, workload = int(sys.argv[5]), sys.argv[6]
    runner = importlib.import_module(f"tests.benchmarks.{peer.RUNNER}")
    print(json.dumps(runner.run(peer.Client(port, variant), workload)), flush=True)
    # What a peer's own threads would still have to say does not belong to the measurement.
    os._exit(0)


if __name__ == "__main__":
    main()
