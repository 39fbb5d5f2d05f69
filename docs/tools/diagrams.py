"""Writes the diagrams in docs/diagrams from the tables, the arithmetic and the defaults of the code itself.

python docs/tools/diagrams.py           writes them
python docs/tools/diagrams.py --check   fails where one would be another

Nothing is measured, and by hand only the boxes are placed: transitions are looked up in the table of states, pings and
deaths are what the heartbeat policies say to a clock of numbers, batches are what a connection gives its writer.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
# Behind what is installed.
sys.path.append(str(ROOT))

from muxws_green.codecs.envelopes import bulk_of, envelopes_of  # noqa: E402
from muxws_green.codecs.json import JsonCodec  # noqa: E402
from muxws_green.errors import HeartbeatTimeoutError  # noqa: E402
from muxws_green.protocol.backoff import Reconnect, backoff_delay, unjittered_delay  # noqa: E402
from muxws_green.protocol.connection import Connection  # noqa: E402
from muxws_green.protocol.fragments import MAX_FRAME_BYTES  # noqa: E402
from muxws_green.protocol.lanes import BATCH_BYTES, Lanes  # noqa: E402
from muxws_green.protocol.liveness import CountingHeartbeat, IdleHeartbeat  # noqa: E402
from muxws_green.protocol.states import TABLE, StreamState  # noqa: E402
from muxws_green.runtime.inbox import HARD_FACTOR  # noqa: E402
from muxws_green.runtime.options import Options  # noqa: E402

FOLDER = ROOT / "docs" / "diagrams"

INK, FAINT, BLUE, GREEN, RED, AMBER = "#24292f", "#8c959f", "#0969da", "#1a7f37", "#cf222e", "#bf8700"


class Drawing:
    """An SVG picture; coordinates are pixels, y grows downwards."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"',
            'font-family="sans-serif" font-size="13" role="img">',
            f"<title>{escape(title)}</title>",
            '<defs><marker id="arrow" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7"',
            f'orient="auto-start-reverse"><path d="M0 0 10 5 0 10z" fill="{INK}"/></marker></defs>',
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        ]

    def text(self, x: float, y: float, text: str, *, fill: str = INK, anchor: str = "middle", size: int = 13) -> None:
        """One line of text; `y` is its base line."""
        self._parts.append(
            f'<text x="{x:g}" y="{y:g}" fill="{fill}" text-anchor="{anchor}" font-size="{size}">{escape(text)}</text>'
        )

    def box(self, x: float, y: float, width: float, height: float, fill: str, stroke: str = "none") -> None:
        """A rectangle."""
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="3" fill="{fill}" stroke="{stroke}"/>'
        )

    def line(
        self, x: float, y: float, to_x: float, to_y: float, stroke: str = INK, *, arrow: bool = False, dash: str = ""
    ) -> None:
        """A straight line."""
        marks = (' marker-end="url(#arrow)"' if arrow else "") + (f' stroke-dasharray="{dash}"' if dash else "")
        self._parts.append(f'<line x1="{x:g}" y1="{y:g}" x2="{to_x:g}" y2="{to_y:g}" stroke="{stroke}"{marks}/>')

    def dot(self, x: float, y: float, fill: str) -> None:
        """A point of a timeline."""
        self._parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="4" fill="{fill}"/>')

    def __str__(self) -> str:
        return "\n".join([*self._parts, "</svg>\n"])


def transitions() -> dict[tuple[StreamState, StreamState], list[str]]:
    """From and to, and the events that do it, as the table of states has them; only what changes the state."""
    found: dict[tuple[StreamState, StreamState], list[str]] = {}
    for state, events in TABLE.items():
        for event, outcome in events.items():
            if isinstance(outcome, StreamState) and outcome is not state:
                found.setdefault((state, outcome), []).append(event.value)
    return found


def states() -> Drawing:
    """The life of a stream."""
    drawing = Drawing(860, 440, "The states of a stream and what leads from one to another")
    places = {
        StreamState.IDLE: (430, 40),
        StreamState.OPEN: (430, 140),
        StreamState.HALF_CLOSED_LOCAL: (190, 250),
        StreamState.HALF_CLOSED_REMOTE: (670, 250),
        StreamState.CLOSED: (430, 395),
    }
    half_width, half_height = 80, 17
    for (state, outcome), events in transitions().items():
        (x, y), (to_x, to_y) = places[state], places[outcome]
        side = (to_x > x) - (to_x < x)
        if state is StreamState.IDLE and side:
            # Around the state in between.
            drawing.line(x + half_width, y, to_x, to_y - half_height, arrow=True)
            spot = (to_x - 30, (y + to_y) / 2 - 30, "start")
        elif outcome is StreamState.CLOSED and side:
            drawing.line(x, y + half_height, to_x - side * half_width, to_y - 5, arrow=True)
            spot = (x, y + 60, "end" if side > 0 else "start")
        elif side:
            drawing.line(x + side * half_width, y + 10, to_x, to_y - half_height, arrow=True)
            # Left of its line on either side; on the right another line is above it.
            spot = (x + 128, y + 62, "end") if side > 0 else (x - 95, y + 5, "end")
        else:
            drawing.line(x, y + half_height, to_x, to_y - half_height, arrow=True)
            spot = (x + 8, y + (130 if outcome is StreamState.CLOSED else 45), "start")
        for number, event in enumerate(events):
            drawing.text(spot[0], spot[1] + 16 * number, event, fill=BLUE, anchor=spot[2], size=12)
    for state, (x, y) in places.items():
        drawing.box(x - half_width, y - half_height, 2 * half_width, 2 * half_height, "#ddf4ff", INK)
        drawing.text(x, y + 4, state.value)
    return drawing


def backoff() -> Drawing:
    """The waits of the default schedule, and how far jitter moves each."""
    schedule, failures = Reconnect(), range(9)
    drawing = Drawing(860, 330, "Seconds that a dialer waits after so many failures in a row")
    longest = backoff_delay(failures[-1], schedule, lambda: 1.0)
    bottom, height, step = 280, 230, 84
    for number in failures:
        middle, low, high = (
            unjittered_delay(number, schedule),
            backoff_delay(number, schedule, lambda: -1.0),
            backoff_delay(number, schedule, lambda: 1.0),
        )
        x = 60 + number * step
        tall = height * middle / longest
        drawing.box(x, bottom - tall, 40, tall, "#b6e3ff")
        drawing.line(x + 20, bottom - height * low / longest, x + 20, bottom - height * high / longest, BLUE)
        for end in (low, high):
            y = bottom - height * end / longest
            drawing.line(x + 12, y, x + 28, y, BLUE)
        drawing.text(x + 20, bottom - height * high / longest - 7, f"{middle:g} s")
        drawing.text(x + 20, bottom + 18, str(number))
    drawing.line(40, bottom, 830, bottom)
    drawing.text(
        430, bottom + 40, "failures in a row, and the wait that follows; the blue lines are its jitter", fill=FAINT
    )
    return drawing


def beats(policy: Any, traffic: list[float], dead: float, until: float) -> tuple[list[float], float]:
    """What a policy does: the times of its pings, and when it gives the remote up.

    Args:
        policy: A heartbeat policy.
        traffic: When the remote sends something by itself.
        dead: From when on it answers nothing. Before, each ping is answered at once.
        until: The last time to look at.
    """
    beat = policy.start(0.0, map(str, itertools.count()).__next__)
    pings: list[float] = []
    arrivals = iter([*traffic, float("inf")])
    arrival = next(arrivals)
    while True:
        due = beat.due()
        if arrival <= due:
            beat.received(arrival)
            arrival = next(arrivals)
            continue
        if due > until:
            raise ValueError(f"{policy} has not given up after {until} s")
        try:
            nonce = beat.look(due)
        except HeartbeatTimeoutError:
            return pings, due
        if nonce is not None:
            pings.append(due)
            if due < dead:
                beat.received(due)


def heartbeats() -> Drawing:
    """Both policies with the same remote, which talks, falls silent, and dies."""
    traffic, dead, until = [2.0, 5.0, 9.0, 14.0], 37.0, 80.0
    drawing = Drawing(860, 260, "When the two heartbeat policies ping, and when they give up a remote that has died")
    left, scale = 150, 9.2

    def at(seconds: float) -> float:
        return left + seconds * scale

    for number, (name, policy) in enumerate(
        (("IdleHeartbeat()", IdleHeartbeat()), ("CountingHeartbeat()", CountingHeartbeat()))
    ):
        y = 70 + 85 * number
        pings, given_up = beats(policy, traffic, dead, until)
        drawing.text(left - 8, y + 4, name, anchor="end", size=12)
        drawing.line(at(0), y, at(given_up), y)
        for time in traffic:
            drawing.dot(at(time), y, GREEN)
        for time in pings:
            drawing.line(at(time), y - 12, at(time), y + 12, BLUE if time < dead else AMBER)
            drawing.text(at(time), y - 17, f"{time:g}", fill=BLUE if time < dead else AMBER, size=11)
        drawing.line(at(given_up), y - 14, at(given_up), y + 14, RED)
        drawing.text(at(given_up) + 6, y + 4, f"given up at {given_up:g} s", fill=RED, anchor="start")
    drawing.line(at(dead), 30, at(dead), 195, RED, dash="4 4")
    drawing.text(at(dead), 24, f"the remote dies at {dead:g} s", fill=RED)
    drawing.dot(left, 222, GREEN)
    drawing.text(left + 10, 226, "a frame of the remote", anchor="start", size=12)
    drawing.line(left + 170, 212, left + 170, 232, BLUE)
    drawing.text(left + 180, 226, "a ping that is answered", anchor="start", size=12)
    drawing.line(left + 345, 212, left + 345, 232, AMBER)
    drawing.text(left + 355, 226, "a ping that is not", anchor="start", size=12)
    return drawing


class _Deaf:
    """The sink of a connection that hears nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: None


def batches() -> list[list[tuple[int, int]]]:
    """What a connection gives its writer, batch by batch, as (stream, bytes) of each message; 0 is the connection.

    Two streams send bulk. A small call is made, and a ping is due, when one batch has left.
    """
    codec, options = JsonCodec(), Options(codec=JsonCodec())
    core = Connection(
        codec,
        envelopes_of(codec),
        bulk_of(codec),
        _Deaf(),
        Lanes(options.send_buffer_bytes),
        dialer=True,
        max_frame_bytes=options.max_frame_bytes,
        max_payload_bytes=options.max_payload_bytes,
        max_concurrent_streams=options.max_concurrent_streams,
    )
    for _ in range(2):
        core.open(codec.encode_payload("x" * 150_000), end=True)
    taken = [core.take_batch()]
    core.open(codec.encode_payload({"small": "call"}), end=True)
    core.ping("1")
    while batch := core.take_batch():
        taken.append(batch)
    return [[(json.loads(message).get("stream", 0), len(message)) for message in batch] for batch in taken]


def lanes() -> Drawing:
    """The order in which streams leave."""
    drawing = Drawing(860, 215, "What leaves in which batch while two streams send bulk and a small call is made")
    colours = {0: "#ffdf5d", 1: "#b6e3ff", 3: "#d8b9ff", 5: "#aceebb"}
    x = 30.0
    for number, batch in enumerate(batches()):
        start = x
        for stream, size in batch:
            width = max(16.0, size / 520)
            drawing.box(x, 60, width, 50, colours[stream], INK)
            drawing.text(x + width / 2, 90, "ping" if stream == 0 and width > 30 else str(stream or "p"))
            if size > 1000:
                drawing.text(x + width / 2, 126, f"{size / 1024:.0f} KiB", fill=FAINT, size=11)
            x += width
        drawing.text((start + x) / 2, 48, f"batch {number + 1}", fill=FAINT, size=12)
        if number == 0:
            drawing.text(
                x + 6, 20, "here a small call (stream 5) is made, and a ping (p) is due", anchor="start", fill=RED
            )
            drawing.line(x + 6, 26, x + 6, 56, RED, arrow=True)
        x += 12
    drawing.text(30, 160, "streams 1 and 3: 150,000 bytes each, queued before the first batch", anchor="start", size=12)
    drawing.text(
        30,
        180,
        f"a message is at most {MAX_FRAME_BYTES:,} bytes; what is small goes up to {BATCH_BYTES:,} bytes in one batch",
        anchor="start",
        size=12,
    )
    return drawing


def receiving() -> Drawing:
    """What becomes of payloads that nobody takes."""
    soft = Options(codec=JsonCodec()).receive_buffer_bytes
    pause = Options(codec=JsonCodec()).receive_pause_timeout
    hard = HARD_FACTOR * soft
    mib = 1_048_576
    drawing = Drawing(860, 190, "What happens while payloads that have arrived are not taken")
    left, scale, y = 30, 800 / hard, 80
    for start, end, fill, says in (
        (0, soft / 2, "#dafbe1", "reading"),
        (soft / 2, soft, "#fff8c5", "as before"),
        (soft, hard, "#ffebe9", "paused"),
    ):
        drawing.box(left + start * scale, y, (end - start) * scale, 44, fill, INK)
        drawing.text(left + (start + end) / 2 * scale, y + 20, says, size=12)
    drawing.text(
        left + (soft + hard) / 2 * scale,
        y + 36,
        f"no progress for {pause:g} s: the stream that holds most is reset",
        size=12,
    )
    for mark, above in ((soft / 2, "reads again"), (soft, "pauses"), (hard, "resets at once")):
        x = left + mark * scale
        drawing.line(x, y - 12, x, y + 60)
        drawing.text(x, y - 18, above, anchor="end" if mark == hard else "middle", size=12)
        drawing.text(x, y + 76, f"{mark / mib:g} MiB", anchor="end" if mark == hard else "middle", size=12)
    drawing.text(left, 30, "held on one connection, in encoded bytes", anchor="start", fill=FAINT)
    return drawing


DIAGRAMS = {
    "states": states,
    "backoff": backoff,
    "heartbeats": heartbeats,
    "lanes": lanes,
    "receiving": receiving,
}


def main() -> int:
    """Write the files, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a file is stale")
    check = parser.parse_args().check
    stale = []
    for name, draw in DIAGRAMS.items():
        path, fresh = FOLDER / f"{name}.svg", str(draw())
        if not check:
            FOLDER.mkdir(exist_ok=True)
            path.write_text(fresh, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != fresh:
            stale.append(str(path))
    if stale:
        print(f"stale: {', '.join(stale)}; run {Path(__file__).name}", file=sys.stderr)
    return int(bool(stale))


if __name__ == "__main__":
    sys.exit(main())
