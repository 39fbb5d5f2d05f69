"""The server of the soak run, in a process of its own: `python -m tests.soak.server PORT LOG`.

Every effect that a call is to have once is a line of the log file, written before the call is answered, so that it
survives the process.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import zlib
from typing import Any

import gevent
import gevent.signal

from muxws_green import Peer, Server, WSGIApp
from tests.soak.figures import figures

PAYLOAD_BYTES = 3_000
DRAIN_SECONDS = 5.0


def row(seed: int, number: int) -> list[Any]:
    """A row of an export, which both ends can make."""
    size = zlib.crc32(b"%d %d" % (seed, number)) % PAYLOAD_BYTES
    return [number, chr(97 + (seed + number) % 26) * size]


class Service:
    """What the peers are served.

    Args:
        log: The descriptor of the log file.
    """

    def __init__(self, log: int) -> None:
        self._log = log
        self.app = WSGIApp(None, on_connect=self._connected, ping_interval=2.0, ping_timeout=3.0)

    def _connected(self, peer: Peer) -> None:
        peer.on_stream(lambda payload, stream: self._serve(peer, payload, stream))

    def _serve(self, peer: Peer, payload: Any, stream: Any) -> None:
        if stream.headers.get("hello"):
            return
        kind, *rest = payload
        getattr(self, f"_{kind}")(peer, stream, *rest)

    def _echo(self, _peer: Peer, stream: Any, value: Any) -> None:
        stream.reply(value)

    def _once(self, _peer: Peer, stream: Any, name: str) -> None:
        os.write(self._log, f"{name}\n".encode())
        stream.reply(name)

    def _export(self, _peer: Peer, stream: Any, seed: int, count: int) -> None:
        for number in range(count):
            stream.send(row(seed, number))
        stream.end(trailers={"rows": count})

    def _bulk(self, _peer: Peer, stream: Any, count: int, size: int) -> None:
        text = "x" * size
        for number in range(count):
            stream.send([number, text])

    def _sum(self, _peer: Peer, stream: Any) -> None:
        count = size = 0
        for number, text in stream:
            if number != count:
                raise ValueError(f"row {number} came where {count} was due")
            count += 1
            size += len(text)
        stream.reply([count, size])

    def _mirror(self, _peer: Peer, stream: Any) -> None:
        for each in stream:
            stream.send(each)

    def _back(self, peer: Peer, stream: Any, value: Any) -> None:
        stream.reply(peer.request(value, timeout=20.0))

    def _fail(self, _peer: Peer, _stream: Any, text: str) -> None:
        raise ValueError(text)

    def _wait(self, _peer: Peer, stream: Any) -> None:
        for _ in stream:
            pass

    def _figures(self, _peer: Peer, stream: Any) -> None:
        stream.reply(dataclasses.asdict(figures()) | {"accepted": len(self.app.peers)})


def main() -> None:
    port, path = int(sys.argv[1]), sys.argv[2]
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    server = Server(("127.0.0.1", port), Service(log).app, log=None, backlog=1_024)
    server.start()
    gevent.signal_handler(15, server.drain, DRAIN_SECONDS)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
