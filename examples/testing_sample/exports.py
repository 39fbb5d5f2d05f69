"""A small application: a server that exports tables row by row, and an agent that keeps a connection to it.

Not a program but a module; the two files of tests beside it show how to test both sides without a network, over real
sockets, and on a network that fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from muxws_green import IdleHeartbeat, Peer, Reconnect, ResetCode, Stream, connect

TABLES = {"numbers": range(1000), "letters": "abc"}


def serve_export(payload: Any, stream: Stream) -> None:
    """The handler of the server: `{"export": name}` is answered with the rows of that table, one payload each."""
    table = TABLES.get(payload["export"])
    if table is None:
        stream.reset(ResetCode.APPLICATION_ERROR, "no such table")
        return
    for row in table:
        stream.send(row)
    stream.end()


class Agent:
    """Keeps a connection to the server and fetches tables from it.

    Args:
        url: The server.
        report: Called with "lost" and "back" when the connection goes and comes.
        options: Further options of `connect`, such as the `clock` of a test.
    """

    def __init__(self, url: str, report: Callable[[str], object] = print, **options: Any) -> None:
        self.peer: Peer = connect(
            url,
            heartbeat=IdleHeartbeat(20.0, 10.0),
            reconnect=Reconnect(initial_delay=1.0, jitter=0.0),
            on_close=lambda reason: report("lost"),
            on_reconnect=lambda attempt, peer: report("back"),
            **options,
        )

    def fetch(self, table: str) -> list[Any]:
        """All rows of a table."""
        return list(self.peer.open({"export": table}, end=True))

    def first(self, table: str, count: int) -> list[Any]:
        """The first rows of a table; the server is told not to go on."""
        rows = []
        for row in self.peer.open({"export": table}, end=True):
            rows.append(row)
            if len(rows) == count:
                break
        return rows

    def close(self) -> None:
        """End the connection for good."""
        self.peer.close()
