"""C21: after the hub was blocked, what already lies in the socket is read before the remote is judged.

In real time: the server is a thread with plain sockets, which goes on while the hub stands still.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import socket
import threading
import time
from collections.abc import Iterator

import gevent
import pytest
from gevent.event import Event

from muxws_green import CloseReason, CountingHeartbeat, IdleHeartbeat, connect
from tests.transports.raw import TEXT, frame, split_frames

pytestmark = [pytest.mark.case("C21"), pytest.mark.slow]

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

#: Seconds without an answer after which the policies below call a remote dead.
DEADLY = 0.2

POLICIES = [IdleHeartbeat(interval=0.2, timeout=DEADLY), CountingHeartbeat(interval=0.1, max_missed=1)]


class AnsweringThread:
    """Accepts one connection and answers each ping at once, whatever the hub is doing."""

    def __init__(self) -> None:
        self.answered = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(10.0)
        self.url = f"ws://127.0.0.1:{self._listener.getsockname()[1]}/"
        self._thread = threading.Thread(target=self._run, name="answering", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        sock, _ = self._listener.accept()
        sock.settimeout(10.0)
        with sock, contextlib.suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head:
                head += sock.recv(4_096)
            key = head.split(b"Sec-WebSocket-Key: ")[1].split(b"\r\n")[0]
            accept = base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest())
            sock.sendall(
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Protocol: muxws.v1.json\r\nSec-WebSocket-Accept: " + accept + b"\r\n\r\n"
            )
            buffered = b""
            while data := sock.recv(65_536):
                frames, buffered = split_frames(buffered + data)
                for raw in frames:
                    message = json.loads(raw.payload) if raw.opcode == TEXT else {"type": None}
                    if message["type"] == "ping":
                        answer = json.dumps({"type": "pong", "nonce": message["nonce"]}).encode()
                        sock.sendall(frame(TEXT, answer, masked=False))
                        self.answered += 1

    def close(self) -> None:
        self._listener.close()
        self._thread.join(10.0)


@pytest.fixture
def server() -> Iterator[AnsweringThread]:
    server = AnsweringThread()
    yield server
    server.close()


@pytest.mark.parametrize("policy", POLICIES, ids=["idle", "counting"])
def test_a_hub_blocked_right_after_a_ping_left(server: AnsweringThread, policy) -> None:
    told: list[CloseReason] = []
    pinged = Event()
    peer = connect(server.url, heartbeat=policy, on_close=told.append)
    peer.on_frame(lambda direction, shown, size: pinged.set() if shown.type == "ping" else None)
    for _ in range(2):
        answered = server.answered
        pinged.clear()
        assert pinged.wait(10.0)
        # The writer has shown it and is about to write it.
        gevent.sleep(0)
        gevent.sleep(0)
        until = time.monotonic() + 3 * DEADLY
        # The hub stands still for so long, and in any case until the answer lies in the socket.
        while time.monotonic() < until or (server.answered == answered and time.monotonic() < until + 5.0):
            pass
        for _ in range(20):
            gevent.sleep(0.005)
        assert told == []
    assert peer.is_open
    peer.close()
