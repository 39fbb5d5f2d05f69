"""`python -m tests.soak --minutes 30`: hundreds of connections, random work, and a bad network.

Clients work through a relay that resets, cuts and freezes their connections, on a server in a process of its own that
is frozen as a whole, killed and started again. What each call returns is compared with a model at once. After each
minute everything is let come to rest; then no stream may be left, every client must be connected again, memory,
descriptors and objects must be what they were, and the effects that the server has logged must be those that the
clients were promised: each answered call exactly once, each refused one never, any other at most once.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from typing import Any

import gevent
from gevent import subprocess
from gevent.event import Event

from muxws_green import (
    ConnectionClosed,
    ConnectionGoingAway,
    ConnectionLost,
    Peer,
    Reconnect,
    RemoteError,
    ResetCode,
    StreamRefused,
    StreamReset,
    connect,
)
from muxws_green.testing import Relay
from tests.soak.figures import Figures, figures
from tests.soak.server import row

#: Seconds in which a call must be answered, whatever happens; past it the remote is told to stop.
CALL_SECONDS = 30.0
#: Seconds in which all calls must be over and all clients connected, once the network is good.
REST_SECONDS = 60.0
#: How much more resident memory a process may have than at its first rest.
SLACK_KIB = 40_960


class Server:
    """The server's process, which comes back in the same place."""

    def __init__(self, log_path: str) -> None:
        self._log_path = log_path
        self._process: subprocess.Popen[str] | None = None
        self.port = 0
        self.starts = 0
        self.start()

    def start(self) -> None:
        self.starts += 1
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.soak.server", str(self.port), self._log_path],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self, number: int) -> None:
        assert self._process is not None
        self.signal(number)
        self._process.wait(timeout=20)
        assert self._process.stdout is not None
        self._process.stdout.close()


class Soak:
    """One run."""

    def __init__(self, connections: int, seed: int, server: Server, relay: Relay, log_path: str) -> None:
        self.random = random.Random(seed)
        self.server = server
        self.relay = relay
        self.violations: list[str] = []
        self.outcomes: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        #: What became of each call since the last rest whose effect is logged: "done", "never" or "maybe".
        self.once: dict[str, str] = {}
        #: How many there were of each until then.
        self.promised: Counter[str] = Counter()
        self._log_read = 0
        self.reconnects = 0
        self._log_path = log_path
        self._names = 0
        self._resting = Event()
        self._working = Event()
        self._at_work = 0
        self.peers = [self._dial(number) for number in range(connections)]
        for peer in self.peers:
            gevent.spawn(self._work, peer)

    def _dial(self, number: int) -> Peer:
        peer = connect(
            self.relay.url,
            hello=number,
            hello_headers={"hello": True},
            reconnect=Reconnect(initial_delay=0.1, max_delay=2.0),
            ping_interval=2.0,
            ping_timeout=3.0,
        )
        peer.on_stream(lambda payload, stream: stream.reply(payload))
        peer.on_reconnect(self._reconnected)
        return peer

    def _reconnected(self, _attempt: int, _peer: Peer) -> None:
        self.reconnects += 1

    # Work

    def _work(self, peer: Peer) -> None:
        deeds = [self._echo, self._once, self._export, self._leave, self._sum, self._mirror, self._back, self._fail]
        deeds += [self._cancel, self._once, self._echo]
        while True:
            self._working.wait()
            self._at_work += 1
            deed = self.random.choice(deeds)
            try:
                deed(peer)
                self.outcomes["right"] += 1
            except (ConnectionLost, ConnectionClosed):
                self.outcomes["lost"] += 1
            except (StreamRefused, ConnectionGoingAway):
                self.outcomes["refused"] += 1
            except StreamReset as error:
                self.outcomes[error.code.name if isinstance(error.code, ResetCode) else str(error.code)] += 1
                if not isinstance(error.code, ResetCode) or error.code not in (ResetCode.TIMEOUT, ResetCode.CANCELLED):
                    self._violated(f"{deed.__name__}: {error!r}")
            except Exception as error:  # whatever else comes out of a call is a violation
                self._violated(f"{deed.__name__}: {error!r}")
            finally:
                self._at_work -= 1
            gevent.sleep(self.random.uniform(0.2, 2.0))

    def _violated(self, text: str) -> None:
        self.violations.append(text)

    def _expect(self, what: str, got: Any, wanted: Any) -> None:
        if got != wanted:
            self._violated(f"{what}: {str(got)[:100]!r} is not {str(wanted)[:100]!r}")

    def _echo(self, peer: Peer) -> None:
        value = [self.random.random(), "é" * self.random.randrange(3_000), None]
        if not self.random.randrange(20):
            value[1] = "b" * 300_000
        self._expect("echo", peer.request(["echo", value], timeout=CALL_SECONDS), value)

    def _once(self, peer: Peer) -> None:
        self._names += 1
        name = f"n{self._names}"
        self.once[name] = "never"
        try:
            # Whether it left is not known from here on.
            self.once[name] = "maybe"
            self._expect("once", peer.request(["once", name], timeout=CALL_SECONDS), name)
            self.once[name] = "done"
        except (StreamRefused, ConnectionGoingAway):
            self.once[name] = "never"
            raise

    def _export(self, peer: Peer) -> None:
        seed, count = self.random.randrange(1_000), self.random.randrange(60)
        with gevent.Timeout(CALL_SECONDS, StreamReset("slow", code=ResetCode.TIMEOUT)):
            stream = peer.open(["export", seed, count], end=True)
            got = list(stream)
        self._expect("export", got, [row(seed, number) for number in range(count)])
        self._expect("trailers", stream.trailers, {"rows": count})

    def _leave(self, peer: Peer) -> None:
        seed = self.random.randrange(1_000)
        with gevent.Timeout(CALL_SECONDS, StreamReset("slow", code=ResetCode.TIMEOUT)):
            for number, got in enumerate(peer.open(["export", seed, 400], end=True)):
                self._expect("a row", got, row(seed, number))
                if number == 5:
                    break

    def _sum(self, peer: Peer) -> None:
        rows = [row(3, number) for number in range(self.random.randrange(30))]
        stream = peer.open(["sum"])
        with gevent.Timeout(CALL_SECONDS, StreamReset("slow", code=ResetCode.TIMEOUT)):
            for each in rows:
                stream.send(each)
            stream.end()
        self._expect("sum", stream.result(CALL_SECONDS), [len(rows), sum(len(text) for _, text in rows)])

    def _mirror(self, peer: Peer) -> None:
        rows = [row(5, number) for number in range(self.random.randrange(1, 20))]
        stream = peer.open(["mirror"])
        got = []
        with gevent.Timeout(CALL_SECONDS, StreamReset("slow", code=ResetCode.TIMEOUT)):
            for each in rows:
                stream.send(each)
                if self.random.randrange(2):
                    got.append(stream.receive())
            stream.end()
            got += list(stream)
        self._expect("mirror", got, rows)

    def _back(self, peer: Peer) -> None:
        value = self.random.random()
        try:
            self._expect("back", peer.request(["back", value], timeout=CALL_SECONDS), value)
        except RemoteError as error:
            # The server could not reach this end: the connection was about to be found dead.
            if not error.payload or error.payload.get("type") not in ("ConnectionLost", "StreamTimeout"):
                raise
            raise ConnectionLost("there and not back") from error

    def _fail(self, peer: Peer) -> None:
        text = f"as asked {self.random.random()}"
        try:
            peer.request(["fail", text], timeout=CALL_SECONDS)
        except RemoteError as error:
            self._expect("fail", error.payload, {"type": "ValueError", "message": text})
        else:
            self._violated("fail: it was answered")

    def _cancel(self, peer: Peer) -> None:
        stream = peer.open(["wait"])
        stream.send(1)
        gevent.sleep(self.random.uniform(0.0, 0.3))
        stream.cancel("enough")

    # Faults

    def disturb(self, until: float) -> None:
        """Make a bad network, and a bad machine, until that moment; then a good one."""
        frozen = None
        freeze_at = self.random.uniform(time.monotonic(), until)
        while time.monotonic() < until - 5.0:
            live = self.relay.live
            if live:
                self._break(self.random.choice(live))
            if frozen is None and time.monotonic() > freeze_at:
                self.faults["freeze"] += 1
                self.server.signal(signal.SIGSTOP)
                frozen = gevent.spawn_later(self.random.uniform(0.3, 4.0), self.server.signal, signal.SIGCONT)
            gevent.sleep(self.random.uniform(0.01, 0.2))
        if frozen is not None:
            frozen.join()
        self.relay.both.restore()

    def _break(self, one: Any) -> None:
        fault = self.random.choice(["reset", "cut", "stall", "stall", "throttle", "delay"])
        self.faults[fault] += 1
        if fault in ("reset", "cut"):
            getattr(one, fault)()
        elif fault == "throttle":
            one.both.throttle(20_000)
        elif fault == "delay":
            one.both.delay(self.random.uniform(0.01, 0.5))
        else:
            one.both.stall()
            gevent.spawn_later(self.random.uniform(0.1, 8.0), one.both.restore)

    def restart_server(self) -> None:
        """End the server's process, in one way or the other, and start another one."""
        number = self.random.choice([signal.SIGKILL, signal.SIGTERM])
        self.faults[signal.Signals(number).name] += 1
        self.server.stop(number)
        gevent.sleep(self.random.uniform(0.0, 1.0))
        self.server.start()

    # Rest

    def begin(self) -> None:
        self._working.set()

    def rest(self) -> tuple[Figures, dict[str, int]]:
        """Let everything come to rest, and compare. Returns the figures of both processes."""
        self._working.clear()
        deadline = time.monotonic() + REST_SECONDS
        while not self._is_at_rest():
            if time.monotonic() > deadline:
                closed = sum(not peer.is_open for peer in self.peers)
                live = sum(len(peer.streams) for peer in self.peers)
                self._violated(f"no rest: {self._at_work} calls at work, {closed} clients not open, {live} streams")
                break
            gevent.sleep(0.05)
        self._check_once()
        self.relay.connections[:] = self.relay.live
        theirs = self._their_figures()
        return figures(), theirs

    def _is_at_rest(self) -> bool:
        if self._at_work or not all(peer.is_open for peer in self.peers):
            return False
        return not any(peer.streams or peer.stats.queued_bytes for peer in self.peers)

    def _their_figures(self) -> dict[str, int]:
        """The server's, once its streams have ended too; the one that asks is not counted."""
        deadline = time.monotonic() + REST_SECONDS
        while True:
            theirs: dict[str, int] = self.peers[0].request(["figures"], timeout=CALL_SECONDS)
            if (theirs["live"] <= 1 and theirs["accepted"] <= len(self.peers)) or time.monotonic() > deadline:
                return theirs
            gevent.sleep(0.1)

    def _check_once(self) -> None:
        with open(self._log_path) as log:
            log.seek(self._log_read)
            ran = Counter(log.read().split())
            self._log_read = log.tell()
        for name, state in self.once.items():
            times = ran[name]
            if times > 1 or (state == "done" and times != 1) or (state == "never" and times):
                self._violated(f"the call {name} was promised to have run ({state}), and ran {times} times")
        if ran.keys() - self.once.keys():
            self._violated("calls ran that nobody has made, or long after they were given up")
        self.promised.update(self.once.values())
        self.once.clear()


def main() -> int:
    """Parse the command line and run. Returns 1 where anything was not as it should be."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="how long (default: %(default)s)")
    parser.add_argument("--connections", type=int, default=500, help="how many clients (default: %(default)s)")
    parser.add_argument(
        "--restart-every", type=int, default=5, help="minutes of a server's life (default: %(default)s)"
    )
    parser.add_argument("--minute", type=float, default=60.0, help="seconds of a minute (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="to repeat the same random numbers")
    options = parser.parse_args()
    seed = random.randrange(2**32) if options.seed is None else options.seed
    logging.getLogger("muxws").setLevel(logging.CRITICAL)
    print(f"seed {seed}, {options.connections} connections", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        log_path = os.path.join(directory, "log")
        server = Server(log_path)
        try:
            with Relay(f"ws://127.0.0.1:{server.port}/") as relay:
                soak = Soak(options.connections, seed, server, relay, log_path)
                return run(soak, options)
        finally:
            server.signal(signal.SIGCONT)
            server.stop(signal.SIGKILL)


def run(soak: Soak, options: argparse.Namespace) -> int:
    """One line a minute, until the time is over or something is wrong."""
    first: Figures | None = None
    first_theirs: dict[str, int] | None = None
    began = time.monotonic()
    minute = 0
    while time.monotonic() - began < options.minutes * 60.0:
        minute += 1
        until = time.monotonic() + options.minute
        soak.begin()
        if minute > 1 and (minute - 1) % options.restart_every == 0:
            soak.restart_server()
            first_theirs = None
        soak.disturb(until)
        ours, theirs = soak.rest()
        # The first rest is that of a process that has not seen everything yet.
        if minute > 1:
            first = first or ours
            compare(soak, "clients", vars(first), vars(ours))
        if first_theirs is None:
            first_theirs = theirs
        compare(soak, "server", first_theirs, theirs)
        if theirs["accepted"] != len(soak.peers):
            soak.violations.append(f"the server has {theirs['accepted']} peers, there are {len(soak.peers)} clients")
        print(
            f"minute {minute}: {dict(soak.outcomes)}, faults {dict(soak.faults)}, {soak.reconnects} reconnects, "
            f"once {dict(soak.promised)}; clients {ours.rss_kib // 1024} MiB {ours.descriptors} fds "
            f"{ours.greenlets} greenlets; server {theirs['rss_kib'] // 1024} MiB {theirs['descriptors']} fds "
            f"{theirs['greenlets']} greenlets; {len(soak.violations)} violations",
            flush=True,
        )
        if soak.violations:
            for violation in soak.violations[:20]:
                print("  ", violation, flush=True)
            return 1
    return 0


def compare(soak: Soak, whose: str, first: dict[str, int], now: dict[str, int]) -> None:
    """Note what has grown since the first rest."""
    for name, value in now.items():
        slack = {"rss_kib": SLACK_KIB, "greenlets": 60, "descriptors": 60}.get(name, 0)
        if name != "accepted" and value > first[name] + slack:
            soak.violations.append(f"{whose}: {name} has grown from {first[name]} to {value}")


if __name__ == "__main__":
    raise SystemExit(main())
