"""A server that says, frame by frame, what a test wrote down, and notes what it was told and when.

It speaks muxws.v1 with the json codec over a real socket, without any code of ours. Each connection is upgraded and
then run by a script, a plain function of its `Wire`; a script that returns leaves the connection open, and the client's
going away ends it in silence.
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections import deque
from collections.abc import Callable, Iterator
from itertools import pairwise
from types import TracebackType
from typing import Any

import gevent
from gevent import socket as gevent_socket
from gevent.event import Event
from gevent.pool import Pool
from gevent.server import StreamServer
from gevent.socket import socket as GeventSocket  # noqa: N812

from muxws_green.interfaces import IClock
from muxws_green.testing import settle
from tests.transports.raw import BINARY, CLOSE, PATIENCE, TEXT, RawEnd, close_frame, frame, split_frames
from tests.transports.scripted import Connection

Script = Callable[["Wire"], None]

_TCP_QUICKACK: int | None = getattr(socket, "TCP_QUICKACK", None)


def outcome(function: Callable[..., Any], *args: Any, **kwargs: Any) -> gevent.Greenlet:
    """Call it in a greenlet of its own, whose value is what it returned or raised."""

    def run() -> Any:
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            return error

    return gevent.spawn(run)


class Gone(Exception):
    """The client has closed, or the socket is at its end."""


class Wire:
    """One connection from the server's side.

    Attributes:
        opened_at: When it was accepted, by the test's clock.
        log: What came, as (time, frame), in order.
        texts: The same frames as they were on the wire.
        close_code: The code of the client's close frame; None where there was none.
        over: Set when the client has gone.
    """

    def __init__(self, connection: Connection, clock: IClock) -> None:
        self.connection = connection
        self.sock = connection.sock
        self.opened_at = clock.now()
        self.log: list[tuple[float, dict[str, Any]]] = []
        self.texts: list[bytes] = []
        self.close_code: int | None = None
        self.gone_at: float | None = None
        self.over = Event()
        #: How many bytes `read` takes a second; None: as many as there are.
        self.throttle: float | None = None
        self._clock = clock
        self._end: RawEnd = connection.raw
        self._ready: deque[Any] = deque()
        # An idle connection is no failure here: fake time may pass on it for as long as the test likes.
        self.sock.settimeout(None)
        # A second small write would wait 40 ms for an acknowledgement, and no fake clock can see that.
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._acknowledge_at_once()

    def upgrade(self, behind: bytes = b"") -> None:
        self.connection.upgrade(behind=behind)

    def read(self) -> dict[str, Any]:
        """The next frame; `Gone` where there will be none."""
        while not self._ready:
            try:
                data = self.sock.recv(65_536 if self.throttle is None else 16_384)
                self._acknowledge_at_once()
            except OSError:
                data = b""
            if not data:
                self._gone()
            if self.throttle is not None:
                self._clock.sleep(len(data) / self.throttle)
            frames, self._end.buffered = split_frames(self._end.buffered + data)
            self._ready.extend(frames)
        raw = self._ready.popleft()
        if raw.opcode == CLOSE:
            self.close_code = raw.close_code
            self._gone()
        assert raw.opcode in (TEXT, BINARY), f"a WebSocket frame with opcode {raw.opcode}"
        frame = json.loads(raw.payload)
        self.log.append((self._clock.now(), frame))
        self.texts.append(raw.payload)
        return frame

    def _acknowledge_at_once(self) -> None:
        # The kernel would take 40 ms of real time over it, which is any amount of fake time, and the other end's
        # heartbeat looks at what is acknowledged. It forgets this option again and again.
        if _TCP_QUICKACK is not None:
            self.sock.setsockopt(socket.IPPROTO_TCP, _TCP_QUICKACK, 1)

    def _gone(self) -> None:
        self.gone_at = self._clock.now()
        self.over.set()
        raise Gone

    def write(self, kind: str, **fields: Any) -> None:
        try:
            self._end.send(TEXT, json.dumps({"type": kind, **fields}).encode())
        except OSError:
            self._gone()

    def send_texts(self, *texts: str) -> None:
        """Messages as they are, all in one packet."""
        self.sock.sendall(b"".join(frame(TEXT, text.encode(), masked=self._end.client) for text in texts))

    def close(self, code: int = 1000, reason: str = "") -> None:
        """Send a close frame and the end of the stream."""
        self.sock.sendall(close_frame(code, reason, masked=self._end.client))
        self.drop()

    def drop(self) -> None:
        """End the stream without a close frame."""
        self.sock.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Vanish with a RST."""
        self._end.reset()
        self.over.set()

    # What most scripts are made of

    def greet(self) -> dict[str, Any]:
        """Read the hello and acknowledge it."""
        hello = self.read()
        self.write("data", stream=hello["stream"], end=True)
        return hello

    def answer(self, frame: dict[str, Any]) -> None:
        """What a polite server says to a frame: pongs to pings, the payload back to a call."""
        if frame["type"] == "ping":
            self.write("pong", nonce=frame["nonce"])
        elif frame["type"] == "open" and frame.get("end"):
            self.write("data", stream=frame["stream"], payload=frame.get("payload"), end=True)

    def serve(self) -> None:
        """Be polite until the client goes."""
        while True:
            self.answer(self.read())

    def listen(self) -> None:
        """Read everything and answer nothing: a frozen program behind a living kernel."""
        while True:
            self.read()

    # What came

    def times(self, kind: str) -> list[float]:
        """When frames of this type came."""
        return [when for when, frame in self.log if frame["type"] == kind]

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The frames of this type."""
        return [frame for _, frame in self.log if frame["type"] == kind]


def polite(wire: Wire) -> None:
    """Acknowledge the hello, then answer calls and pings."""
    wire.greet()
    wire.serve()


def mute(wire: Wire) -> None:
    """Acknowledge the hello, then answer nothing."""
    wire.greet()
    wire.listen()


def never_acknowledges(wire: Wire) -> None:
    """Take the hello and everything else, and say nothing."""
    wire.listen()


def resets_hello(wire: Wire) -> None:
    """Reject whoever says hello."""
    hello = wire.read()
    wire.write("reset", stream=hello["stream"], code=4, reason="unknown client")
    wire.serve()


def drops_hello(wire: Wire) -> None:
    """Vanish as soon as the hello has come."""
    wire.read()
    wire.reset()


class RawClient(Wire):
    """A dialer of that kind: it has made the upgrade and listens, in a greenlet of its own, until told otherwise.

    Args:
        url: A `RawServer`'s or any other's, without TLS.
        clock: Stamps what happens.
        protocol: The subprotocol that it offers.
    """

    def __init__(self, url: str, clock: IClock, protocol: str = "muxws.v1.json") -> None:
        host, _, port = url.removeprefix("ws://").rstrip("/").partition(":")
        sock = gevent_socket.create_connection((host, int(port)), timeout=PATIENCE)
        super().__init__(Connection(sock), clock)
        self._end.client = True
        head = [
            "GET / HTTP/1.1",
            f"Host: {host}:{port}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Protocol: {protocol}",
        ]
        sock.sendall("\r\n".join([*head, "", ""]).encode())
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += sock.recv(1)
        assert answer.startswith(b"HTTP/1.1 101 "), answer
        self._listening = gevent.spawn(self._listen)

    def _listen(self) -> None:
        try:
            self.listen()
        except Gone:
            self.sock.close()

    def stop_reading(self) -> None:
        """Let what comes pile up in the kernel, as a program that is stuck does."""
        self._listening.kill()

    def stop(self) -> None:
        """Vanish, with the end of the stream."""
        self._listening.kill()
        self.sock.close()


class _KeepingServer(StreamServer):
    """Leaves sockets open when a script returns; gevent's closes them."""

    def do_close(self, *arguments: object) -> None:
        pass


class RawServer:
    """Runs the next of `scripts` on each connection, the last one again and again.

    Args:
        clock: Stamps what happens.
        upgrade: Answer requests with a 101 before the script; False leaves that to the script.
        receive_buffer_bytes: What the kernel takes for a script that does not read; None: whatever it likes.
        port: Where to listen; 0 lets the kernel choose.
    """

    def __init__(
        self,
        clock: IClock,
        *scripts: Script,
        upgrade: bool = True,
        receive_buffer_bytes: int | None = None,
        port: int = 0,
    ) -> None:
        self.scripts = list(scripts)
        self.wires: list[Wire] = []
        self._clock = clock
        self._upgrade = upgrade
        self._receive_buffer_bytes = receive_buffer_bytes
        self._port = port
        self._server: _KeepingServer | None = None
        self.open()

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self._port}/"

    @property
    def port(self) -> int:
        return self._port

    @property
    def dials(self) -> list[float]:
        """When connections were made."""
        return [wire.opened_at for wire in self.wires]

    @property
    def gaps(self) -> list[float]:
        """The time between one dial and the next."""
        dials = self.dials
        return [after - before for before, after in pairwise(dials)]

    @property
    def last(self) -> Wire:
        return self.wires[-1]

    def open(self) -> None:
        """Listen, on the same port as before."""
        listener = gevent_socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if self._receive_buffer_bytes is not None:
            # Inherited by what is accepted; later would be too late for the window that is announced.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer_bytes)
        listener.bind(("127.0.0.1", self._port))
        listener.listen(256)
        self._port = listener.getsockname()[1]
        self._listener = listener
        self._server = _KeepingServer(listener, self._handle, spawn=Pool())
        self._server.start()

    def refuse(self) -> None:
        """Stop listening; connections that are there stay."""
        assert self._server is not None
        self._server.stop_accepting()
        self._listener.close()

    @contextlib.contextmanager
    def full(self) -> Iterator[Callable[[], int]]:
        """Inside it nothing is accepted and the queue of the listener is full: the kernel lets a dial wait.

        What it gives ends that, and tells how many others had got into the queue, or do so now.
        """
        assert self._server is not None
        self._server.stop_accepting()
        self._listener.listen(0)
        fillers: list[GeventSocket] = []
        try:
            while True:
                fillers.append(gevent_socket.socket())
                fillers[-1].settimeout(0.0)
                with contextlib.suppress(BlockingIOError):
                    fillers[-1].connect(("127.0.0.1", self._port))
                settle()
                try:
                    fillers[-1].getpeername()
                except OSError:
                    break
            own = {filler.getsockname() for filler in fillers}
            yield lambda: self._strangers(own)
        finally:
            for filler in fillers:
                filler.close()

    def _strangers(self, own: set[Any]) -> int:
        listener = self._listener
        listener.settimeout(0.0)
        strangers = 0
        while True:
            settle()
            try:
                sock, address = listener.accept()
            except BlockingIOError:
                return strangers
            strangers += address not in own
            sock.close()

    def _handle(self, sock: GeventSocket, address: object) -> None:
        wire = Wire(Connection(sock), self._clock)
        self.wires.append(wire)
        script = self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]
        try:
            if self._upgrade:
                wire.upgrade()
            script(wire)
        except (Gone, OSError):
            wire.over.set()
            wire.sock.close()

    def stop(self) -> None:
        """Stop listening, end every script and close every connection."""
        if self._server is not None:
            self._server.stop(timeout=0)
            self._server = None
        for wire in self.wires:
            wire.sock.close()

    def __enter__(self) -> RawServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
