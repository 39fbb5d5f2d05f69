"""The reference as a child process, and what it is told; every wait is bounded, and the child ends by its id."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import gevent
from gevent.event import AsyncResult
from gevent.fileobject import FileObjectPosix

from tests.shared import ROOT

#: Seconds after which a command, or the end of a process, counts as never to come.
PATIENCE = 20.0


class ReferenceFailed(Exception):
    """What a command of the reference's raised: `kind` is the name of the class."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


class Child:
    """A running process that speaks in lines. Made by `running`."""

    def __init__(self, process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
        self.process = process
        self._errors = errors
        # The standard library's Popen, since gevent's would reap the children of every other test.
        assert process.stdout is not None
        self._lines = FileObjectPosix(process.stdout.fileno(), "rb", close=False)

    def line(self) -> bytes:
        """The next line of its output; empty at the end."""
        with gevent.Timeout(PATIENCE, AssertionError(f"no line came\n{self.errors()}")):
            line: bytes = self._lines.readline()
            return line

    def errors(self) -> str:
        """What it has written to its standard error."""
        self._errors.seek(0)
        return self._errors.read().decode()

    def wait(self) -> int:
        """Its exit code, once it has ended."""
        code: int = gevent.get_hub().threadpool.apply(self.process.wait, (PATIENCE,))
        return code


@contextmanager
def running(module: str, *arguments: str) -> Iterator[Child]:
    """Run a module; it is ended when the block is left, and must not have complained."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        child = Child(process, errors)
        try:
            yield child
            assert process.stdin is not None
            process.stdin.close()
            child.wait()
            assert "Traceback" not in child.errors(), child.errors()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait(PATIENCE)
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()


class Reference:
    """A reference peer in its own process."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._number = 0
        self._waiting: dict[int, AsyncResult] = {}
        self._listener: gevent.Greenlet[..., None] | None = None

    def start(self, command: str, **arguments: Any) -> AsyncResult:
        """Give a command; `finish` waits for what comes of it."""
        if self._listener is None:
            self._listener = gevent.spawn(self._listen)
        self._number += 1
        result = self._waiting[self._number] = AsyncResult()
        stdin = self._child.process.stdin
        assert stdin is not None
        stdin.write(json.dumps({"id": self._number, "do": command, **arguments}).encode() + b"\n")
        stdin.flush()
        return result

    def finish(self, started: AsyncResult) -> Any:
        """What a command has returned; raises `ReferenceFailed` where it raised."""
        with gevent.Timeout(PATIENCE, AssertionError(f"the reference does not answer\n{self._child.errors()}")):
            line: Any = started.get()
        if "error" in line:
            raise ReferenceFailed(line["error"]["type"], line["error"]["text"])
        return line["value"]

    def do(self, command: str, **arguments: Any) -> Any:
        """Give a command and wait for what comes of it."""
        return self.finish(self.start(command, **arguments))

    def kill(self) -> None:
        """Let it vanish without a word."""
        self._child.process.kill()

    def _listen(self) -> None:
        while line := self._child._lines.readline():
            answer = json.loads(line)
            self._waiting.pop(answer["id"]).set(answer)

    def close(self) -> None:
        if self._listener is not None:
            self._listener.kill()


@contextmanager
def reference_server(codec: str) -> Iterator[tuple[Reference, int]]:
    """A reference acceptor and the port that it listens on."""
    with running("tests.interop.reference_server", codec) as child:
        port = json.loads(child.line())["port"]
        reference = Reference(child)
        try:
            yield reference, port
        finally:
            reference.close()


@contextmanager
def reference_client(codec: str) -> Iterator[Reference]:
    """A reference dialer that has not dialled yet."""
    with running("tests.interop.reference_client", codec) as child:
        reference = Reference(child)
        try:
            yield reference
        finally:
            reference.close()
