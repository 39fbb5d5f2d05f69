"""`connect`: a conversation with a server, typed by hand or fed from a pipe.

One greenlet, the command's, takes what happens one by one: lines, Ctrl-C, the end of the input, the end of the
connection. Each stream has a greenlet that shows what comes. What they show is put in order by `Output`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
import gevent
from gevent.event import Event
from gevent.queue import Queue

from muxws_green.cli.codes import ExitCode
from muxws_green.cli.failures import CommandFailed, call_failure, reset_text
from muxws_green.cli.interrupts import Interrupted, on_interrupt
from muxws_green.cli.options import Dial, dials, reporting
from muxws_green.cli.output import Output, OutputGone, is_terminal
from muxws_green.cli.prompt import Lines, PipeLines, TerminalLines
from muxws_green.cli.values import from_json, to_json
from muxws_green.errors import MuxwsError, ResetCode, StreamReset
from muxws_green.protocol.backoff import Reconnect
from muxws_green.protocol.frames import ABSENT
from muxws_green.protocol.states import StreamState
from muxws_green.runtime.closing import CloseReason
from muxws_green.runtime.peer import Peer
from muxws_green.runtime.stream import Stream

HELP = """JSON            open a stream with this payload, end this side, show what comes
/open JSON      the same, but leave this side open
/send ID JSON   send one more payload on a stream
/end ID [JSON]  end this side of a stream, with a last payload or none
/cancel [ID]    tell the remote to stop one stream, or all
/notify JSON    send a payload of which no answer is wanted
/ping           measure a round trip
/streams        which streams are live
/quit           leave, as Ctrl-D does; Ctrl-C cancels what runs, then leaves"""


class Conversation:
    """What is typed, what is shown, and the streams that are under way.

    Args:
        out: Where to show it.
        dial: How the server is reached.
    """

    def __init__(self, out: Output, dial: Dial) -> None:
        #: What happens, in its order: what `Lines` tells, and besides, with "": signal (Ctrl-C from elsewhere), over
        #: (the connection), idle (a stream of ours has ended), gone (whoever reads the output).
        self.happenings: Queue[tuple[str, str]] = Queue()
        self._out = out
        self._dial = dial
        self._streams: dict[int, Stream] = {}
        #: Those that this end has opened: what Ctrl-C cancels and the end of the input waits for.
        self._running: set[Stream] = set()
        self._failed = False
        self._leaving = False
        self._commands: dict[str, Callable[[str], object]] = {
            "open": lambda rest: self._open(rest, end=False),
            "send": lambda rest: self._send(rest, end=False),
            "end": lambda rest: self._send(rest, end=True),
            "cancel": self._cancel,
            "notify": lambda rest: self.peer.notify(self._payload(rest)),
            "ping": self._ping,
            "streams": self._list,
            "help": lambda rest: self._note(HELP),
        }
        self.peer: Peer

    def run(self, lines: Lines) -> ExitCode:
        """Talk until somebody ends it.

        Raises:
            CommandFailed: The connection is lost for good.
            OutputGone: Nobody reads the output any more.
            Interrupted: Ctrl-C, with nothing to cancel.
        """
        try:
            return self._run(lines)
        finally:
            self._leaving = True
            self._cancel_running()

    def _run(self, lines: Lines) -> ExitCode:
        ended = False
        lines.ask()
        while True:
            kind, text = self.happenings.get()
            if kind == "line":
                if not self._take(text.strip()):
                    return ExitCode.OK
                lines.ask()
            elif kind in ("interrupt", "signal"):
                # A person who has typed something wants rid of that first, as in a shell.
                if not self._running and not text.strip():
                    raise Interrupted
                self._cancel_running()
            elif kind == "over":
                raise CommandFailed(call_failure(self._cause(), None))
            elif kind == "gone":
                raise OutputGone
            elif kind == "eof":
                ended = True
                self._end_running()
            if ended and not self._running:
                return ExitCode.FAILED if self._failed and isinstance(lines, PipeLines) else ExitCode.OK

    def _cause(self) -> MuxwsError:
        cause = self.peer.close_cause
        return cause if cause is not None else MuxwsError("the connection has ended")

    # What is typed

    def _take(self, line: str) -> bool:
        """Do what a line says; False: leave."""
        if not line:
            return True
        name, _, rest = line[1:].partition(" ")
        if line in ("/quit", "/exit"):
            return False
        try:
            if not line.startswith("/"):
                self._open(line, end=True)
            elif name in self._commands:
                self._commands[name](rest.strip())
            else:
                self._complain(f"there is no command /{name}; /help shows those that there are")
        except MuxwsError as error:
            self._complain(call_failure(error, self._dial.timeout).message)
        except (ValueError, TypeError, OverflowError) as error:
            self._complain(f"{error}; /help shows what can be typed")
        return True

    def _complain(self, text: str) -> None:
        self._failed = True
        self._note(text)

    def _note(self, text: str) -> None:
        for line in text.splitlines():
            self._out.event("notice", line, text=line)

    def _payload(self, text: str) -> Any:
        try:
            return from_json(text, binary=self._dial.codec.binary)
        except ValueError as error:
            raise ValueError(f"that is no JSON ({error})") from None

    def _open(self, text: str, *, end: bool) -> None:
        stream = self.peer.open(self._payload(text), end=end)
        self._running.add(stream)
        self._streams[stream.id] = stream
        self._out.event("opened", f"[{stream.id}] opened", stream=stream.id)
        following = gevent.Greenlet(self._follow_own, stream)
        following.name = f"shows stream {stream.id}"
        following.start()

    def _send(self, text: str, *, end: bool) -> None:
        number, _, rest = text.partition(" ")
        stream = self._stream(number)
        payload = self._payload(rest) if rest.strip() or not end else ABSENT
        if end:
            stream.end(payload)
        else:
            stream.send(payload)

    def _cancel(self, number: str) -> None:
        if number:
            self._stream(number).cancel("cancelled by hand")
        elif not self._cancel_running():
            self._note("nothing runs")

    def _cancel_running(self) -> bool:
        running = list(self._running)
        for stream in running:
            stream.cancel("cancelled by hand")
        return bool(running)

    def _end_running(self) -> None:
        """There is nothing more to say."""
        for stream in self._running:
            if stream.state in (StreamState.OPEN, StreamState.HALF_CLOSED_REMOTE):
                stream.end()

    def _stream(self, number: str) -> Stream:
        stream = self._streams.get(int(number)) if number.isdecimal() else None
        if stream is None:
            raise ValueError(f"there is no live stream {number or 'without a number'}; /streams shows them")
        return stream

    def _ping(self, _: str) -> None:
        ms = round(1000 * self.peer.ping(timeout=self._dial.timeout), 3)
        self._out.event("pong", f"pong: {ms:.3f} ms", ms=ms)

    def _list(self, _: str) -> None:
        self._note("\n".join(f"[{number}] {stream.state.value}" for number, stream in self._streams.items()) or "none")

    # What comes

    def _follow_own(self, stream: Stream) -> None:
        try:
            self._follow(stream)
        except OutputGone:
            self.happenings.put(("gone", ""))
        finally:
            self._running.discard(stream)
            self.happenings.put(("idle", ""))

    def incoming(self, payload: Any, stream: Stream) -> None:
        """The handler of streams that the server opens: shows them, and leaves the answer to whoever types."""
        self._streams[stream.id] = stream
        try:
            self._out.event(
                "incoming",
                f"[{stream.id}] opened by the remote, answer with /end {stream.id} JSON: {to_json(payload)}",
                stream=stream.id,
                payload=payload,
            )
            self._follow(stream)
        except OutputGone:
            self.happenings.put(("gone", ""))

    def _follow(self, stream: Stream) -> None:
        try:
            for item in stream:
                self._out.event("payload", f"[{stream.id}] {to_json(item)}", stream=stream.id, payload=item)
            self._out.event("end", f"[{stream.id}] end", stream=stream.id, trailers=stream.trailers)
            # This side may have something to say still.
            stream.closed.wait()
        except StreamReset as error:
            self._show_reset(stream, error)
        finally:
            self._streams.pop(stream.id, None)

    def _show_reset(self, stream: Stream, error: StreamReset) -> None:
        if error.code is not ResetCode.CANCELLED:
            self._failed = True
        payload = getattr(error, "payload", None)
        with_payload = f"; it sent {to_json(payload)}" if payload is not None else ""
        self._out.event(
            "reset",
            f"[{stream.id}] reset {reset_text(error)}{with_payload}",
            stream=stream.id,
            code=int(error.code),
            reason=error.reason,
            payload=payload,
        )

    def lost(self, reason: CloseReason) -> None:
        """The `on_close` callback."""
        if self._leaving:
            return  # pragma: no cover - where the server hangs up in the moment in which the prompt goes
        again = "; dialling again" if reason.will_retry else ""
        said = f", {reason.reason}" if reason.reason else ""
        try:
            self._out.event(
                "lost",
                f"connection lost: close code {reason.code}{said}{again}",
                code=reason.code,
                reason=reason.reason,
                will_retry=reason.will_retry,
            )
        except OutputGone:
            self.happenings.put(("gone", ""))
        if not reason.will_retry:
            self.happenings.put(("over", ""))

    def back(self, attempt: int, peer: Peer) -> None:
        """The `on_reconnect` callback."""
        try:
            self._out.event("reconnected", "connected again", attempt=attempt)
        except OutputGone:
            self.happenings.put(("gone", ""))


@click.command()
@dials
@click.option(
    "--reconnect/--no-reconnect",
    default=None,
    help="Whether to dial again after a loss.  [default: --reconnect at a terminal, else --no-reconnect]",
)
@click.option(
    "--history/--no-history", default=True, show_default=True, help="Whether to keep what is typed for later."
)
@reporting(serves=True)
def connect(out: Output, dial: Dial, reconnect: bool | None, history: bool) -> ExitCode:
    """Talk to a server: type JSON, see payloads, streams and resets.

    Each line opens a stream; /help shows what else can be typed. Ctrl-C cancels what runs, and then quits; so does
    Ctrl-D. Lines may come from a pipe too; then it ends when all that they have opened has.
    """
    at_terminal = is_terminal() and not out.as_json
    conversation = Conversation(out, dial)
    again = at_terminal if reconnect is None else reconnect
    with ExitStack() as stack:
        dialled = Event()
        command = gevent.getcurrent()

        def interrupted() -> None:
            if dialled.is_set():
                conversation.happenings.put(("signal", ""))
            else:
                gevent.kill(command, Interrupted)

        stack.enter_context(on_interrupt(interrupted))
        stack.enter_context(out.while_read())
        options: dict[str, Any] = {"reconnect": Reconnect()} if again else {}
        conversation.peer = peer = dial.connect(
            out, on_stream=conversation.incoming, on_reconnect=conversation.back, **options
        )
        stack.callback(peer.close, drain=1.0)
        dialled.set()
        out.note(f"connected to {dial.shown}" + ("; type JSON, or /help" if at_terminal else ""))
        lines: Lines
        if at_terminal:
            lines = editor = TerminalLines(conversation.happenings.put, history_path() if history else None)
            stack.callback(setattr, out, "show", None)
            out.show = editor.show
        else:
            lines = PipeLines(conversation.happenings.put)
        stack.callback(lines.close)
        peer.on_close(conversation.lost)
        return conversation.run(lines)


def history_path() -> Path:
    """Where what is typed is kept (XDG Base Directory Specification)."""
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "muxws-green" / "history"
