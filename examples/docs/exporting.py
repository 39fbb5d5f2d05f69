"""An export that is read row by row, and goes on where it was cut off."""

import sqlite3
from contextlib import closing

from gevent.event import Event

from muxws_green import ConnectionLost, Reconnect, Server, connect
from muxws_green.testing import Relay

ROWS = 20_000
# Stands for a table of yours.
QUERY = """
    WITH RECURSIVE sales(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM sales WHERE id < ?)
    SELECT id, printf('%.*c', 200, 'x') FROM sales WHERE id > ?
"""


def export(payload, stream):
    """Send the rows behind the one that the client has last, 500 in a payload."""
    with closing(sqlite3.connect(":memory:")) as database:
        cursor = database.execute(QUERY, (ROWS, payload["behind"]))
        count = 0
        while chunk := cursor.fetchmany(500):
            stream.send(chunk)  # waits while the client is slow, so that no more than a few chunks are in memory
            count += len(chunk)
    stream.end(trailers={"rows": count})


def fetch(peer, rows):
    """Read what is missing in `rows`, to the end or until the connection is lost."""
    stream = peer.open({"behind": rows[-1] if rows else 0}, end=True)
    before = len(rows)
    for chunk in stream:
        rows.extend(number for number, _ in chunk)
        if before == 0 and len(rows) == 5_000:
            relay.reset()  # the network fails
    assert stream.trailers["rows"] == len(rows) - before


server = Server(("127.0.0.1", 0), export, log=None)
server.start()
back = Event()
rows = []
with (
    Relay(f"ws://127.0.0.1:{server.server_port}/") as relay,
    connect(relay.url, reconnect=Reconnect(initial_delay=0.01), on_reconnect=lambda *_: back.set()) as peer,
):
    while len(rows) < ROWS:
        try:
            fetch(peer, rows)
        except ConnectionLost:
            print("cut off before the end:", len(rows) < ROWS)
            back.wait(timeout=5.0)
    print("rows:", len(rows), "each once and in order:", rows == list(range(1, ROWS + 1)))
server.stop()
