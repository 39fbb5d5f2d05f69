"""A server of this library in the test's own process, and raw clients at it."""

from __future__ import annotations

import contextlib
import io
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gevent
from gevent import socket
from gevent.pywsgi import WSGIServer

from muxws_green import Peer, Server, WSGIApp
from muxws_green.runtime.stream import Stream
from tests.hosts.client import Answer, ClientEnd, exchange, head
from tests.transports.raw import CLOSE, PATIENCE, TEXT, RawEnd, RawFrame

#: The two servers on which a row is shown: gevent's own, and ours.
SERVERS: dict[str, Any] = {"pywsgi": WSGIServer, "server": Server}


class Green:
    """A running server. Every peer that it has accepted is in `peers`, what `on_close` was told of each in `closes`,
    and what its handler was called with in `handled`; by default that answers with what came.
    """

    def __init__(self, listener: Any, handler: Any, make_server: Any, options: dict[str, Any]) -> None:
        self.log, self.errors = io.StringIO(), io.StringIO()
        self.peers: list[Peer] = []
        self.closes: list[Any] = []
        self.handled: list[Any] = []
        self.address = listener
        self._handler = handler
        self._sockets: list[Any] = []
        own = {key: options.pop(key) for key in ("spawn", "head_timeout", "ssl_context") if key in options}
        wrap = options.pop("wrap", lambda app: app)
        if "ping_interval" not in options:
            options.setdefault("heartbeat", None)
        app = WSGIApp(self._handle, on_connect=self._connected, **options)
        self.app = app
        self.server = make_server(listener, wrap(app), log=self.log, error_log=self.errors, **own)

    def _connected(self, peer: Peer) -> None:
        self.peers.append(peer)
        peer.on_close(lambda reason: self.closes.append((peer, reason)))

    def _handle(self, payload: Any, stream: Stream) -> None:
        self.handled.append(payload)
        if self._handler is None:
            stream.reply(payload)
        else:
            self._handler(payload, stream)

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.server.server_port}/ws"

    def connect(self) -> Any:
        """A bare connection."""
        sock = socket.create_connection(("127.0.0.1", self.server.server_port), timeout=PATIENCE)
        self._sockets.append(sock)
        return sock

    def ask(self, *, behind: bytes = b"", lines: list[str] | None = None, **changes: str | None) -> Answer:
        """Send a handshake, whose headers may be changed (`sec_websocket_key=…`, None to leave one out)."""
        named = {name.replace("_", "-").title(): value for name, value in changes.items()}
        fixed = {name.replace("Websocket", "WebSocket"): value for name, value in named.items()}
        return exchange(self.connect(), head(fixed, lines=lines) + behind)

    def open(self, behind: bytes = b"") -> ClientEnd:
        """A raw client whose handshake has been taken."""
        answer = self.ask(behind=behind)
        assert answer.status == 101, answer
        return answer.end

    def close_sockets(self) -> None:
        for sock in self._sockets:
            sock.close()
        self._sockets.clear()


@contextmanager
def green(
    handler: Callable[[Any, Stream], object] | None = None,
    *,
    kind: str = "pywsgi",
    listener: Any = ("127.0.0.1", 0),
    **options: Any,
) -> Iterator[Green]:
    """A running server with a handler, by default one that answers with what came; it must have written no error.

    Args:
        handler: The `on_stream` handler.
        kind: One of `SERVERS`.
        listener: As the servers take it.
        options: Those of `WSGIApp`, without a heartbeat unless there is a `ping_interval`; `spawn`, `head_timeout` and
            `ssl_context` go to the server; `wrap` makes another application of the `WSGIApp`.
    """
    site = Green(listener, handler, SERVERS[kind], options)
    site.server.start()
    try:
        yield site
        assert site.errors.getvalue() == "", site.errors.getvalue()
    finally:
        site.close_sockets()
        site.server.stop(timeout=0)
        with gevent.Timeout(PATIENCE, AssertionError("a peer has outlived its server")):
            gevent.joinall([gevent.spawn(peer.close, drain=0.0) for peer in site.peers], raise_error=True)


def until(condition: Callable[[], Any], what: str = "it has not come true") -> Any:
    """Wait until something holds, and return it."""
    with gevent.Timeout(PATIENCE, AssertionError(what)):
        while not (value := condition()):
            gevent.idle()
        return value


def opening(number: int, payload: Any, *, end: bool = True) -> bytes:
    """The message that opens a stream."""
    return json.dumps({"type": "open", "stream": number, "payload": payload, "end": end}).encode()


def ask_stream(end: ClientEnd, number: int, payload: Any) -> None:
    """Open a stream."""
    end.send(TEXT, opening(number, payload))


def heard(end: ClientEnd) -> Any:
    """The next message as a dict, or the payload of a close frame as bytes."""
    message = end.frame()
    if message.opcode == CLOSE:
        return message.payload
    assert message.opcode == TEXT, message
    return json.loads(message.payload)


def close_payload(end: ClientEnd) -> bytes:
    """The payload of the next close frame; what comes before it is passed over."""
    while isinstance(last := heard(end), dict):
        pass
    assert isinstance(last, bytes)
    return last


def raw_close(end: RawEnd) -> RawFrame:
    """The next close frame; what comes before it is passed over."""
    while True:
        for message in end.frames(1):
            if message.opcode == CLOSE:
                return message


def seconds_to_eof(sock: Any) -> float:
    """Read to the end, and how long that took."""
    begun = time.monotonic()
    with contextlib.suppress(ConnectionResetError):
        while sock.recv(65_536):
            pass
    return time.monotonic() - begun


def resident_bytes(pid: int | str = "self") -> int:
    """How much memory a process has now (Linux)."""
    with open(f"/proc/{pid}/statm") as statm:
        return int(statm.read().split()[1]) * 4096
