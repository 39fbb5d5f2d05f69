"""`bench`: how many requests a server answers, and how long each takes."""

from __future__ import annotations

import math
import time
from collections import Counter
from contextlib import ExitStack
from typing import Any

import click
import gevent

from muxws_green.cli.codes import ExitCode
from muxws_green.cli.failures import call_failure
from muxws_green.cli.interrupts import Interrupted
from muxws_green.cli.options import Dial, dials, reporting, typed_payload
from muxws_green.cli.output import Output
from muxws_green.errors import ConnectionLost, MuxwsError
from muxws_green.runtime.peer import Peer

#: How much wider each class of durations is than the one before: what a percentile may be off by.
_WIDTH = math.log(1.01)


class Durations:
    """Any number of durations in constant memory, sorted into classes that are one percent wide."""

    def __init__(self) -> None:
        self.count = 0
        self.longest = 0.0
        self._classes: Counter[int] = Counter()

    def add(self, seconds: float) -> None:
        """Count one."""
        self.count += 1
        self.longest = max(self.longest, seconds)
        self._classes[math.ceil(math.log(max(seconds, 1e-9)) / _WIDTH)] += 1

    def percentile(self, percent: float) -> float:
        """The duration that so many percent do not exceed, at most one percent too long; 0 where there are none."""
        missing = self.count * percent / 100
        for place in sorted(self._classes):
            missing -= self._classes[place]
            if missing <= 0:
                return min(math.exp(place * _WIDTH), self.longest)
        return self.longest


class Run:
    """The requests of one measurement."""

    def __init__(self, payload: Any, timeout: float) -> None:
        self.durations = Durations()
        self.failures: Counter[str] = Counter()
        self.lost = False
        self._payload = payload
        self._timeout = timeout

    def repeat(self, peer: Peer, until: float) -> None:
        """One request after another, until the time has come or the connection is lost."""
        while (begun := time.monotonic()) < until:
            try:
                peer.request(self._payload, timeout=self._timeout)
            except MuxwsError as error:
                self.failures[call_failure(error, self._timeout).kind] += 1
                if isinstance(error, ConnectionLost):
                    self.lost = True
                    return
            else:
                self.durations.add(time.monotonic() - begun)

    def show(self, out: Output, seconds: float) -> None:
        """Print what came of it."""
        durations = self.durations
        rate = durations.count / seconds if seconds else 0.0
        figures = {f"p{percent}_ms": _ms(durations.percentile(percent)) for percent in (50, 90, 99)}
        figures["max_ms"] = _ms(durations.longest)
        failed = sum(self.failures.values())
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.failures.most_common())
        lines = [
            f"{durations.count} requests in {seconds:.1f} s: {rate:.0f} requests/s",
            "p50 {p50_ms:.3f} ms, p90 {p90_ms:.3f} ms, p99 {p99_ms:.3f} ms, max {max_ms:.3f} ms".format(**figures),
        ]
        if failed:
            lines.append(f"{failed} failed: {kinds}")
        if out.as_json:
            out.event(
                "summary",
                None,
                requests=durations.count,
                failed=failed,
                failures=dict(self.failures),
                seconds=round(seconds, 3),
                per_second=round(rate, 1),
                **figures,
            )
            return
        for line in lines:
            out.event("summary", line)


@click.command()
@dials
@click.option(
    "--connections", type=click.IntRange(min=1), default=1, show_default=True, help="How many connections to make."
)
@click.option(
    "--concurrency",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="Requests at a time on each connection; a server takes 100 unless told otherwise.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to measure.",
)
@click.option(
    "--payload", default="null", show_default=True, metavar="JSON", help="What each request carries; - and @FILE too."
)
@reporting()
def bench(out: Output, dial: Dial, connections: int, concurrency: int, seconds: float, payload: str) -> ExitCode:
    """Measure how many requests a server answers in a second, and how long they take.

    Each of --connections makes --concurrency requests at a time, one after another, for --seconds. This program is one
    process on one core, so with a fast server it is what is measured. Ctrl-C ends it early and prints what there is.
    """
    run = Run(typed_payload(payload, dial.codec, "--payload"), dial.timeout)
    with ExitStack() as stack:
        peers: list[Peer] = []
        for _ in range(connections):
            peers.append(stack.enter_context(dial.connected(out)))  # noqa: PERF401
        begun = time.monotonic()
        workers = [gevent.spawn(run.repeat, peer, begun + seconds) for peer in peers for _ in range(concurrency)]
        code = ExitCode.OK
        try:
            with out.progress(lambda so_far: f"{so_far} s of {seconds:g}: {run.durations.count} requests"):
                gevent.joinall(workers)
        except Interrupted:
            code = ExitCode.INTERRUPTED
        finally:
            gevent.killall(workers)
        run.show(out, time.monotonic() - begun)
    if code is ExitCode.OK and run.failures:
        code = ExitCode.LOST if run.lost else ExitCode.FAILED
        out.note(
            "hint: the log of the server says why; each connection may have 100 streams unless the server says more"
        )
    return code


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 3)
