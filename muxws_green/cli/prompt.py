"""Where the lines of `connect` come from: a terminal with a line editor, or a pipe.

The editor is `prompt_toolkit`'s: it redraws the line that is being typed below what arrives meanwhile, knows windows
of any size, and keeps a history, none of which `readline` can do beside other output. It runs on an event loop of
asyncio, so it has a thread of its own, from gevent's pool, and the hub goes on. The invariant between the two: what is
to be shown waits in `_pending` until whoever owns the terminal at that moment, the editor's loop or the hub, prints it,
so that no line is lost between two prompts and none is written into a prompt.
"""

from __future__ import annotations

import os
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Protocol

import gevent
from gevent.socket import wait_read
from prompt_toolkit import PromptSession
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

#: What a source of lines tells: ("line", text), ("interrupt", what had been typed), ("eof", "").
Told = tuple[str, str]

#: So much may wait to be shown before whoever shows more has to wait too.
_PENDING_BYTES = 65_536
#: How long an editor may take to leave the terminal as it was.
_LEAVING_SECONDS = 2.0


class Lines(Protocol):
    """A source of lines."""

    def ask(self, typed: str = "") -> None:
        """Let the next line be typed, with some of it typed already; it is told later."""

    def close(self) -> None:
        """Ask for no more."""


class PipeLines:
    """Lines from standard input, without an editor.

    Args:
        told: Called with each line, and with the end.
    """

    def __init__(self, told: Callable[[Told], object]) -> None:
        self._told = told
        self._buffer = b""
        self._reading: gevent.Greenlet[..., None] | None = None

    def ask(self, typed: str = "") -> None:
        """Read a line."""
        self._reading = gevent.spawn(self._read)

    def close(self) -> None:
        """Read no more."""
        if self._reading is not None:
            self._reading.kill()

    def _read(self) -> None:
        while b"\n" not in self._buffer:
            wait_read(0)
            data = os.read(0, 65_536)
            if not data:
                rest, self._buffer = self._buffer, b""
                self._told(("line", rest.decode(errors="replace")) if rest else ("eof", ""))
                return
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        self._told(("line", line.decode(errors="replace")))


class TerminalLines:
    """Lines that a person types at a prompt.

    Args:
        told: Called with each line, each Ctrl-C and Ctrl-D, in a greenlet.
        history: The file that keeps what was typed; None: it is forgotten.
    """

    def __init__(self, told: Callable[[Told], object], history: Path | None) -> None:
        self._told = told
        self._pending: deque[str] = deque()
        self._printing = Lock()
        self._asking: gevent.Greenlet[..., None] | None = None
        self._session: PromptSession[Told | str] = PromptSession(
            "> ", history=_history(history), key_bindings=self._keys(), enable_history_search=True
        )

    def ask(self, typed: str = "") -> None:
        """Show the prompt."""
        self._asking = gevent.spawn(self._ask, typed)

    def show(self, line: str) -> None:
        """Print a line above the prompt; waits where many wait already."""
        while sum(map(len, self._pending)) > _PENDING_BYTES:
            gevent.sleep(0.01)
        self._pending.append(line)
        loop = self._session.app.loop
        if loop is not None:
            _call(loop, self._print_above)
        elif self._asking is None:
            self._print()

    def close(self) -> None:
        """Take the prompt away and print what waits."""
        asking = self._asking
        for _ in range(100):
            if asking is None or asking.ready():
                break
            loop = self._session.app.loop
            if loop is not None:
                _call(loop, self._leave)
            asking.join(_LEAVING_SECONDS / 100)
        self._print()

    def _ask(self, typed: str) -> None:
        told = gevent.get_hub().threadpool.apply(self._prompt, (typed,))
        self._asking = None
        self._print()
        if told[0] != "left":
            self._told(told)

    def _prompt(self, typed: str) -> Told:
        """In the editor's thread: let one line be typed."""
        try:
            typed_line = self._session.prompt(default=typed, handle_sigint=False, pre_run=self._print_soon)
        except EOFError:
            return ("eof", "")
        finally:
            self._print()
        return ("line", typed_line) if isinstance(typed_line, str) else typed_line

    def _print_soon(self) -> None:
        loop = self._session.app.loop
        if self._pending and loop is not None:
            loop.call_soon(self._print_above)

    def _print_above(self) -> None:
        run_in_terminal(self._print)

    def _print(self) -> None:
        """Print what waits, in whichever thread owns the terminal."""
        output = self._session.output
        with self._printing:
            while self._pending:
                # What is here has no control characters; `write` would show them as such.
                output.write(self._pending.popleft())
                output.write_raw("\n")
            output.flush()

    def _leave(self) -> None:
        app = self._session.app
        if app.is_running and not app.is_done:
            app.exit(result=("left", ""))

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("c-c")
        def _(event: KeyPressEvent) -> None:
            event.app.exit(result=("interrupt", event.current_buffer.text))

        return keys


def _call(loop: AbstractEventLoop, function: Callable[[], object]) -> None:
    try:
        loop.call_soon_threadsafe(function)
    except RuntimeError:
        # It has closed in this moment, and its thread prints what waits.
        pass


def _history(path: Path | None) -> History:
    if path is None:
        return InMemoryHistory()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # What was typed may be nobody else's business.
        os.close(os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))
