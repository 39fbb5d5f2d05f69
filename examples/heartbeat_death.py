"""A server that reads everything and answers nothing, and a client that finds it dead.

Prints:

    closed after 0.3s, heartbeat death: True

Three pings, at 0, 0.1 and 0.2 seconds, go unanswered; at 0.3 seconds that is more than `max_missed_pongs=2`, so the
client hangs up. The server is made by hand: any server of this library would answer.
"""

from __future__ import annotations

import base64
import hashlib
import time

from gevent.server import StreamServer
from gevent.socket import socket

from muxws_green import ConnectionClosed, HeartbeatTimeoutError
from muxws_green.messaging import MessagePeer, connect


def silent(sock: socket, address: object) -> None:
    """Accept the WebSocket, read every ping, answer none."""
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
    while sock.recv(4096):
        pass


def main() -> None:
    """Run both, for as long as the client believes in the server."""
    server = StreamServer(("127.0.0.1", 0), silent)
    server.start()
    began = time.monotonic()

    def setup(peer: MessagePeer) -> None:
        @peer.on_close
        def closed(cause: ConnectionClosed | None) -> None:
            elapsed = time.monotonic() - began
            dead = isinstance(cause, HeartbeatTimeoutError)
            print(f"closed after {elapsed:.1f}s, heartbeat death: {dead}")

    url = f"ws://127.0.0.1:{server.server_port}/"
    client = connect(url, setup, heartbeat_interval=0.1, max_missed_pongs=2)
    client.wait_closed(5.0)
    server.stop()


if __name__ == "__main__":
    main()
