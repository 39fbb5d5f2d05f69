"""The workloads for peers on asyncio; see `blocking` for what a peer gives, here as coroutines and async iterators."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from tests.benchmarks import workloads as w


def run(peer: Any, workload: str) -> dict[str, float]:
    """Warm up, and measure one workload."""
    work = {"W1": w1, "W2": w2, "W3": w3, "W4": w4, "W5": w5, "W6": w6, "W7": w7}[workload]
    return asyncio.run(work(peer))


async def w1(peer: Any) -> dict[str, float]:
    connection = await peer.connect()
    for _ in range(300):
        await connection.call(w.SMALL)
    took = []
    began = time.perf_counter()
    for _ in range(w.W1_CALLS):
        start = time.perf_counter()
        await connection.call(w.SMALL)
        took.append(time.perf_counter() - start)
    whole = time.perf_counter() - began
    await connection.close()
    return {
        "calls": w.W1_CALLS / whole,
        "p50_us": w.percentile(took, 0.5) * 1e6,
        "p99_us": w.percentile(took, 0.99) * 1e6,
    }


async def w2(peer: Any) -> dict[str, float]:
    connection = await peer.connect()

    async def work(calls: int) -> None:
        for _ in range(calls):
            await connection.call(w.SMALL)

    whole = 0.0
    for calls in (10, w.W2_CALLS):
        began = time.perf_counter()
        await asyncio.gather(*[work(calls) for _ in range(w.W2_CALLERS)])
        whole = time.perf_counter() - began
    await connection.close()
    return {"calls": w.W2_CALLERS * w.W2_CALLS / whole}


async def w3(peer: Any) -> dict[str, float]:
    connection = await peer.connect()
    count, whole = 0, 0.0
    for _ in range(2):
        began = time.perf_counter()
        count = 0
        async for _ in connection.rows():
            count += 1
        whole = time.perf_counter() - began
        assert count == w.ROWS
    await connection.close()
    return {"payloads": count / whole}


async def w4(peer: Any) -> dict[str, float]:
    connection = await peer.connect()
    payload = w.mebibyte(peer.binary)
    for _ in range(3):
        assert await connection.call(payload) == payload
    began = time.perf_counter()
    for _ in range(w.W4_CALLS):
        await connection.call(payload)
    whole = time.perf_counter() - began
    await connection.close()
    return {"mebibytes": w.W4_CALLS / whole}


async def _connect_many(peer: Any, count: int) -> list[Any]:
    connections: list[Any] = []
    left = iter(range(count))

    async def work() -> None:
        connections.extend([await peer.connect() for _ in left])

    await asyncio.gather(*[work() for _ in range(w.W6_AT_ONCE)])
    return connections


async def w5(peer: Any) -> dict[str, float]:
    connections = await _connect_many(peer, w.W5_CONNECTIONS)
    for connection in connections:
        await connection.call(w.SMALL)
    trigger = connections[0]
    whole = 0.0
    for rounds in (2, w.W5_ROUNDS):
        waiting = [asyncio.create_task(connection.pushes(rounds)) for connection in connections]
        await asyncio.sleep(0)
        began = time.perf_counter()
        for _ in range(rounds):
            await trigger.call("broadcast")
        await asyncio.gather(*waiting)
        whole = time.perf_counter() - began
    return {"deliveries": w.W5_CONNECTIONS * w.W5_ROUNDS / whole}


async def w6(peer: Any) -> dict[str, float]:
    first = [await peer.connect() for _ in range(50)]
    before = w.rss_kib()
    server_before = await first[0].call("memory")
    began = time.perf_counter()
    connections = await _connect_many(peer, w.W6_CONNECTIONS)
    whole = time.perf_counter() - began
    await asyncio.sleep(0.2)
    server_after = await first[0].call("memory")
    result = {
        "connections": w.W6_CONNECTIONS / whole,
        "client_kib_each": (w.rss_kib() - before) / w.W6_CONNECTIONS,
        "server_kib_each": (server_after - server_before) / w.W6_CONNECTIONS,
    }
    assert len(connections) == w.W6_CONNECTIONS
    return result


async def w7(peer: Any) -> dict[str, float]:
    connection = await peer.connect()
    await connection.call(w.SMALL)
    took: list[float] = []
    received = 0

    async def consume() -> None:
        nonlocal received
        async for payload in connection.bulk():
            received += len(payload)

    async def call() -> None:
        start = time.perf_counter()
        await connection.call(w.SMALL)
        took.append(time.perf_counter() - start)

    consumer = asyncio.create_task(consume())
    while not received:
        await asyncio.sleep(0.01)
    began = time.perf_counter()
    received = 0
    calls = []
    while time.perf_counter() - began < w.W7_SECONDS:
        calls.append(asyncio.create_task(call()))
        await asyncio.sleep(w.W7_INTERVAL)
    whole = time.perf_counter() - began
    moved = received
    await asyncio.wait_for(asyncio.gather(*calls), 30)
    consumer.cancel()
    return {
        "p99_ms": w.percentile(took, 0.99) * 1e3,
        "p50_ms": w.percentile(took, 0.5) * 1e3,
        "bulk_mebibytes": moved / w.MEBIBYTE / whole,
        "calls": float(len(took)),
    }
