"""The servers of `servers/` as a user starts them: by their command, in a process of their own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from gevent import socket

from tests.interop.process import Child
from tests.shared import ROOT
from tests.transports.raw import PATIENCE

SERVERS = ROOT / "servers"


class Page(NamedTuple):
    """What an ordinary request was answered with."""

    status: int
    head: str
    body: bytes

    def cookie(self, name: str) -> str:
        """A cookie that it sets, as the next request is to send it."""
        return re.findall(rf"(?i)set-cookie:\s*({name}=[^;]+)", self.head)[0]


class ServerProcess:
    """A running server, and the URL that it has printed."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self.process = child.process
        line = child.line().decode()
        found = re.search(r"listening on (\S+)", line)
        assert found is not None, f"{line!r}\n{child.errors()}"
        self.url = found[1]

    @property
    def port(self) -> int:
        """Of a server that listens on one."""
        return int(re.findall(r":(\d+)/", self.url)[0])

    def http(self, request: str, body: str = "", **headers: str) -> Page:
        """An ordinary request, `"GET /path"`, on a connection of its own."""
        fixed = {"Host": f"127.0.0.1:{self.port}", "Connection": "close", **headers}
        if body:
            fixed |= {"Content-Type": "application/x-www-form-urlencoded", "Content-Length": str(len(body))}
        lines = [f"{request} HTTP/1.1", *(f"{name}: {value}" for name, value in fixed.items()), "", body]
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        try:
            sock.sendall("\r\n".join(lines).encode())
            received = b"".join(iter(lambda: sock.recv(65_536), b""))
        finally:
            sock.close()
        head, _, rest = received.partition(b"\r\n\r\n")
        if b"transfer-encoding: chunked" in head.lower():
            pieces = rest.split(b"\r\n")
            rest = b"".join(pieces[1::2])
        return Page(int(head.split()[1]), head.decode(), rest)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.process.send_signal(signal.SIGTERM)

    def wait(self) -> float:
        """Wait until it is gone; in how many seconds it was."""
        begun = time.monotonic()
        assert self._child.wait() == 0, self._child.errors()
        return time.monotonic() - begun


@contextmanager
def running_server(*command: str, **environment: str) -> Iterator[ServerProcess]:
    """A server, started by a command without the interpreter; it is stopped in the end and must have been silent."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        child = Child(process, errors)
        try:
            server = ServerProcess(child)
            yield server
            if process.poll() is None:
                server.terminate()
            server.wait()
            assert child.errors() == "", child.errors()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait(PATIENCE)
            assert process.stdout is not None
            process.stdout.close()
