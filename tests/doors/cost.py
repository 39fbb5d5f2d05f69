"""What a peer costs under each host: `python -m tests.doors.cost` prints the table of `docs/serving.md`.

Nothing here is a test. The kernel's buffers of the sockets come on top.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from tests.cases.green import resident_bytes
from tests.hosts.client import exchange, head
from tests.hosts.process import HostProcess, serving
from tests.transports.raw import TEXT

PEERS = 400
ROUNDS = 3

HOSTS = [
    ("`muxws_green.Server`", "server", "peers", False),
    ("the same with the default heartbeat", "server", "peers with heartbeat", False),
    ("`muxws_green.Server`, TLS", "server", "peers", True),
    ("`gevent.pywsgi`", "pywsgi", "peers", False),
    ("`gevent.pywsgi`, TLS", "pywsgi", "peers", True),
    ("gunicorn `-k gevent`", "gunicorn gevent", "peers", False),
    ("gunicorn `-k gevent_wsgi`", "gunicorn gevent_wsgi", "peers", False),
    ("gevent-websocket, before its upgrade", "gevent-websocket hook", "peers", False),
    ("gevent-websocket, after its upgrade", "gevent-websocket after", "doors/plain", False),
    ("Flask view, `gevent.pywsgi`", "pywsgi", "doors/flask", False),
    ("Django view, `gevent.pywsgi`", "pywsgi", "doors/django", False),
]


def worker_of(server: HostProcess, host: str) -> int:
    """The process that serves."""
    pid = server.process.pid
    if host.startswith("gunicorn"):
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
    return pid


def measure(host: str, app: str, tls: bool) -> float:
    """KiB for each idle peer."""
    payload: Any = {"do": "say", "value": 0} if app.startswith("doors") else 0
    with tempfile.TemporaryDirectory() as directory, serving(host, Path(directory), app, tls=tls) as server:
        ends = [exchange(server.connect(), head()).end for _ in range(20)]
        pid = worker_of(server, host)
        before = resident_bytes(pid)
        ends += [exchange(server.connect(), head()).end for _ in range(PEERS)]
        # One call each, so that everything that is made when first needed has been made.
        for end in ends:
            end.send(TEXT, json.dumps({"type": "open", "stream": 1, "payload": payload, "end": True}).encode())
            end.frame()
        return (resident_bytes(pid) - before) / PEERS / 1024


def main() -> None:
    print("| host | KiB for each idle peer |")
    print("|---|---|")
    for title, host, app, tls in HOSTS:
        each = statistics.median(measure(host, app, tls) for _ in range(ROUNDS))
        print(f"| {title} | {each:.0f} |", flush=True)


if __name__ == "__main__":
    main()
