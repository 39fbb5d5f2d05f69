"""A scheduler that gives jobs to agents and notices when one is gone: `python -m muxws_green.messaging.scheduler`.

Agents (`muxws_green.messaging.agent`) dial in and are called: `start` gives one an attempt of a job, and the agent
calls `result` when it is done. An attempt belongs to the connection on which it was given out, and is lost with it,
whether the agent has frozen, which the heartbeat finds out, or has closed. What is lost is given out again (see
`jobs`).
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gevent
from gevent.event import Event

from muxws_green import ConnectionClosed, ConnectionGoingAway, HeartbeatTimeoutError, MuxwsError
from muxws_green.messaging.errors import BadBodyError
from muxws_green.messaging.jobs import Attempt, JobBook, Verdict
from muxws_green.messaging.peer import Message, MessagePeer
from muxws_green.messaging.server import serve

#: Seconds in which an agent must say that it has got an attempt.
START_SECONDS = 10.0


class Scheduler:
    """Gives out the jobs of a book, one at a time to each agent.

    Args:
        book: The jobs.
        report: Called with a line of text for whatever happens.

    Attributes:
        done: Set when every job is done.
    """

    def __init__(self, book: JobBook, report: Callable[[str], object]) -> None:
        self._book = book
        self._report = report
        #: The connection of each agent, and the agent of each connection that has said who it is.
        self._agents: dict[str, MessagePeer] = {}
        self._names: dict[MessagePeer, str] = {}
        self._changed = Event()
        self.done = Event()
        self._note_change()

    def setup(self, peer: MessagePeer) -> None:
        """Make a new connection an agent's."""
        peer.on("hello", self._hello)
        peer.on("result", self._result)
        peer.on_close(lambda cause: self._closed(peer, cause))

    # What agents call

    def _hello(self, message: Message) -> None:
        name = message.body.get("agent") if isinstance(message.body, dict) else None
        if not isinstance(name, str) or not name:
            raise BadBodyError('a hello is {"agent": name}')
        peer = message.peer
        if peer in self._names:
            raise BadBodyError(f"this connection has said already that it is {self._names[peer]!r}")
        before = self._agents.get(name)
        if before is not None:
            # It has lost that connection sooner than this end has.
            self._lose(before, f"agent {name} has come by another connection")
            gevent.spawn(before.close, 0.0)
        self._agents[name] = peer
        self._names[peer] = name
        self._report(f"agent {name} is here")
        feeder = gevent.spawn(self._feed, name, peer)
        feeder.name = f"feeder {name}"

    def _result(self, message: Message) -> dict[str, bool]:
        body = message.body if isinstance(message.body, dict) else {}
        job, number = body.get("job"), body.get("attempt")
        if type(job) is not int or type(number) is not int or "result" not in body:
            raise BadBodyError('a result is {"job": number, "attempt": number, "result": value}')
        name = self._names.get(message.peer)
        if name is None:
            raise BadBodyError("results are taken from agents that have said hello")
        verdict = self._book.take(job, number, name, body["result"])
        self._report(f"job {job} attempt {number}: result of {name} {verdict.value}")
        self._note_change()
        return {"taken": verdict is not Verdict.REFUSED}

    # What becomes of agents

    def _closed(self, peer: MessagePeer, cause: ConnectionClosed | None) -> None:
        name = self._names.get(peer)
        if name is None:
            return
        if isinstance(cause, HeartbeatTimeoutError):
            self._lose(peer, f"agent {name} is dead: {cause}")
        elif cause is None:
            self._lose(peer, f"agent {name} has left")
        else:
            self._lose(peer, f"agent {name} is lost: {cause}")

    def _lose(self, peer: MessagePeer, how: str) -> None:
        name = self._names.pop(peer)
        del self._agents[name]
        self._report(how)
        self._lose_attempts(name)

    def _lose_attempts(self, name: str) -> None:
        for attempt in self._book.lose(name):
            self._report(f"job {attempt.job} attempt {attempt.number}: lost with {name}")
        self._note_change()

    def _feed(self, name: str, peer: MessagePeer) -> None:
        """Give one agent job after job, for as long as it is here and takes them."""
        while self._names.get(peer) == name:
            attempt = self._book.start(name)
            if attempt is None:
                self._changed.wait()
                continue
            self._report(f"job {attempt.job} attempt {attempt.number}: given to {name}")
            try:
                self._give(attempt, peer)
            except MuxwsError as error:
                # The end of its connection is told by `on_close`, and the attempt ends with it.
                ending = isinstance(error, ConnectionClosed | ConnectionGoingAway)
                if not ending and self._names.get(peer) == name:
                    # It is here and does not take jobs; it would not take the next one either.
                    self._report(f"agent {name} does not take jobs: {error}")
                    self._lose_attempts(name)
                return
            while self._book.is_under_way(attempt):
                self._changed.wait()

    def _give(self, attempt: Attempt, peer: MessagePeer) -> None:
        body = {"job": attempt.job, "attempt": attempt.number, "text": attempt.text}
        peer.request("start", body, timeout=START_SECONDS)

    def _note_change(self) -> None:
        changed, self._changed = self._changed, Event()
        changed.set()
        if self._book.is_done:
            self.done.set()


def write_line(text: str) -> None:
    """Write a line to the standard output, at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a scheduler until every job is done, or SIGINT or SIGTERM.

    Args:
        arguments: The command line without the program's name; None: `sys.argv`.

    Returns:
        The exit code: 0 where every job is done, else 1.
    """
    parser = argparse.ArgumentParser(
        prog="python -m muxws_green.messaging.scheduler", description="Gives jobs to agents until all are done."
    )
    parser.add_argument(
        "jobs", nargs="*", metavar="JOB", help="a text; what is to be done with it is the agents' affair"
    )
    parser.add_argument("--state", type=Path, metavar="FILE", help="where to keep the jobs; read again by the next run")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8765, help="port; 0 lets the system choose (default: %(default)s)")
    add_heartbeat_options(parser)
    options = parser.parse_args(arguments)
    try:
        book = JobBook(options.state)
    except ValueError as error:
        parser.error(str(error))
    book.add(options.jobs)
    if not book.jobs:
        parser.error("there is no JOB, and no --state FILE that holds any")
    scheduler = Scheduler(book, write_line)
    ended = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        gevent.signal_handler(number, ended.set)
    server = serve(options.host, options.port, scheduler.setup, **heartbeat_options(options))
    host = f"[{options.host}]" if ":" in options.host else options.host
    write_line(f"scheduler listening on ws://{host}:{server.port}/")
    gevent.wait([ended, scheduler.done], count=1)
    # Agents that wait for jobs dial again, and find the next scheduler.
    server.drain(1.0)
    for line in summary(book):
        write_line(line)
    return 0 if book.is_done else 1


def summary(book: JobBook) -> list[str]:
    """What there is to say of all jobs, in lines."""
    lines = [
        f"job {number} {job.text!r}: {_outcome(job.result)}"
        for number, job in enumerate(book.jobs, 1)
        if job.done_by is not None
    ]
    done, attempts = len(lines), sum(job.attempts for job in book.jobs)
    lines.append(f"{done} of {len(book.jobs)} jobs done in {attempts} attempts, {book.refused} results refused")
    return lines


def _outcome(result: Any) -> str:
    if isinstance(result, dict) and result.keys() == {"exit", "output"}:
        text = str(result["output"]).strip()
        return text if result["exit"] == 0 else f"exit code {result['exit']} {text}".rstrip()
    return repr(result)


def add_heartbeat_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the heartbeat to a command line."""
    parser.add_argument(
        "--heartbeat-interval",
        type=float,
        default=5.0,
        metavar="S",
        help="seconds between pings (default: %(default)s)",
    )
    parser.add_argument(
        "--max-missed-pongs", type=int, default=3, metavar="N", help="unanswered pings allowed (default: %(default)s)"
    )


def heartbeat_options(options: argparse.Namespace) -> dict[str, Any]:
    """What was said about the heartbeat, as arguments."""
    return {"heartbeat_interval": options.heartbeat_interval, "max_missed_pongs": options.max_missed_pongs}


if __name__ == "__main__":
    raise SystemExit(main())
