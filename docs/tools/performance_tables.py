"""Writes the tables in docs/performance.md from the data that the benchmarks left in docs/data.

python docs/tools/performance_tables.py           writes them
python docs/tools/performance_tables.py --check   fails where they would be others
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "performance.md"
DATA = ROOT / "docs" / "data"

#: By workload: its main figure, its unit, how it is shown, and whether less of it is better.
FIGURES = {
    "W1": ("calls", "calls/s", "{:,.0f}", False),
    "W2": ("calls", "calls/s", "{:,.0f}", False),
    "W3": ("payloads", "payloads/s", "{:,.0f}", False),
    "W4": ("mebibytes", "MiB/s", "{:,.0f}", False),
    "W5": ("deliveries", "deliveries/s", "{:,.0f}", False),
    "W6": ("connections", "connections/s", "{:,.0f}", False),
    "W7": ("p99_ms", "ms, p99 of the small calls", "{:.1f}", True),
}
#: Other figures that say something.
BESIDE = {
    "W1": {"p50_us": "µs at the median", "p99_us": "µs at p99"},
    "W6": {"client_kib_each": "KiB each in the client", "server_kib_each": "KiB each in the server"},
    "W7": {"bulk_mebibytes": "MiB/s of bulk beside them"},
}
NAMES = {
    "ours:fast": "this library, `FastJsonCodec`",
    "ours:json-server": "this library, its own `Server`",
    "reference:json-deflate": "the reference, JSON, compressing",
    "reference:msgpack-deflate": "the reference, msgpack, compressing",
    "limit:json": "the limit: JSON over TCP on gevent, no WebSocket, no streams",
    "plain_websockets:sync": "`websockets` sync, plain echo",
    "plain_websockets:asyncio": "`websockets` asyncio, plain echo",
    "plain_websockets:asyncio-bytes": "`websockets` asyncio, plain echo of bytes",
    "plain_geventwebsocket:json": "gevent-websocket, plain echo",
    "zerorpc_:msgpack": "zerorpc",
    "socketio_:json": "python-socketio on gevent",
}

Rounds = dict[int, dict[str, float]]


def load() -> dict[str, dict[str, Rounds]]:
    """The figures by workload, peer and round."""
    found: dict[str, dict[str, Rounds]] = {}
    for line in DATA.joinpath("benchmarks.jsonl").read_text(encoding="utf-8").splitlines():
        entry: dict[str, Any] = json.loads(line)
        peers = found.setdefault(entry["workload"], {})
        peers.setdefault(f"{entry['peer']}:{entry['variant']}", {})[entry["round"]] = entry
    return found


def median(rounds: Rounds, name: str) -> float:
    """That of a figure."""
    return statistics.median(figures[name] for figures in rounds.values())


def ratio(ours: Rounds, theirs: Rounds, name: str) -> str:
    """The median of the paired ratios, with the least and the greatest."""
    pairs = [ours[number][name] / theirs[number][name] for number in sorted(ours.keys() & theirs.keys())]
    return f"**{statistics.median(pairs):.2f}** ({min(pairs):.2f}–{max(pairs):.2f})"


def against_the_reference() -> str:
    """One row for each workload and codec."""
    lines = ["| | | this library | the reference | ratio | rounds |", "|---|---|---|---|---|---|"]
    for workload, peers in sorted(load().items()):
        name, unit, form, less = FIGURES[workload]
        for codec in ("json", "msgpack"):
            ours, theirs = peers.get(f"ours:{codec}"), peers.get(f"reference:{codec}")
            if ours is None or theirs is None:
                continue
            shown = [form.format(median(rounds, name)) for rounds in (ours, theirs)]
            note = ", less is better" if less else ""
            cells = [f"{workload} {codec}", f"{unit}{note}", *shown, ratio(ours, theirs, name), str(len(ours))]
            lines.append(f"| {' | '.join(cells)} |")
            for other, text in BESIDE.get(workload, {}).items():
                lines.append(f"| | {text} | {median(ours, other):,.1f} | {median(theirs, other):,.1f} | | |")
    return "\n".join(lines)


def against_others() -> str:
    """One row for each workload and other peer: this library by that one."""
    lines = ["| | beside | it does | this library / it |", "|---|---|---|---|"]
    for workload, peers in sorted(load().items()):
        name, unit, form, less = FIGURES[workload]
        for peer, text in NAMES.items():
            rounds = peers.get(peer)
            if rounds is None:
                continue
            binary = "msgpack" in peer or "bytes" in peer
            ours = peers["ours:msgpack" if binary else "ours:json"]
            if peer.startswith("ours:"):
                reference = peers.get("reference:json")
                cell = "" if reference is None else f"{ratio(rounds, reference, name)} of the reference"
            else:
                cell = ratio(ours, rounds, name) + (", less is better" if less else "")
            beside = "".join(
                f"; {median(rounds, other):,.1f} {label}"
                for other, label in BESIDE.get(workload, {}).items()
                if peer == "ours:json-server"
            )
            lines.append(f"| {workload} | {text} | {form.format(median(rounds, name))} {unit}{beside} | {cell} |")
    return "\n".join(lines)


def curve(name: str) -> str:
    """One of the curves."""
    rows: list[dict[str, float]] = json.loads(DATA.joinpath("curves.json").read_text(encoding="utf-8"))[name]
    lines = [f"| {' | '.join(rows[0])} |", "|---" * len(rows[0]) + "|"]
    lines += [f"| {' | '.join(f'{value:,}' for value in row.values())} |" for row in rows]
    return "\n".join(lines)


TABLES = {
    "reference": against_the_reference,
    "others": against_others,
    "streams": lambda: curve("beside_streams"),
    "connections": lambda: curve("among_connections"),
    "receivers": lambda: curve("to_receivers"),
}


def with_tables(page: str) -> str:
    """The page with the tables of the data.

    Raises:
        ValueError: The page lacks the place of one.
    """
    for name, table in TABLES.items():
        begin = f"<!-- {name}: written by docs/tools/performance_tables.py -->\n"
        end = f"<!-- end of {name} -->\n"
        before, found, rest = page.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise ValueError(f"{PAGE} lacks one of the lines {begin!r} and {end!r}")
        page = f"{before}{begin}\n{table()}\n\n{end}{after}"
    return page


def main() -> int:
    """Write the page, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail where the page is stale")
    page = PAGE.read_text(encoding="utf-8")
    fresh = with_tables(page)
    if parser.parse_args().check:
        if page != fresh:
            print(f"{PAGE} is stale; run {Path(__file__).name}", file=sys.stderr)
        return int(page != fresh)
    PAGE.write_text(fresh, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
