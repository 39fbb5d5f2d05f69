"""Room for descriptors, seen in the size of the kernel's table; each case in a process of its own."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys

import pytest

from muxws_green.transports import descriptors
from tests.shared import ROOT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has such a table")

PRELUDE = """
import os, resource
from muxws_green import Server, WSGIApp
from muxws_green.transports import descriptors

def size():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("FDSize:"))

def echo(payload, stream):
    stream.reply(payload)

assert size() < 1_024
before = os.listdir("/proc/self/fd")
"""

SCRIPTS = {
    "an application": "WSGIApp(echo); assert size() == descriptors.ROOM",
    "a server": "Server(('127.0.0.1', 0), lambda environ, start_response: []); assert size() == descriptors.ROOM",
    "nothing stays open": "WSGIApp(echo); assert os.listdir('/proc/self/fd') == before",
    "a low limit": "resource.setrlimit(resource.RLIMIT_NOFILE, (1_024,) * 2); WSGIApp(echo); assert size() == 1_024",
    "none left": """
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
WSGIApp(echo)
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
assert size() < descriptors.ROOM
""",
    "many sockets": """
from gevent import socket
from muxws_green.transports.socket import SocketTransport
kept = []
def connect():
    SocketTransport(socket.socketpair()[0], client=True, max_message_bytes=1_000).abort()
while len(kept) < descriptors.MANY - 16:
    connect()
    kept += socket.socketpair()
assert size() < descriptors.ROOM
kept += [one for _ in range(8) for one in socket.socketpair()]
connect()
assert size() == descriptors.ROOM
""",
    "a child": """
WSGIApp(echo)
if not (child := os.fork()):
    small = size()
    WSGIApp(echo)
    os._exit(0 if small < size() == descriptors.ROOM else 1)
assert os.waitpid(child, 0)[1] == 0
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_room_is_made(script: str) -> None:
    command = [sys.executable, "-c", PRELUDE + SCRIPTS[script]]
    result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert (result.returncode, result.stderr) == (0, "")


def test_it_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    duplicate = fcntl.fcntl

    def note(fd: int, command: int, least: int) -> int:
        asked.append(least)
        return duplicate(fd, command, least)

    monkeypatch.setattr(fcntl, "fcntl", note)
    monkeypatch.setattr(descriptors, "_made", True)
    descriptors._forked()
    descriptors.make_room()
    descriptors.make_room()
    assert len(asked) == 1


def test_where_no_descriptor_is_left_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> int:
        raise OSError(errno.EMFILE, "too many")

    monkeypatch.setattr(descriptors, "_made", False)
    monkeypatch.setattr(os, "open", fail)
    descriptors.make_room()
    assert descriptors._made
