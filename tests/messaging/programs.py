"""The scheduler and its agents as real processes; what they print is waited for, with a bound, and all are ended."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

import gevent
from gevent.event import Event
from gevent.fileobject import FileObjectPosix

from tests.layers import package_dir

#: Seconds after which what a process is to print counts as never to come.
PATIENCE = 40.0

#: Does a job once a file of its name is there, or has waited long enough; $1 is the agent's name.
GATED = """
text=$(cat); echo $$ >"pid-$1-$text"; turns=0
until [ -e "gate-$1-$text" ] || [ $turns -ge 5000 ]; do sleep 0.02; turns=$((turns + 1)); done
echo "$1 did $text"
"""


class Program:
    """A running `python -m module`.

    Attributes:
        lines: What it has printed so far, errors included.
    """

    def __init__(self, directory: Path, module: str, *arguments: str) -> None:
        self.lines: list[str] = []
        self._grown = Event()
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=directory,
            env={**os.environ, "PYTHONPATH": str(package_dir().parent)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert self._process.stdout is not None
        # The standard library's Popen, since gevent's would reap the children of every other test.
        self._output = FileObjectPosix(self._process.stdout.fileno(), "rb", close=False)
        self._reader = gevent.spawn(self._read)

    def _read(self) -> None:
        while line := self._output.readline():
            self.lines.append(line.decode(errors="replace").rstrip("\n"))
            self._wake()
        self._wake()

    def _wake(self) -> None:
        grown, self._grown = self._grown, Event()
        grown.set()

    def wait_for(self, pattern: str, after: int = 0) -> str:
        """The first line from number `after` on that the pattern is found in."""
        failure = AssertionError(f"nothing like {pattern!r} among:\n" + "\n".join(self.lines))
        with gevent.Timeout(PATIENCE, failure):
            while True:
                grown = self._grown
                for line in self.lines[after:]:
                    if re.search(pattern, line):
                        return line
                if self._reader.ready():
                    raise AssertionError(f"it ended without {pattern!r}:\n" + "\n".join(self.lines))
                grown.wait()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        """Its exit code, once it has ended and everything that it printed is in `lines`."""
        code: int = gevent.get_hub().threadpool.apply(self._process.wait, (PATIENCE,))
        self._reader.join(PATIENCE)
        return code

    def close(self) -> None:
        """End it, whatever it does."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(PATIENCE)
        self._reader.kill()
        assert self._process.stdout is not None
        self._process.stdout.close()


class Stage:
    """Programs that run in one directory; as a context manager it ends them all on leaving."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._stack = ExitStack()

    def run(self, module: str, *arguments: str) -> Program:
        program = Program(self.directory, module, *arguments)
        self._stack.callback(program.close)
        return program

    def scheduler(self, *jobs: str, url: str = "ws://127.0.0.1:0/", options: Sequence[str] = ()) -> tuple[Program, str]:
        """A scheduler that listens, at `url` if it is told, and its URL."""
        port = url.rstrip("/").rpartition(":")[2]
        program = self.run("muxws_green.messaging.scheduler", "--port", port, "--state", "jobs.json", *options, *jobs)
        return program, program.wait_for("listening on").split()[-1]

    def agent(self, name: str, url: str, options: Sequence[str] = ()) -> Program:
        """An agent that is connected and does a job once its gate is open."""
        command = ["--name", name, "--max-backoff", "1", *options, "--", "sh", "-c", GATED, "sh", name]
        program = self.run("muxws_green.messaging.agent", url, *command)
        program.wait_for("connected")
        return program

    def open_gate(self, agent: str, job: str) -> None:
        """Let an agent finish a job."""
        (self.directory / f"gate-{agent}-{job}").touch()

    def is_at_work(self, agent: str, job: str) -> bool:
        """Whether the command of a job that was begun is running."""
        written = self.directory / f"pid-{agent}-{job}"
        process = written.read_text().strip() if written.exists() else ""
        if not process:
            return False
        try:
            status = Path(f"/proc/{process}/stat").read_text()
        except FileNotFoundError:
            return False
        # One that is dead may wait there to be reaped.
        return status.rpartition(")")[2].split()[0] != "Z"

    def __enter__(self) -> Stage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
