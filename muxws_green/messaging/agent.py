"""An agent that does a scheduler's jobs and survives its restart: `python -m muxws_green.messaging.agent URL COMMAND`.

A job is done by running the command with the job's text as its standard input; what it prints is the result. The agent
decides what is run, the scheduler only for which texts. While the scheduler is away, what is being done goes on, and
its result waits for the next connection; the scheduler may have given the job out again by then, and refuses it.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import tempfile
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import gevent
from gevent import subprocess
from gevent.event import Event

from muxws_green import ConnectionClosed, MuxwsError, NotConnectedError, RemoteError
from muxws_green.api import default_clock
from muxws_green.interfaces import IClock
from muxws_green.messaging.client import ConnectionEvent, ReconnectingClient
from muxws_green.messaging.errors import BadBodyError
from muxws_green.messaging.jobs import Attempt
from muxws_green.messaging.peer import Message, MessagePeer
from muxws_green.messaging.scheduler import add_heartbeat_options, heartbeat_options, write_line

#: Attempts that may wait behind the one that is being done.
MAX_WAITING = 16
#: Bytes of what a command prints that are sent; the rest is left out.
MAX_OUTPUT_BYTES = 1_048_576
#: Seconds in which the scheduler must say what it makes of a result, and after which it is asked again.
RESULT_SECONDS = 10.0
AGAIN_SECONDS = 0.5


class Agent:
    """Does one attempt after another.

    Args:
        name: Who it is; one scheduler has one agent of each name.
        command: What does a job.
        report: Called with a line of text for whatever happens.
        clock: Measures the time between two offers of a result.
    """

    def __init__(
        self, name: str, command: Sequence[str], report: Callable[[str], object], *, clock: IClock = default_clock
    ) -> None:
        self._clock = clock
        self._name = name
        self._command = list(command)
        self._report = report
        self._waiting: deque[Attempt] = deque()
        self._arrived = Event()
        self._process: subprocess.Popen[bytes] | None = None

    def setup(self, peer: MessagePeer) -> None:
        """Take orders on a new connection."""
        peer.on("start", self._start)
        peer.on_close(self._closed)

    def note(self, event: ConnectionEvent) -> None:
        """Report what became of the connection; for `ReconnectingClient.on_event`."""
        self._report(f"agent {self._name}: {event}")

    def work(self, client: ReconnectingClient) -> None:
        """Do what comes, until the client is stopped."""
        while True:
            while not self._waiting:
                self._arrived.clear()
                self._arrived.wait()
            attempt = self._waiting.popleft()
            self._report(f"job {attempt.job} attempt {attempt.number}: started")
            if not self._deliver(client, attempt, self._run(attempt)):
                return

    def stop(self) -> None:
        """End the command that is running, with everything that it has started."""
        process = self._process
        if process is not None and process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)

    # What the scheduler calls

    def _start(self, message: Message) -> None:
        body = message.body if isinstance(message.body, dict) else {}
        job, number, text = body.get("job"), body.get("attempt"), body.get("text")
        if type(job) is not int or type(number) is not int or not isinstance(text, str):
            raise BadBodyError('an order is {"job": number, "attempt": number, "text": text}')
        if len(self._waiting) >= MAX_WAITING:
            raise RuntimeError(f"{MAX_WAITING} attempts wait already")
        self._waiting.append(Attempt(job, number, text))
        self._arrived.set()

    def _closed(self, _cause: ConnectionClosed | None) -> None:
        """What has not begun is lost with the connection on which it came."""
        self._waiting.clear()

    # What comes of an attempt

    def _run(self, attempt: Attempt) -> dict[str, Any]:
        with tempfile.TemporaryFile() as output:
            try:
                # In a session of its own, so that it can be ended with whatever it starts.
                self._process = process = subprocess.Popen(
                    self._command, stdin=subprocess.PIPE, stdout=output, start_new_session=True
                )
            except OSError as error:
                return {"exit": -1, "output": f"{self._command[0]}: {error}"}
            process.communicate(attempt.text.encode())
            output.seek(0)
            text = output.read(MAX_OUTPUT_BYTES).decode(errors="replace")
        return {"exit": process.returncode, "output": text}

    def _deliver(self, client: ReconnectingClient, attempt: Attempt, result: dict[str, Any]) -> bool:
        """Offer a result until the scheduler has said what it makes of it. False where the client is stopped.

        Where the answer was lost it is offered again, which is the agent's decision and nobody else's: an attempt's
        number tells the scheduler that it is the same.
        """
        what = f"job {attempt.job} attempt {attempt.number}"
        body = {"job": attempt.job, "attempt": attempt.number, "result": result}
        while True:
            try:
                client.wait_connected()
            except NotConnectedError:
                return False
            try:
                answer = client.request("result", body, timeout=RESULT_SECONDS).body
            except RemoteError as error:
                self._report(f"{what}: {error}")
                return True
            except MuxwsError:
                # The connection has ended, or is about to, or the scheduler has not answered in time.
                self._clock.sleep(AGAIN_SECONDS)
            else:
                taken = isinstance(answer, dict) and answer.get("taken") is True
                self._report(f"{what}: {'taken' if taken else 'refused'}")
                return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Run an agent until SIGINT or SIGTERM.

    Args:
        arguments: The command line without the program's name; None: `sys.argv`.

    Returns:
        The exit code, 0.
    """
    parser = argparse.ArgumentParser(
        prog="python -m muxws_green.messaging.agent",
        description="Does the jobs of a scheduler by running a command for each.",
    )
    parser.add_argument("url", metavar="URL", help="the scheduler's, such as ws://127.0.0.1:8765/")
    parser.add_argument("command", nargs="+", metavar="COMMAND", help="what does a job, read from its standard input")
    parser.add_argument(
        "--name", default=f"{socket.gethostname()}-{os.getpid()}", help="who it is (default: host and process)"
    )
    parser.add_argument(
        "--max-backoff", type=float, default=30.0, metavar="S", help="longest wait between dials (default: %(default)s)"
    )
    add_heartbeat_options(parser)
    options = parser.parse_args(arguments)
    agent = Agent(options.name, options.command, write_line)
    client = ReconnectingClient(
        options.url,
        setup=agent.setup,
        max_backoff=options.max_backoff,
        hello={"agent": options.name},
        hello_headers={"method": "hello"},
        **heartbeat_options(options),
    )
    client.on_event(agent.note)
    ended = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        gevent.signal_handler(number, ended.set)
    client.start()
    worker = gevent.spawn(agent.work, client)
    worker.name = f"worker {options.name}"
    either: list[Any] = [ended, worker]
    gevent.wait(either, count=1)
    client.stop(drain=0.0)  # pragma: no cover - a switch always precedes it, which hides a line
    agent.stop()
    worker.kill()
    return 0  # pragma: no cover - a switch always precedes it, which hides a line


if __name__ == "__main__":
    raise SystemExit(main())
