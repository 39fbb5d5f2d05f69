"""What is measured. Every peer does the same, in a client process that measures and a server process.

A workload returns figures by name; the one in `RATE` is what ratios are made of. Figures are per second unless their
name says otherwise.
"""

from __future__ import annotations

from typing import Any

#: 60 bytes as compact JSON.
SMALL: dict[str, Any] = {"id": 12345, "name": "abcdefghijklmnopqrst", "ok": True, "n": 7.25}
#: 1 MiB, text under a text codec and bytes under a binary one.
MEBIBYTE = 1_048_576
ROWS = 20_000
BULK_BYTES = 16 * MEBIBYTE

#: The name of each workload's main figure, and whether more of it is better.
RATE: dict[str, tuple[str, bool]] = {
    "W1": ("calls", True),
    "W2": ("calls", True),
    "W3": ("payloads", True),
    "W4": ("mebibytes", True),
    "W5": ("deliveries", True),
    "W6": ("connections", True),
    "W7": ("p99_ms", False),
}

DESCRIPTIONS: dict[str, str] = {
    "W1": "one connection, a 60-byte dict echoed, one call at a time",
    "W2": "one connection, 64 callers at once",
    "W3": "one request, 20,000 payloads of 60 bytes streamed back",
    "W4": "1 MiB echoed, one at a time",
    "W5": "500 connections, one small push to all, 20 rounds",
    "W6": "2,000 connections opened 32 at a time, then idle",
    "W7": "16 MiB payloads stream back while a small call starts every 5 ms",
}

W1_CALLS = 3_000
W2_CALLERS = 64
W2_CALLS = 100
W4_CALLS = 24
W5_CONNECTIONS = 500
W5_ROUNDS = 20
W6_CONNECTIONS = 2_000
W6_AT_ONCE = 32
W7_SECONDS = 4.0
W7_INTERVAL = 0.005


def mebibyte(binary: bool) -> str | bytes:
    """The payload of W4."""
    return b"x" * MEBIBYTE if binary else "x" * MEBIBYTE


def bulk(binary: bool) -> str | bytes:
    """The payload of W7."""
    return b"x" * BULK_BYTES if binary else "x" * BULK_BYTES


def percentile(values: list[float], part: float) -> float:
    """The value below which `part` of all lie."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)]


def rss_kib() -> int:
    """This process's resident memory."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4
