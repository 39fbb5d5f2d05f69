"""`ping`: measures round trips, one after another, and sums them up."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import click
import gevent

from muxws_green.cli.codes import ExitCode
from muxws_green.cli.interrupts import Interrupted
from muxws_green.cli.options import Dial, dials, reporting
from muxws_green.cli.output import Output
from muxws_green.errors import ConnectionClosed, ConnectionLost
from muxws_green.runtime.peer import Peer


@dataclass
class Tally:
    """What came of the pings so far; no more is kept for a million of them."""

    sent: int = 0
    received: int = 0
    total: float = 0.0
    least: float = field(default=float("inf"))
    most: float = 0.0

    def add(self, seconds: float) -> None:
        """Count a pong."""
        self.received += 1
        self.total += seconds
        self.least = min(self.least, seconds)
        self.most = max(self.most, seconds)

    def show(self, out: Output, url: str) -> None:
        """Print the sum."""
        loss = round(100 * (self.sent - self.received) / self.sent, 1) if self.sent else 0.0
        figures: dict[str, float | None] = {"min_ms": None, "avg_ms": None, "max_ms": None}
        times = ""
        if self.received:
            figures = {
                "min_ms": _ms(self.least),
                "avg_ms": _ms(self.total / self.received),
                "max_ms": _ms(self.most),
            }
            times = "; round trip min/avg/max = " + "/".join(f"{value:.3f}" for value in figures.values()) + " ms"
        out.event(
            "summary",
            f"--- {url}: {self.sent} sent, {self.received} received, {loss:g}% lost{times}",
            sent=self.sent,
            received=self.received,
            loss_percent=loss,
            **figures,
        )


@click.command()
@dials
@click.option(
    "--count", type=click.IntRange(min=0), default=0, show_default=True, help="How many pings; 0: until Ctrl-C."
)
@click.option(
    "--interval",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="From one ping to the next.",
)
@reporting()
def ping(out: Output, dial: Dial, count: int, interval: float) -> ExitCode:
    """Measure the round trip to a server, again and again.

    Prints each, and in the end, or at Ctrl-C, how many were lost, the least, the mean and the most. The server answers
    without its application.
    """
    tally = Tally()
    # The pings of a heartbeat would end the connection to a server that only pauses.
    with dial.connected(out, heartbeat=None) as peer:
        try:
            _ping(out, dial, peer, tally, count, interval)
        except Interrupted:
            # The ordinary end, as of other programs of this name.
            pass
        finally:
            tally.show(out, dial.shown)
    return ExitCode.OK if tally.received else ExitCode.FAILED


def _ping(out: Output, dial: Dial, peer: Peer, tally: Tally, count: int, interval: float) -> None:
    while True:
        begun = time.monotonic()
        tally.sent += 1
        try:
            seconds = peer.ping(timeout=dial.timeout)
        except (ConnectionClosed, ConnectionLost):
            if not peer.is_open:
                raise
            out.event("lost", f"no pong within {dial.timeout:g} s: seq={tally.sent}", seq=tally.sent)
        else:
            tally.add(seconds)
            human = f"pong from {dial.shown}: seq={tally.sent} time={_ms(seconds):.3f} ms"
            out.event("pong", human, seq=tally.sent, ms=_ms(seconds))
        if tally.sent == count:
            return
        gevent.sleep(max(0.0, begun + interval - time.monotonic()))


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 3)
