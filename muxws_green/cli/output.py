"""What the commands print: lines to standard output, notes and progress to standard error.

Invariants: nothing here blocks the hub, so that a slow or stopped reader of the output costs no pong; a whole line is
written by one greenlet at a time; and nothing that a remote sent reaches a terminal unescaped. A reader that has gone
ends the command (`OutputGone`), also where nothing is printed any more. A terminal that has gone takes the progress
with it and nothing else.
"""

from __future__ import annotations

import os
import select
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import gevent
from gevent.lock import RLock
from gevent.socket import wait_write

from muxws_green.cli.escape import escaped
from muxws_green.cli.failures import Failure
from muxws_green.cli.values import to_json

#: So much can be written to a pipe that is reported as writable without waiting (POSIX says 512 at least).
_PIECE = select.PIPE_BUF
_STDOUT, _STDERR = 1, 2
#: What an event loop calls that.
_READABLE = 1


class OutputGone(BaseException):
    """Nothing can be printed any more, mostly since nobody reads it: `Output.fault` says whether it is a failure. No
    `Exception`, so that nothing on its way takes it for one.
    """


class Output:
    """Standard output and standard error of one command.

    Args:
        as_json: Whether each line is a JSON object for a program.

    Attributes:
        show: Takes a whole line in place of both, where something else draws on the terminal.
        fault: Why standard output cannot be written, such as a full disk; None also where its reader has gone, which is
            how a pipe may end.
    """

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self.show: Callable[[str], object] | None = None
        self.fault: OSError | None = None
        self._lock = RLock()
        self._drawn = 0

    def event(self, kind: str, human: str | None, **fields: Any) -> None:
        """Print one thing that happened.

        Args:
            kind: The value of the key `event`.
            human: The line for people, which is escaped here; None: they are told nothing.
            fields: The other keys.
        """
        if self.as_json:
            self._line(_STDOUT, to_json({"event": kind, **fields}, ascii_only=True))
        elif human is not None:
            self._line(_STDOUT, escaped(human))

    def note(self, text: str) -> None:
        """Tell a person something, on standard error; a program is told nothing."""
        if not self.as_json:
            self._line(_STDERR, escaped(text))

    def fail(self, failure: Failure) -> None:
        """Say what went wrong and what to do next, on standard error."""
        if self.as_json:
            fields = {"kind": failure.kind, "exit": int(failure.code), "message": failure.message, "hint": failure.hint}
            self._line(_STDERR, to_json({"event": "error", **fields, **failure.fields}, ascii_only=True))
        else:
            self._line(_STDERR, escaped(f"error: {failure.message}"))
            self._line(_STDERR, escaped(f"hint: {failure.hint}"))

    @contextmanager
    def while_read(self) -> Iterator[None]:
        """Raise `OutputGone` at the waits of the current greenlet once the reader of a pipe has gone."""
        if not _is_pipe(_STDOUT):
            yield
            return
        current = gevent.getcurrent()
        # The writing end never becomes readable; that it seems so means that the other end is closed.
        watcher = gevent.get_hub().loop.io(_STDOUT, _READABLE)

        def gone() -> None:
            # It would be so in each turn of the loop.
            watcher.stop()
            gevent.kill(current, OutputGone)

        watcher.start(gone)
        try:
            yield
        finally:
            watcher.stop()
            watcher.close()

    @contextmanager
    def progress(self, text: Callable[[int], str]) -> Iterator[None]:
        """Show how a long thing goes on, in one line of standard error that is rewritten; on a terminal only.

        Args:
            text: The line, given how many whole seconds it has taken; not asked within the first.
        """
        if self.as_json or self.show is not None or not os.isatty(_STDERR):
            yield
            return
        drawing = gevent.spawn(self._draw, text)
        try:
            yield
        finally:
            drawing.kill()
            with self._lock:
                self._wipe()

    def _draw(self, text: Callable[[int], str]) -> None:
        seconds = 0
        while True:
            gevent.sleep(1.0)
            seconds += 1
            with self._lock, suppress(OSError):
                columns = _columns()
                line = fitting(escaped(text(seconds)), columns)
                # Spaces over what was there, as far as the window goes by now.
                _write(_STDERR, f"\r{line.ljust(min(self._drawn, columns - 1))}".encode())
                self._drawn = len(line)

    def _wipe(self) -> None:
        if self._drawn:
            drawn, self._drawn = self._drawn, 0
            with suppress(OSError):
                # The window may be narrower by now, and a line that is longer than it would scroll.
                _write(_STDERR, f"\r{fitting(' ' * drawn, _columns())}\r".encode())

    def _line(self, descriptor: int, line: str) -> None:
        if self.show is not None:
            self.show(line)
            return
        with self._lock:
            self._wipe()
            try:
                # Surrogates are escaped by now; what a narrow locale cannot show is its terminal's affair.
                _write(descriptor, f"{line}\n".encode())
            except OSError as error:
                if descriptor == _STDERR:
                    # There is nobody to tell.
                    return
                if not isinstance(error, ConnectionError):
                    self.fault = error
                raise OutputGone from None


def fitting(line: str, columns: int) -> str:
    """As much of a line as a terminal shows without beginning another, with dots where something is left out."""
    room = max(columns - 1, 0)
    if len(line) <= room:
        return line
    return line[: room - 3] + "..." if room > 3 else line[:room]


def _columns() -> int:
    """Those of the terminal that shows the progress; fails with OSError once it has gone."""
    # One that does not know its size says 0.
    return os.get_terminal_size(_STDERR).columns or 80


def _is_pipe(descriptor: int) -> bool:
    return stat.S_ISFIFO(os.fstat(descriptor).st_mode)


def _write(descriptor: int, data: bytes) -> None:
    """Write all of it, in pieces that cannot block; the descriptor is shared, so it is not made non-blocking."""
    ready = select.poll()
    ready.register(descriptor, select.POLLOUT)
    view = memoryview(data)
    while view:
        if not ready.poll(0):
            wait_write(descriptor)
        try:
            view = view[os.write(descriptor, view[:_PIECE]) :]
        except BlockingIOError:
            # Somebody else has made it non-blocking, and it is full.
            wait_write(descriptor)


def is_terminal() -> bool:
    """Whether a person sits at both ends, standard input and standard output."""
    return sys.stdin is not None and os.isatty(0) and os.isatty(_STDOUT)
