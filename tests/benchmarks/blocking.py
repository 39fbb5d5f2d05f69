"""The workloads for peers that block on gevent.

A peer gives `connect() -> Connection` with `call(payload)`, `rows()` and `bulk()` (iterators of what the server
streams), `pushes(count)` (wait for so many pushes), `close()`; and may leave out what it cannot do.
"""

from __future__ import annotations

import time
from typing import Any

import gevent

from tests.benchmarks import workloads as w


def run(peer: Any, workload: str) -> dict[str, float]:
    """Warm up, and measure one workload."""
    return {"W1": w1, "W2": w2, "W3": w3, "W4": w4, "W5": w5, "W6": w6, "W7": w7}[workload](peer)


def w1(peer: Any) -> dict[str, float]:
    connection = peer.connect()
    for _ in range(300):
        connection.call(w.SMALL)
    took = []
    began = time.perf_counter()
    for _ in range(w.W1_CALLS):
        start = time.perf_counter()
        connection.call(w.SMALL)
        took.append(time.perf_counter() - start)
    whole = time.perf_counter() - began
    connection.close()
    return {
        "calls": w.W1_CALLS / whole,
        "p50_us": w.percentile(took, 0.5) * 1e6,
        "p99_us": w.percentile(took, 0.99) * 1e6,
    }


def w2(peer: Any) -> dict[str, float]:
    connection = peer.connect()

    def work(calls: int) -> None:
        for _ in range(calls):
            connection.call(w.SMALL)

    whole = 0.0
    for calls in (10, w.W2_CALLS):
        began = time.perf_counter()
        gevent.joinall([gevent.spawn(work, calls) for _ in range(w.W2_CALLERS)], raise_error=True)
        whole = time.perf_counter() - began
    connection.close()
    return {"calls": w.W2_CALLERS * w.W2_CALLS / whole}


def w3(peer: Any) -> dict[str, float]:
    connection = peer.connect()
    count, whole = 0, 0.0
    for _ in range(2):
        began = time.perf_counter()
        count = sum(1 for _ in connection.rows())
        whole = time.perf_counter() - began
        assert count == w.ROWS
    connection.close()
    return {"payloads": count / whole}


def w4(peer: Any) -> dict[str, float]:
    connection = peer.connect()
    payload = w.mebibyte(peer.binary)
    for _ in range(3):
        assert connection.call(payload) == payload
    began = time.perf_counter()
    for _ in range(w.W4_CALLS):
        connection.call(payload)
    whole = time.perf_counter() - began
    connection.close()
    return {"mebibytes": w.W4_CALLS / whole}


def _connect_many(peer: Any, count: int) -> list[Any]:
    connections: list[Any] = []
    left = iter(range(count))

    def work() -> None:
        connections.extend([peer.connect() for _ in left])

    gevent.joinall([gevent.spawn(work) for _ in range(w.W6_AT_ONCE)], raise_error=True)
    return connections


def w5(peer: Any) -> dict[str, float]:
    connections = _connect_many(peer, w.W5_CONNECTIONS)
    for connection in connections:
        connection.call(w.SMALL)
    trigger = connections[0]
    whole = 0.0
    for rounds in (2, w.W5_ROUNDS):
        waiting = [gevent.spawn(connection.pushes, rounds) for connection in connections]
        gevent.sleep(0)
        began = time.perf_counter()
        for _ in range(rounds):
            trigger.call("broadcast")
        gevent.joinall(waiting, raise_error=True)
        whole = time.perf_counter() - began
    return {"deliveries": w.W5_CONNECTIONS * w.W5_ROUNDS / whole}


def w6(peer: Any) -> dict[str, float]:
    first = [peer.connect() for _ in range(50)]
    before = w.rss_kib()
    server_before = first[0].call("memory")
    began = time.perf_counter()
    connections = _connect_many(peer, w.W6_CONNECTIONS)
    whole = time.perf_counter() - began
    gevent.sleep(0.2)
    server_after = first[0].call("memory")
    result = {
        "connections": w.W6_CONNECTIONS / whole,
        "client_kib_each": (w.rss_kib() - before) / w.W6_CONNECTIONS,
        "server_kib_each": (server_after - server_before) / w.W6_CONNECTIONS,
    }
    assert len(connections) == w.W6_CONNECTIONS
    return result


def w7(peer: Any) -> dict[str, float]:
    connection = peer.connect()
    connection.call(w.SMALL)
    took: list[float] = []
    received = 0
    done = False

    def consume() -> None:
        nonlocal received
        for payload in connection.bulk():
            received += len(payload)
            if done:
                return

    def call() -> None:
        start = time.perf_counter()
        connection.call(w.SMALL)
        took.append(time.perf_counter() - start)

    consumer = gevent.spawn(consume)
    while not received:
        gevent.sleep(0.01)
    began = time.perf_counter()
    received = 0
    calls = []
    while time.perf_counter() - began < w.W7_SECONDS:
        calls.append(gevent.spawn(call))
        gevent.sleep(w.W7_INTERVAL)
    whole = time.perf_counter() - began
    moved = received
    done = True
    gevent.joinall(calls, raise_error=True, timeout=30)
    consumer.kill()
    return {
        "p99_ms": w.percentile(took, 0.99) * 1e3,
        "p50_ms": w.percentile(took, 0.5) * 1e3,
        "bulk_mebibytes": moved / w.MEBIBYTE / whole,
        "calls": float(len(took)),
    }
