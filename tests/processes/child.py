"""Child processes of tests that talk in lines of JSON, and are ended by their id whatever becomes of the test."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gevent
import pytest
from gevent.os import make_nonblocking, nb_read

ROOT = Path(__file__).parents[2]

#: Bounds every wait, in seconds; never reached where the code is right.
PATIENCE = 30.0


class Child:
    """A running `python -m …`.

    Args:
        module: What to run.
        arguments: Its arguments.
    """

    def __init__(self, module: str, *arguments: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", module, *map(str, arguments)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        self._pipe = self._process.stdout
        make_nonblocking(self._pipe.fileno())
        self._buffered = b""

    def line(self) -> str:
        """The next line of its output; waits for it without holding up the hub."""
        with gevent.Timeout(PATIENCE, TimeoutError(f"nothing from process {self._process.pid}")):
            while b"\n" not in self._buffered:
                data = nb_read(self._pipe.fileno(), 65_536)
                if not data:
                    raise EOFError(f"process {self._process.pid} says no more; {self._buffered!r}")
                self._buffered += data
        line, _, self._buffered = self._buffered.partition(b"\n")
        return line.decode()

    def said(self, key: str) -> dict[str, Any]:
        """The next object that has this key; those before it are passed over."""
        while True:
            fields: dict[str, Any] = json.loads(self.line())
            if key in fields:
                return fields

    def freeze(self) -> None:
        """Stop it in its tracks, and return when it stands still. Its sockets stay open."""
        self._process.send_signal(signal.SIGSTOP)
        os.waitpid(self._process.pid, os.WUNTRACED)

    def thaw(self) -> None:
        """Let it go on."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it without any chance to say goodbye, and wait until it is gone."""
        self._process.kill()
        self._process.wait(PATIENCE)

    def close(self) -> None:
        self.kill()
        self._pipe.close()


class ServerChild:
    """A server that can be killed and started again on the same port.

    Args:
        kind: `ours`, `reference`, or a mode of `raw_server`.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.port = 0
        self.child = self._start()

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/"

    def _start(self) -> Child:
        if self.kind == "ours":
            child = Child("muxws_green.echo", "--port", self.port)
            found = re.search(r":(\d+)/", child.line())
            assert found is not None
            self.port = int(found[1])
            return child
        if self.kind == "reference":
            child = Child("tests.processes.reference_server", self.port)
        else:
            child = Child("tests.processes.raw_server", self.port, self.kind)
        self.port = child.said("port")["port"]
        return child

    def kill(self) -> None:
        self.child.close()

    def restart(self) -> None:
        """Start it again on its port."""
        self.child = self._start()


@pytest.fixture
def children() -> Iterator[list[Any]]:
    """Whatever a test puts into this is closed behind it."""
    children: list[Any] = []
    yield children
    for child in children:
        (child.child if isinstance(child, ServerChild) else child).close()
