"""Clients of a host under test, made of raw sockets."""

from __future__ import annotations

from base64 import b64encode
from collections import deque
from typing import Any, NamedTuple

from tests.transports.raw import RawEnd, RawFrame, client_context

KEY = b64encode(b"0123456789abcdef").decode()

#: What a good handshake consists of; a test changes one line at a time.
HANDSHAKE = {
    "Host": "localhost",
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": KEY,
    "Sec-WebSocket-Protocol": "muxws.v1.json",
}


class ClientEnd(RawEnd):
    """A client's end that gives its frames one at a time."""

    def __init__(self, sock: Any, buffered: bytes) -> None:
        super().__init__(sock, client=True)
        self.buffered = buffered
        self._frames: deque[RawFrame] = deque()

    def frame(self) -> RawFrame:
        """The next one."""
        if not self._frames:
            self._frames.extend(self.frames(1))
        return self._frames.popleft()

    def rest(self) -> bytes:
        assert not self._frames
        return super().rest()


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    end: ClientEnd

    def body(self) -> bytes:
        """Of an answer that is no 101, and with Content-Length."""
        size = int(self.headers.get("content-length", 0))
        while len(self.end.buffered) < size:
            data = self.end.sock.recv(65_536)
            assert data, "end of file within the body"
            self.end.buffered += data
        body, self.end.buffered = self.end.buffered[:size], self.end.buffered[size:]
        return body


def head(
    changes: dict[str, str | None] | None = None,
    *,
    method: str = "GET",
    path: str = "/ws",
    version: str = "HTTP/1.1",
    lines: list[str] | None = None,
) -> bytes:
    """A handshake's head. In `changes` None leaves a header out; `lines` are added as they are."""
    headers = {**HANDSHAKE, **(changes or {})}
    text = [f"{method} {path} {version}", *(f"{name}: {value}" for name, value in headers.items() if value is not None)]
    return "\r\n".join([*text, *(lines or []), "", ""]).encode("latin-1")


def exchange(sock: Any, data: bytes) -> Answer:
    """Send a request and read the head of its answer."""
    sock.sendall(data)
    received = b""
    while b"\r\n\r\n" not in received:
        more = sock.recv(65_536)
        assert more, f"end of file after {received!r}"
        received += more
    text, _, rest = received.partition(b"\r\n\r\n")
    status_line, *lines = text.decode("latin-1").split("\r\n")
    end = ClientEnd(sock, rest)
    headers = dict(line.split(": ", 1) for line in lines)
    return Answer(int(status_line.split()[1]), {name.lower(): value for name, value in headers.items()}, end)


def secure(sock: Any) -> Any:
    """TLS around a connection, trusting the tests' authority."""
    return client_context().wrap_socket(sock, server_hostname="localhost")
