"""The command line in a process of its own, behind pipes or at a terminal; every wait is bounded.

Where servers run in the process of the test, the hub must go on meanwhile, so nothing here blocks it.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self

import gevent
from gevent.socket import wait_read

from tests.layers import package_dir

#: Never reached where the code is right, in seconds.
PATIENCE = 30.0

#: Makes the terminal at its standard input the controlling one, so that Ctrl-C is a signal, and becomes the program.
AT_A_TERMINAL = """
import os, sys
os.close(os.open(os.ttyname(0), os.O_RDWR))
os.execv(sys.executable, [sys.executable, "-m", "muxws_green", *sys.argv[1:]])
"""

#: Sequences that move the cursor or ask the terminal something; what is left is what is written.
_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;?]*[@-~]|\][^\x07]*\x07|[=>()][0-9A-B]?)")


def environment(**extra: str) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if name not in ("MUXWS_CODEC", "COLUMNS", "LINES")},
        "PYTHONPATH": str(package_dir().parent),
        "TERM": "xterm",
        # Nobody here tells the editor where the cursor is.
        "PROMPT_TOOLKIT_NO_CPR": "1",
        **extra,
    }


class Ran(NamedTuple):
    """A program that has ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def events(self) -> list[dict[str, Any]]:
        """Its output under `--json`."""
        return [json.loads(line) for line in self.lines]

    @property
    def failure(self) -> dict[str, Any]:
        """What it has said of its failure under `--json`."""
        (line,) = self.err.splitlines()
        fields: dict[str, Any] = json.loads(line)
        assert fields["event"] == "error"
        return fields


def cli(
    *arguments: str,
    stdin: str | None = None,
    stdout: int = subprocess.PIPE,
    stderr: int = subprocess.PIPE,
    env: Mapping[str, str] | None = None,
) -> Ran:
    """Run it to its end; what does not go into a pipe is not in the result."""
    command = [sys.executable, "-m", "muxws_green", *arguments]
    options: dict[str, Any] = {"stdout": stdout, "stderr": stderr, "timeout": PATIENCE}
    options["env"] = environment(**(env or {}))
    options |= {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin.encode()}
    done: Any = gevent.get_hub().threadpool.apply(subprocess.run, (command,), options)
    return Ran(done.returncode, (done.stdout or b"").decode(), (done.stderr or b"").decode())


class Program:
    """A program that runs. As a context manager it is ended on leaving: by Ctrl-C, which it has to obey, or by force
    where the test has failed.

    Args:
        arguments: Those of `muxws-green`.
        terminal: Whether it sits at a terminal with all three of its descriptors; otherwise it has pipes.
        size: Columns and rows of the terminal.
        env: Further variables of its environment.
        shell: A command of the shell to run in its place, in which `$MUXWS` is the program.
        through_socket: Whether what it prints goes through a socket in place of a pipe.
    """

    def __init__(
        self,
        *arguments: str,
        terminal: bool = False,
        size: tuple[int, int] = (100, 30),
        env: Mapping[str, str] | None = None,
        shell: str | None = None,
        through_socket: bool = False,
    ) -> None:
        variables = environment(**(env or {}))
        command = [sys.executable, "-m", "muxws_green", *arguments]
        if shell is not None:
            variables["MUXWS"] = f"{sys.executable} -m muxws_green"
            command = ["bash", "-c", shell]
        self.out = ""
        self._read_up_to = 0
        #: What its output is read from, besides a terminal.
        self._reader: Any = None
        if terminal:
            self._end, slave = pty.openpty()
            self.resize(*size)
            self.process = subprocess.Popen(
                [sys.executable, "-c", AT_A_TERMINAL, *arguments],
                stdin=slave,
                stdout=slave,
                stderr=slave,
                env=variables,
                start_new_session=True,
            )
            os.close(slave)
            self._stdin = self._end
        else:
            output: Any = subprocess.PIPE
            if through_socket:
                self._reader, output = socket.socketpair()
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=variables,
                start_new_session=True,
            )
            if through_socket:
                output.close()
            else:
                self._reader = self.process.stdout
            assert self.process.stdin is not None
            self._end = self._reader.fileno()
            self._stdin = self.process.stdin.fileno()
        self._terminal = terminal

    def enter(self, text: str) -> None:
        """Type at the terminal, or write into the pipe."""
        os.write(self._stdin, text.encode())

    def unread(self) -> int:
        """How many bytes of what was written into the pipe it has not read yet."""
        count = bytearray(4)
        fcntl.ioctl(self._stdin, termios.FIONREAD, count)
        return int.from_bytes(count, sys.byteorder)

    def hang_up(self) -> None:
        """Read nothing more of what it prints, and let it know."""
        self._reader.close()
        self._end = -1

    def end_input(self) -> None:
        """Close the pipe that it reads from."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def resize(self, columns: int, rows: int) -> None:
        """Change the size of the window."""
        termios.tcsetwinsize(self._end, (rows, columns))

    def expect(self, pattern: str) -> re.Match[str]:
        """Wait until something that matches is written behind what the last call has found."""
        wanted = re.compile(pattern, re.MULTILINE)
        until = time.monotonic() + PATIENCE
        while (found := wanted.search(self.out, self._read_up_to)) is None:
            try:
                more = self._fill(until - time.monotonic())
            except TimeoutError:
                raise TimeoutError(f"{pattern!r} was not written; there is {self.out!r}") from None
            if not more:
                raise EOFError(f"{pattern!r} was not written before the end; there is {self.out!r}")
        self._read_up_to = found.end()
        return found

    def _fill(self, seconds: float = PATIENCE) -> bool:
        wait_read(self._end, timeout=max(seconds, 0.0), timeout_exc=TimeoutError(f"there is {self.out!r}"))
        try:
            data = os.read(self._end, 65_536)
        except OSError:
            # How Linux says that nobody has the terminal open any more.
            data = b""
        text = data.decode(errors="replace").replace("\r\n", "\n")
        self.out += _SEQUENCE.sub("", text)
        return bool(data)

    def interrupt(self) -> None:
        """Send SIGINT, as a terminal does for Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def wait(self) -> int:
        """Its exit code, once it has ended; what it has written by then is in `out`."""
        until = time.monotonic() + PATIENCE
        while self._end >= 0 and self._fill(until - time.monotonic()):
            pass
        code: int = gevent.get_hub().threadpool.apply(self.process.wait, (PATIENCE,))
        return code

    def close(self, *, by_force: bool = False) -> None:
        """End it now.

        Raises:
            TimeoutError, subprocess.TimeoutExpired: It did not obey; it has ended all the same.
        """
        # To a group, since a shell has children.
        try:
            if self.process.poll() is None and not by_force:
                os.killpg(self.process.pid, signal.SIGINT)
                self.wait()
        finally:
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(PATIENCE)
            if self._terminal:
                os.close(self._end)
            else:
                assert self.process.stdin is not None
                self.process.stdin.close()
                self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close(by_force=error is not None)
