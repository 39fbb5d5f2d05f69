"""`python -m muxws_green.echo` in a process of its own, until it is told to stop; a reference dialer talks to it."""

from __future__ import annotations

import contextlib
import re
import signal

import pytest
from gevent import socket

from tests.hosts.client import exchange, head
from tests.interop.matter import blob, digest
from tests.interop.process import PATIENCE, reference_client, running

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.watchdog(30)]


def first_answer(url: str) -> int:
    """The status that a request for a WebSocket without any subprotocol gets: gevent-websocket grants it."""
    with contextlib.closing(socket.create_connection(("127.0.0.1", int(url.split(":")[2][:-1])), PATIENCE)) as sock:
        return exchange(sock, head({"Sec-WebSocket-Protocol": None}, path="/")).status


@pytest.mark.parametrize(
    "codec_name,number,via",
    [
        ("json", signal.SIGTERM, "server"),
        ("msgpack", signal.SIGINT, "server"),
        ("json", signal.SIGINT, "pywsgi"),
        ("msgpack", signal.SIGTERM, "pywsgi"),
        ("json", signal.SIGTERM, "gevent-websocket"),
        ("msgpack", signal.SIGINT, "gevent-websocket"),
    ],
)
def test_the_echo_server(codec_name: str, number: signal.Signals, via: str) -> None:
    arguments = ["--port", "0", "--codec", codec_name, "--max-concurrent-streams", "300"]
    if via != "server":
        arguments += ["--via", via]
    with running("muxws_green.echo", *arguments) as server, reference_client(codec_name) as reference:
        (url,) = re.findall(r"ws://127\.0\.0\.1:\d+/", server.line().decode())
        assert first_answer(url) == (101 if via == "gevent-websocket" else 400)
        reference.do("dial", url=url)
        assert reference.do("many", count=200) == [{"do": "echo", "n": n} for n in range(200)]
        big = reference.do("echo_blob", size=1_000_000)
        assert big == digest(blob(1_000_000, binary=codec_name == "msgpack"))
        stream = reference.do("echo_begin", items=["a", "b"])
        assert stream["got"] == ["a", "b"]
        server.process.send_signal(number)
        # The stream that is live may finish; then the server closes as one that goes away.
        assert reference.do("echo_end", item="c") == ["c"]
        assert reference.do("wait_closed")["code"] == 1001
        assert server.wait() == 0
        assert server.line() == b""
