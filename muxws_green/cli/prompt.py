"""Where the lines of `connect` come from: a terminal with a line editor, or a pipe.

The editor is `prompt_toolkit`'s: it redraws the line that is being typed below what arrives meanwhile, knows windows
of any size, and keeps a history, of which `readline` can do only the last. It runs on an event loop of asyncio, so it
has a thread of its own, from gevent's pool, and the hub goes on. It runs without a break, not once for each line:
between two prompts the terminal would echo what is typed, and obey it. What is to be shown waits in `_pending` until
the editor's loop, or the hub before and after it, prints it above the prompt, so that no line is lost.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Protocol

import gevent
from gevent.socket import wait_read
from prompt_toolkit import PromptSession
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import Condition, has_focus
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from muxws_green.cli.escape import escaped

#: What a source of lines tells: ("line", text), ("interrupt", what had been typed and is forgotten), ("eof", "").
Told = tuple[str, str]

_PROMPT = "> "
#: So much may wait to be shown before whoever shows more has to wait too.
_PENDING_BYTES = 65_536
#: How long an editor may take to leave the terminal as it was.
_LEAVING_SECONDS = 2.0


class Lines(Protocol):
    """A source of lines."""

    def ask(self) -> None:
        """Take the next line, which is told later."""

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
        self._reading = gevent.Greenlet(self._read)

    def ask(self) -> None:
        """Read a line."""
        self._reading = gevent.spawn(self._read)

    def close(self) -> None:
        """Read no more."""
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
        told: Called in the hub with each line and each Ctrl-C; Ctrl-D on an empty line is the line `/quit`.
        history: The file that keeps what was typed; None: it is forgotten.
    """

    def __init__(self, told: Callable[[Told], object], history: Path | None) -> None:
        self._told = told
        self._hub = gevent.get_hub()
        self._pending: deque[str] = deque()
        self._printing = Lock()
        self._editing: gevent.Greenlet[..., None] | None = None
        self._session: PromptSession[str] = PromptSession(
            _PROMPT, history=_history(history), key_bindings=self._keys(), enable_history_search=True
        )

    def ask(self) -> None:
        """Show the prompt, which then stays."""
        if self._editing is None:
            self._editing = gevent.spawn(self._hub.threadpool.apply, self._edit)

    def show(self, line: str) -> None:
        """Print a line above the prompt; waits where many wait already."""
        while sum(map(len, self._pending)) > _PENDING_BYTES:
            gevent.sleep(0.01)
        self._show(line)
        if self._editing is None or self._editing.ready():
            self._print()

    def close(self) -> None:
        """Take the prompt away and print what waits."""
        # Again and again, since one that is about to begin hears nothing.
        with gevent.Timeout(_LEAVING_SECONDS, False):  # type: ignore[arg-type]
            while self._editing is not None and not self._editing.ready():
                self._call_in_editor(self._leave)
                self._editing.join(_LEAVING_SECONDS / 100)
        self._print()

    def _show(self, line: str) -> None:
        self._pending.append(line)
        self._call_in_editor(self._print_above)

    def _call_in_editor(self, function: Callable[[], object]) -> None:
        loop = self._session.app.loop
        if loop is not None:
            # It may close in this moment; what waits is printed when the editor has gone.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(function)

    # In the editor's thread

    def _edit(self) -> None:
        try:
            self._session.prompt(handle_sigint=False, pre_run=self._print_first)
        except EOFError:
            # There is no terminal any more.
            self._tell("line", "/quit")

    def _tell(self, kind: str, text: str) -> None:
        self._hub.loop.run_callback_threadsafe(self._told, (kind, text))

    def _print_first(self) -> None:
        self._call_in_editor(self._print_above)

    def _print_above(self) -> None:
        # `run_in_terminal` does the same, but gives the terminal its ordinary mode meanwhile: it would echo what is
        # typed in that moment, and swallow a Ctrl-D.
        app = self._session.app
        if not app.is_running or not self._pending:
            return
        app.renderer.erase()
        self._print()
        app.renderer.reset()
        app.invalidate()

    def _leave(self) -> None:
        app = self._session.app
        if app.is_running and not app.is_done:
            app.exit(result="")

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        typing = has_focus(DEFAULT_BUFFER)

        @keys.add("enter", filter=typing)
        def _(event: KeyPressEvent) -> None:
            text = event.current_buffer.text
            event.current_buffer.reset(append_to_history=True)
            self._show(f"{_PROMPT}{escaped(text)}")
            self._tell("line", text)

        @keys.add("c-c", filter=typing)
        def _(event: KeyPressEvent) -> None:
            text = event.current_buffer.text
            event.current_buffer.reset()
            self._tell("interrupt", text)

        @keys.add("c-d", filter=typing & Condition(lambda: not self._session.default_buffer.text))
        def _(event: KeyPressEvent) -> None:
            self._tell("line", "/quit")

        return keys

    # In whichever thread owns the terminal

    def _print(self) -> None:
        output = self._session.output
        with self._printing:
            while self._pending:
                # What is here has no control characters; `write` would show them as such.
                output.write(self._pending.popleft())
                output.write_raw("\r\n")
            output.flush()


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
