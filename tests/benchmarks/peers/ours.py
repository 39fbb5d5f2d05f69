"""This library: a plain pywsgi server and `connect`, everything at its defaults."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gevent.event import Event
from gevent.pywsgi import WSGIServer

import muxws_green as m
from muxws_green.codecs import MsgpackCodec
from tests.benchmarks import workloads as w

RUNNER = "blocking"
WORKLOADS = frozenset(w.RATE)
VARIANTS = ("json", "msgpack", "fast", "json-server", "msgpack-server")


def _codec(variant: str) -> m.Codec:
    if variant.startswith("msgpack"):
        return MsgpackCodec()
    if variant == "fast":
        from muxws_green.codecs.fast import FastJsonCodec

        return FastJsonCodec()
    return m.JsonCodec()


def serve(variant: str) -> None:
    """Serve until the process is ended."""
    codec = _codec(variant)
    registry = m.PeerRegistry()
    bulk = w.bulk(codec.binary)

    def handle(payload: Any, stream: m.Stream) -> None:
        if payload == "rows":
            for _ in range(w.ROWS):
                stream.send(w.SMALL)
        elif payload == "bulk":
            while True:
                stream.send(bulk)
        elif payload == "broadcast":
            registry.notify_all(w.SMALL)
            stream.reply(None)
        elif payload == "memory":
            stream.reply(w.rss_kib())
        else:
            stream.reply(payload)

    app = m.WSGIApp(handle, codec=codec, on_connect=registry.register)
    make = m.Server if variant.endswith("-server") else WSGIServer
    server = make(("127.0.0.1", 0), app, log=None)
    server.start()
    print(server.server_port, flush=True)
    server.serve_forever()


class Connection:
    """One connection."""

    def __init__(self, url: str, codec: m.Codec) -> None:
        self._pushed = 0
        self._wanted = 0
        self._enough = Event()
        self._peer = m.connect(url, codec=codec, on_stream=self._push)
        self.call = self._peer.request
        self.close = self._peer.close

    def _push(self, payload: Any, stream: m.Stream) -> None:
        self._pushed += 1
        if self._pushed == self._wanted:
            self._enough.set()

    def rows(self) -> Iterator[Any]:
        return iter(self._peer.open("rows", end=True))

    def bulk(self) -> Iterator[Any]:
        return iter(self._peer.open("bulk", end=True))

    def pushes(self, count: int) -> None:
        self._pushed = 0
        self._wanted = count
        self._enough.clear()
        self._enough.wait()


class Client:
    """Connects to the server."""

    def __init__(self, port: int, variant: str) -> None:
        self._url = f"ws://127.0.0.1:{port}/"
        self._codec = _codec(variant)
        self.binary = self._codec.binary

    def connect(self) -> Connection:
        return Connection(self._url, self._codec)
