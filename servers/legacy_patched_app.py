"""An old application, written with threads and blocking calls in mind, that serves hundreds of peers in one process.

    python servers/legacy_patched_app.py --port 8000
    python -m muxws_green request ws://127.0.0.1:8000/ws '{"do": "stock", "item": "bolts"}'

Nothing below `monkey.patch_all()` knows of gevent. Its handlers block in three ways, as such applications do:

- `stock` asks an inventory system over a socket of the standard library, which takes its time;
- `price` asks a web service with `requests`;
- `report` runs a long query. A C library that waits outside of Python's sockets cannot be made cooperative, so
  that goes through the hub's pool of threads.

While one handler waits, every other stream of every peer goes on. The inventory system and the web service are played
by this process too, so that there is something to ask.
"""

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import argparse  # noqa: E402
import os  # noqa: E402
import signal  # noqa: E402
import socket  # noqa: E402
import socketserver  # noqa: E402
import sqlite3  # noqa: E402
import tempfile  # noqa: E402
import threading  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable  # noqa: E402
from contextlib import closing  # noqa: E402
from typing import Any  # noqa: E402

import gevent  # noqa: E402
import requests  # noqa: E402

from muxws_green import Server, Stream, WSGIApp  # noqa: E402

#: How long the inventory system and the web service take over an answer, in seconds.
SLOWNESS = float(os.environ.get("SLOWNESS", "0.5"))

STOCK = {"bolts": 1200, "nuts": 800}


class InventorySystem(socketserver.StreamRequestHandler):
    """The old system: one line with an item, one line with a number, slowly."""

    def handle(self) -> None:
        """Answer one connection."""
        item = self.rfile.readline().decode().strip()
        time.sleep(SLOWNESS)
        self.wfile.write(b"%d\n" % STOCK.get(item, 0))


class Inventory(socketserver.ThreadingTCPServer):
    """Where it listens."""

    request_queue_size = 1024
    daemon_threads = True


class Application:
    """What it was before there were peers, and the handlers that it has now."""

    def __init__(self, database: str) -> None:
        self.database = database
        self.web_service = ""
        self.inventory = Inventory(("127.0.0.1", 0), InventorySystem)
        self.inventory_port: int = self.inventory.server_address[1]
        threading.Thread(target=self.inventory.serve_forever, name="inventory", daemon=True).start()
        self._lock = threading.Lock()
        self.answered = 0
        with closing(sqlite3.connect(database)) as connection, connection:
            connection.execute("CREATE TABLE sales (item TEXT, pieces INTEGER)")
            connection.executemany("INSERT INTO sales VALUES (?, ?)", [("bolts", n) for n in range(100)])

    def handle(self, payload: Any, stream: Stream) -> None:
        """Answer one stream; a plain blocking function, whatever it calls."""
        work: dict[str, Callable[[str], Any]] = {"stock": self.stock, "price": self.price, "report": self.report}
        stream.reply(work[payload["do"]](payload["item"]))
        with self._lock:
            self.answered += 1

    def stock(self, item: str) -> int:
        """How many there are, says the inventory system."""
        with closing(socket.create_connection(("127.0.0.1", self.inventory_port), timeout=30)) as connection:
            connection.sendall(f"{item}\n".encode())
            with connection.makefile("rb") as lines:
                return int(lines.readline())

    def price(self, item: str) -> float:
        """What one costs, says the web service."""
        answer = requests.get(f"{self.web_service}/price", params={"item": item}, timeout=30)
        answer.raise_for_status()
        return float(answer.json()["price"])

    def report(self, item: str) -> int:
        """How many were sold. Takes long, and waits where no greenlet could switch."""
        pieces: int = gevent.get_hub().threadpool.apply(self._sum, (item,))
        return pieces

    def _sum(self, item: str) -> int:
        query = """
            WITH RECURSIVE slow(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM slow WHERE n < ?)
            SELECT (SELECT SUM(pieces) FROM sales WHERE item = ?), MAX(n) FROM slow
        """
        with closing(sqlite3.connect(self.database)) as connection:
            (pieces, _) = connection.execute(query, (int(SLOWNESS * 4_000_000), item)).fetchone()
        return pieces or 0

    def __call__(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        """The ordinary web pages of the application, and the web service."""
        if environ["PATH_INFO"] == "/price":
            time.sleep(SLOWNESS)
            body = b'{"price": 0.25}'
        else:
            body = f"{self.answered} questions answered\n".encode()
        start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
        return [body]


def main() -> None:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser(description="A monkey-patched application with peers.")
    parser.add_argument("--port", type=int, default=8000, help="0 lets the system choose (default: %(default)s)")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as directory:
        legacy = Application(os.path.join(directory, "sales.sqlite3"))
        peers = WSGIApp(legacy.handle)

        def application(environ: dict[str, Any], start_response: Any) -> Any:
            return (peers if environ["PATH_INFO"] == "/ws" else legacy)(environ, start_response)

        server = Server(("127.0.0.1", options.port), application, log=None, backlog=1024)
        for number in (signal.SIGTERM, signal.SIGINT):
            gevent.signal_handler(number, server.drain, 10.0)
        server.start()
        legacy.web_service = f"http://127.0.0.1:{server.server_port}"
        print(f"listening on ws://127.0.0.1:{server.server_port}/ws", flush=True)
        server.serve_forever()
        legacy.inventory.shutdown()
        legacy.inventory.server_close()


if __name__ == "__main__":
    main()
