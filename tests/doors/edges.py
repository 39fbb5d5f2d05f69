"""One peer of ours that is connected to something that says exactly what a test writes: an `Edge`.

The peer is a dialer's or an acceptor's, over memory or a socket; the acceptor's may be in a process of its own, behind
any door.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import gevent

from muxws_green import Reconnect, connect
from muxws_green.codecs.registry import resolve_codec
from muxws_green.errors import ConnectionClosed
from muxws_green.runtime.options import Options
from muxws_green.testing.pairs import established_peer
from muxws_green.transports.memory import MemoryTransport, memory_pair
from tests.doors.deeds import OPTIONS, Worker
from tests.doors.doors import Served, next_name
from tests.hosts.client import exchange, head
from tests.transports.raw import CLOSE, PATIENCE, TEXT, RawEnd, RawFrame, client_context, close_frame, frame
from tests.transports.scripted import Connection, Scripted


class Closed(NamedTuple):
    """A close frame that the peer has sent; the code None is an empty one."""

    code: int | None
    reason: str


class Edge:
    """What all edges have. The peer's worker is asked for things with `ask`; `heard` gives what the peer has sent."""

    #: Whether the peer may be sent bytes that are no whole messages.
    has_bytes = True

    def __init__(self, *, peer_dials: bool) -> None:
        self.peer_dials = peer_dials
        self._ids = count(2 if peer_dials else 1, 2)

    def say(self, message: bytes) -> None:
        """Send a text message."""
        raise NotImplementedError

    def heard(self) -> Any:
        """The next frame of the peer's as a dict, a `Closed`, or None at the end of the connection."""
        raise NotImplementedError

    def send_close(self, code: int | None, reason: str = "") -> None:
        """Send a close frame."""
        raise NotImplementedError

    def vanish(self, how: str) -> None:
        """Go, by "fin", "rst", or "half": half a frame and then the end."""
        raise NotImplementedError

    def told(self) -> list[list[Any]]:
        """What the peer's `on_close` has been told, once there was something."""
        raise NotImplementedError

    def facts(self) -> dict[str, Any]:
        """What the peer's worker has seen."""
        raise NotImplementedError

    def ask(self, do: str, *, end: bool = False, **more: Any) -> int:
        """Open a stream; its id."""
        number = next(self._ids)
        self.say(opening(number, do, end=end, **more))
        return number

    def is_over(self) -> bool:
        """Read what is left, which must be nothing but the end."""
        return self.heard() is None


def opening(number: int, do: str, *, end: bool = False, **more: Any) -> bytes:
    """The frame by which a worker is asked for something."""
    return json.dumps({"type": "open", "stream": number, "payload": {"do": do, **more}, "end": end}).encode()


class SocketEdge(Edge):
    """Over a socket, whose other end is `end`."""

    def __init__(self, end: RawEnd, *, peer_dials: bool, told: Callable[[], Any], facts: Callable[[], Any]) -> None:
        super().__init__(peer_dials=peer_dials)
        self.end = end
        self._told = told
        self._facts = facts
        self._frames: deque[RawFrame] = deque()

    def say(self, message: bytes) -> None:
        self.end.send(TEXT, message)

    def heard(self) -> Any:
        if not self._frames:
            try:
                self._frames.extend(self.end.frames(1))
            except AssertionError:
                # At the end of the file. A frame that is not whole would be no end.
                assert self.end.buffered == b""
                return None
        message = self._frames.popleft()
        assert message.masked is self.peer_dials
        if message.opcode == CLOSE:
            return Closed(message.close_code, message.payload[2:].decode())
        assert message.opcode == TEXT
        return json.loads(message.payload)

    def send_close(self, code: int | None, reason: str = "") -> None:
        masked = not self.peer_dials
        self.end.sock.sendall(frame(CLOSE, masked=masked) if code is None else close_frame(code, reason, masked=masked))

    def vanish(self, how: str) -> None:
        if how == "half":
            whole = frame(TEXT, opening(next(self._ids), "say", end=True, value="x" * 100), masked=not self.peer_dials)
            self.end.sock.sendall(whole[: len(whole) // 2])
        if how == "rst":
            self.end.reset()
        else:
            self.end.sock.close()

    def told(self) -> list[list[Any]]:
        return list(self._told())

    def facts(self) -> dict[str, Any]:
        return dict(self._facts())


class MemoryEdge(Edge):
    """Over memory, where whole messages travel."""

    has_bytes = False

    def __init__(self, transport: MemoryTransport, worker: Worker, *, peer_dials: bool) -> None:
        super().__init__(peer_dials=peer_dials)
        self._transport = transport
        self._worker = worker
        self._messages: deque[Any] = deque()
        self._seen_close = False

    def say(self, message: bytes) -> None:
        self._transport.send([message], False)

    def heard(self) -> Any:
        if not self._messages:
            try:
                with gevent.Timeout(PATIENCE, AssertionError("the peer says nothing")):
                    self._messages.extend(self._transport.receive())
            except ConnectionClosed as closed:
                return self._closed(closed)
        return json.loads(self._messages.popleft())

    def _closed(self, closed: ConnectionClosed) -> Closed | None:
        if closed.code != 1006 and not self._seen_close:
            self._seen_close = True
            return Closed(None if closed.code == 1005 else closed.code, closed.reason)
        # The transport reports a close frame again and again, and nothing behind it.
        with gevent.Timeout(PATIENCE, AssertionError("the peer has not ended the connection")):
            while not self._transport.incoming.ended:
                gevent.sleep(0.001)
        return None

    def send_close(self, code: int | None, reason: str = "") -> None:
        if code is None:
            raise NotImplementedError
        self._transport.close(code, reason)

    def vanish(self, how: str) -> None:
        self._transport.drop()

    def told(self) -> list[list[Any]]:
        return self._worker.told()

    def facts(self) -> dict[str, Any]:
        return self._worker.facts()


@contextmanager
def memory_edge(*, peer_dials: bool) -> Iterator[Edge]:
    """A peer over memory."""
    worker = Worker()
    options = Options(codec=resolve_codec("json"), **OPTIONS)
    own, its = memory_pair()
    worker.take(established_peer(its, options, dialer=peer_dials))
    try:
        yield MemoryEdge(own, worker, peer_dials=peer_dials)
    finally:
        own.abort()
        with gevent.Timeout(PATIENCE):
            gevent.wait([worker.peer])


@contextmanager
def dialer_edge(kind: str, folder: Path, behind: bytes = b"") -> Iterator[Edge]:
    """A peer of ours that has dialled a server over a socket; `behind` is sent together with the 101."""
    worker = Worker()

    def upgrade(connection: Connection) -> None:
        connection.upgrade(behind=behind)

    with Scripted(upgrade, kind=kind, folder=folder) as server:
        context: dict[str, Any] = {"ssl_context": client_context()} if kind == "tls" else {}
        with gevent.Timeout(PATIENCE):
            peer = connect(server.url, on_stream=worker.act, reconnect=Reconnect(max_attempts=0), **OPTIONS, **context)
        worker.peer = peer
        peer.on_close(worker._note_close)
        try:
            end = server.connections[0].raw
            yield SocketEdge(end, peer_dials=True, told=worker.told, facts=worker.facts)
        finally:
            server.connections[0].sock.close()
            with gevent.Timeout(PATIENCE):
                gevent.wait([peer])


@contextmanager
def acceptor_edge(server: Served, behind: tuple[bytes, ...] = ()) -> Iterator[Edge]:
    """A peer behind a door; the messages of `behind` are sent together with the request."""
    name = next_name()
    first = [opening(1, "name", end=True, name=name), *behind]
    request = head(path="/ws") + b"".join(frame(TEXT, message, masked=True) for message in first)
    answer = exchange(server.process.connect(), request)
    assert answer.status == 101
    edge = SocketEdge(answer.end, peer_dials=False, told=lambda: server.told(name), facts=lambda: server.facts(name))
    for _ in range(1 + len(behind)):
        next(edge._ids)
    try:
        if not behind:
            assert edge.heard() == {"type": "data", "stream": 1, "end": True}
        yield edge
    finally:
        server.process.close_clients()
