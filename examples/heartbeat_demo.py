"""A server that answers three pings and then freezes with its socket open, and a client that notices.

Prints:

    server: ping 1 -> pong
    server: ping 2 -> pong
    server: ping 3 -> pong
    server: *freezes* (socket still open, nobody answering)
    client: declared dead after 0.6s: HeartbeatTimeoutError

The client pings every 0.2 seconds and lets two pings in a row go unanswered. The server is made by hand.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Iterator
from typing import Any

from gevent.event import Event
from gevent.server import StreamServer
from gevent.socket import socket

from muxws_green import ConnectionClosed
from muxws_green.messaging import MessagePeer, connect

frozen_at = 0.0


def upgrade(sock: socket) -> None:
    """Accept the WebSocket."""
    head = b""
    while b"\r\n\r\n" not in head:
        head += sock.recv(4096)
    fields = dict(line.split(b": ", 1) for line in head.strip().split(b"\r\n")[1:])
    key = {name.lower(): value for name, value in fields.items()}[b"sec-websocket-key"]
    accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    sock.sendall(
        b"HTTP/1.1 101 Switching Protocols\r\n"
        b"Upgrade: websocket\r\n"
        b"Connection: Upgrade\r\n"
        b"Sec-WebSocket-Protocol: muxws.v1.json\r\n"
        b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"
    )


def frames(sock: socket) -> Iterator[dict[str, Any]]:
    """The frames that the client sends, all of which are short and masked (RFC 6455 §5.2)."""
    received = b""
    while True:
        while len(received) < 2 or len(received) < 6 + (received[1] & 127):
            received += sock.recv(4096)
        mask, size = received[2:6], received[1] & 127
        masked, received = received[6 : 6 + size], received[6 + size :]
        yield json.loads(bytes(byte ^ mask[index % 4] for index, byte in enumerate(masked)))


def freezing(sock: socket, address: object) -> None:
    """Answer three pings, then do nothing more."""
    global frozen_at
    upgrade(sock)
    for frame in frames(sock):
        if frame["nonce"] == "4":
            break
        print(f"server: ping {frame['nonce']} -> pong")
        pong = json.dumps({"type": "pong", "nonce": frame["nonce"]}).encode()
        sock.sendall(bytes([0x81, len(pong)]) + pong)
    print("server: *freezes* (socket still open, nobody answering)")
    frozen_at = time.monotonic()
    Event().wait()


def main() -> None:
    """Run both, for as long as the client believes in the server."""
    server = StreamServer(("127.0.0.1", 0), freezing)
    server.start()

    def setup(peer: MessagePeer) -> None:
        @peer.on_close
        def closed(cause: ConnectionClosed | None) -> None:
            print(f"client: declared dead after {time.monotonic() - frozen_at:.1f}s: {type(cause).__name__}")

    url = f"ws://127.0.0.1:{server.server_port}/"
    client = connect(url, setup, heartbeat_interval=0.2, max_missed_pongs=2)
    client.wait_closed(10.0)
    server.stop()


if __name__ == "__main__":
    main()
