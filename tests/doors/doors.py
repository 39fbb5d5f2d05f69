"""Every way by which two peers of ours come together, as a `Talk`, and every way by which one of ours meets a raw end,
as an `Edge`.

In this process: memory, and pairs of sockets. In two: our dialer, and a server under each of the hosts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import gevent

from muxws_green import Reconnect, connect
from muxws_green.codecs.registry import resolve_codec
from muxws_green.runtime.options import Options
from muxws_green.testing.pairs import established_peer
from muxws_green.transports.memory import memory_pair
from muxws_green.transports.socket import SocketTransport
from tests.doors.apps import CODECS
from tests.doors.deeds import OPTIONS, Worker
from tests.hosts.client import exchange
from tests.hosts.process import HostProcess, serving
from tests.transports.raw import PAIRS, PATIENCE, client_context

#: What a message may have, at both ends of a pair: as `connect` and `accept` set it.
MAX_MESSAGE_BYTES = 131_072


class Door(NamedTuple):
    """A server of its own: a host, an application, and what is between it and its clients."""

    host: str
    app: str = "plain"
    kind: str = "tcp"

    def __str__(self) -> str:
        return "/".join(self).replace(" ", "_")


#: Every acceptor host, with the application at its door.
DOORS = [
    *(Door(host, kind=kind) for host in ("pywsgi", "server") for kind in ("tcp", "tls", "unix")),
    Door("pywsgi patched"),
    Door("gunicorn gevent"),
    Door("gunicorn gevent_wsgi"),
    # gevent-websocket: its upgrade left out, in each of the four ways, and its upgrade taken over, in three.
    Door("gevent-websocket hook"),
    Door("gevent-websocket attribute"),
    Door("gevent-websocket handler"),
    Door("gunicorn gevent-websocket handler"),
    Door("gevent-websocket after"),
    Door("gevent-websocket server after"),
    Door("gunicorn gevent-websocket after"),
    *(Door(host, app) for app in ("flask", "bottle", "django") for host in ("pywsgi", "gunicorn gevent")),
]

_numbers = count(1)


def next_name() -> str:
    """A name for a worker, by which a server is asked for what that has seen."""
    return f"worker {next(_numbers)}"


class Served:
    """A running server, as its clients see it."""

    def __init__(self, process: HostProcess, door: Door) -> None:
        self.process = process
        self.door = door

    def url(self, path: str = "/ws") -> str:
        if self.door.kind == "unix":
            return f"ws+unix://{self.process.address}:{path}"
        scheme, host = ("wss", "localhost") if self.door.kind == "tls" else ("ws", "127.0.0.1")
        return f"{scheme}://{host}:{self.process.address[1]}{path}"

    def connect(self, path: str = "/ws", **options: Any) -> Any:
        """Our peer, dialled."""
        if self.door.kind == "tls":
            options["ssl_context"] = client_context()
        with gevent.Timeout(PATIENCE, AssertionError("the dial did not end")):
            return connect(self.url(path), reconnect=Reconnect(max_attempts=0), **OPTIONS, **options)

    def get(self, path: str, sock: Any = None, headers: str = "") -> Any:
        """An ordinary request, on a connection that may be kept."""
        head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n"
        return exchange(sock or self.process.connect(), head.encode())

    def facts(self, name: str) -> dict[str, Any]:
        """What the worker of that name has seen."""
        return dict(json.loads(self.get("/facts", headers="Connection: close\r\n").body())[name])

    def told(self, name: str) -> list[list[Any]]:
        """What its `on_close` has been told, once there was something."""
        with gevent.Timeout(PATIENCE, AssertionError(f"{name} has not been told of its end")):
            while not (closes := self.facts(name)["closes"]):
                # To ask takes a round trip to the other process, in which others run.
                pass
        return list(closes)

    def check_silent(self) -> None:
        """Nothing on standard error, and no false status in the access log."""
        assert self.process.errors() == "", f"{self.door}: {self.process.errors()}"
        statuses = {line.split('" ')[1].split()[0] for line in self.process.access_log()}
        assert not statuses & {"404", "500"}


@contextmanager
def served(door: Door, directory: Path) -> Iterator[Served]:
    """One door, open until the block is left; it must have been silent."""
    tls, unix = door.kind == "tls", door.kind == "unix"
    with serving(door.host, directory, f"doors/{door.app}", tls=tls, unix=unix) as process:
        server = Served(process, door)
        yield server
        server.check_silent()
    assert (process.process.returncode, process.errors()) == (0, ""), f"{door}: {process.errors()}"


class Talk:
    """Two workers that are connected. `mine` dialled and is in this process."""

    def __init__(self, mine: Worker, remote: Worker | tuple[Served, str]) -> None:
        self.mine = mine
        self._remote = remote

    def do(self, role: str, deed: str, **args: Any) -> Any:
        """Have the end of that role do something to the other one."""
        if role == "dialer":
            return getattr(self.mine, deed)(**args)
        return self.mine.peer.request({"do": "ask", "deed": deed, "args": args}, timeout=PATIENCE)

    def remote_closes(self) -> list[Any]:
        """What the acceptor's `on_close` has been told, once there was something."""
        if isinstance(self._remote, Worker):
            return self._remote.told()
        server, name = self._remote
        return server.told(name)


@contextmanager
def talk_here(kind: str, codec_name: str) -> Iterator[Talk]:
    """Both ends in this process, over memory or a pair of sockets."""
    dialer, acceptor = Worker(codec_name), Worker(codec_name)
    options = Options(codec=resolve_codec(CODECS[codec_name]), **OPTIONS)
    near, far = transports(kind)
    dialer.take(established_peer(near, options, dialer=True))
    acceptor.take(established_peer(far, options, dialer=False))
    try:
        yield Talk(dialer, acceptor)
    finally:
        near.abort()
        with gevent.Timeout(PATIENCE, AssertionError("an end has not noticed that the other is gone")):
            gevent.wait([dialer.peer, acceptor.peer])


def transports(kind: str) -> tuple[Any, Any]:
    """Two transports that are connected, the dialer's first."""
    if kind == "memory":
        return memory_pair()
    near, far = PAIRS[kind]()
    return (
        SocketTransport(near, client=True, max_message_bytes=MAX_MESSAGE_BYTES),
        SocketTransport(far, client=False, max_message_bytes=MAX_MESSAGE_BYTES),
    )


@contextmanager
def talk_to(server: Served, codec_name: str = "json") -> Iterator[Talk]:
    """Our dialer, and a peer behind that door."""
    worker = Worker(codec_name)
    path = "/ws" if codec_name == "json" else f"/ws-{codec_name}"
    peer = server.connect(path, codec=CODECS[codec_name], on_stream=worker.act)
    try:
        worker.peer = peer
        peer.on_close(worker._note_close)
        name = next_name()
        assert list(peer.open({"do": "name", "name": name}, end=True)) == []
        yield Talk(worker, (server, name))
    finally:
        peer.close(drain=0.0)
        server.process.close_clients()
