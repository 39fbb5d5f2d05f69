"""What a peer costs that sends one thing for ever, as fast as it can, and never reads.

Each flood goes on for several rounds. It must end that connection, or make it pause, or cost the same memory after the
last round as after the one before; and all the while another connection is served.
"""

from __future__ import annotations

import gc
import itertools
import logging
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import gevent
import pytest

from muxws_green import Peer, connect
from muxws_green.testing import Opcode, RawClient, encode_frame, settle
from tests.serving import PATIENCE, Served, client, frames, push, until

LIMITS: dict[str, Any] = {
    "send_buffer_bytes": 400_000,
    "receive_buffer_bytes": 200_000,
    "max_payload_bytes": 300_000,
    "max_concurrent_streams": 20,
}
ROUNDS = 4
#: What a connection may cost in all: the limits above with what Python takes for them, and the answers that wait for no
#: room (`OVERDUE_BYTES`).
MOST_BYTES = 16 * 2**20
#: Which part of what the last round sent it may have left behind.
FLAT = 0.2


@dataclass
class Flood:
    """One thing to send for ever.

    Attributes:
        make: Yields what to send next, each time anew.
        outcome: "on": the connection goes on; "over": it is ended; "paused": it is not read any more for a while.
        before: What is sent and answered first.
        round_bytes: How much a round is; less of what costs much to read.
    """

    make: Callable[[RawClient], Iterator[bytes]]
    outcome: str
    before: tuple[dict[str, Any], ...] = ()
    round_bytes: int = 250_000


def sent(make: Callable[[int], tuple[dict[str, Any], ...]]) -> Callable[[RawClient], Iterator[bytes]]:
    """A flood of muxws frames, made of a count."""
    return lambda raw: (frames(raw, *make(count)) for count in itertools.count())


def wire(*which: tuple[int, bytes, bool]) -> Callable[[RawClient], Iterator[bytes]]:
    """A flood of WebSocket frames."""
    return lambda raw: itertools.cycle(
        [encode_frame(opcode, payload, masked=True, fin=fin) for opcode, payload, fin in which]
    )


def odd(count: int) -> int:
    """A stream id that has not been used."""
    return 2 * count + 11


def opened(count: int, payload: Any = None, **fields: Any) -> dict[str, Any]:
    return {"type": "open", "stream": odd(count), "payload": payload, **fields}


WAITING = {"type": "open", "stream": 1, "payload": "wait"}
CLOSED = {"type": "open", "stream": 1, "payload": "echo", "end": True}
PADDING = "p" * 1_000

FLOODS = {
    # Frames of the connection.
    "pings": Flood(sent(lambda n: ({"type": "ping", "nonce": f"{n}{PADDING}"},)), "over"),
    "pings without a nonce": Flood(sent(lambda n: ({"type": "ping"},)), "on"),
    "pings with half a character": Flood(
        wire((Opcode.TEXT, b'{"type": "ping", "nonce": "\\ud800' + PADDING.encode() + b'"}', True)), "on"
    ),
    "pongs": Flood(sent(lambda n: ({"type": "pong", "nonce": f"{n}{PADDING}"},)), "on"),
    "goaways": Flood(sent(lambda n: ({"type": "goaway", "code": n, "reason": f"{n}{PADDING}"},)), "on"),
    "unknown types": Flood(sent(lambda n: ({"type": f"t{n}{PADDING}"},)), "on"),
    "unknown fields": Flood(sent(lambda n: ({"type": "pong", f"f{n}": PADDING},)), "on"),
    # Opens.
    "calls": Flood(sent(lambda n: (opened(n, "echo", end=True),)), "over"),
    "calls that wait": Flood(sent(lambda n: (opened(n, "wait", headers={"h": n}),)), "over"),
    "opens in fragments": Flood(
        sent(lambda n: ({"type": "open", "stream": odd(n), "fragment": "x" * 9, "more": True},)), "over"
    ),
    "opens that are reset": Flood(
        sent(lambda n: (opened(n, "wait"), {"type": "reset", "stream": odd(n), "code": 1000 + n})), "over"
    ),
    "calls that are reset": Flood(
        sent(lambda n: (opened(n, "echo", end=True), {"type": "reset", "stream": odd(n), "code": -n})), "over"
    ),
    "opens over the cap": Flood(sent(lambda n: (opened(n, "x" * 70_000),)), "on"),
    "opens that fail": Flood(sent(lambda n: (opened(n, "fail", end=True),)), "over"),
    "data that comes late": Flood(
        sent(lambda n: ({"type": "data", "stream": 1, "payload": PADDING},)), "on", (CLOSED,)
    ),
    "opens that come late": Flood(
        sent(lambda n: ({"type": "open", "stream": 1, "fragment": PADDING, "more": True},)), "on", (CLOSED,)
    ),
    "resets that come late": Flood(sent(lambda n: ({"type": "reset", "stream": 1, "code": n},)), "on", (CLOSED,)),
    # Data.
    "data that nobody takes": Flood(
        sent(lambda n: ({"type": "data", "stream": 1, "payload": PADDING},)), "paused", (WAITING,)
    ),
    "small data that nobody takes": Flood(
        sent(lambda n: ({"type": "data", "stream": 1, "payload": {}},)), "paused", (WAITING,)
    ),
    "frames without payload": Flood(sent(lambda n: ({"type": "data", "stream": 1},)), "on", (WAITING,)),
    "empty fragments": Flood(
        sent(lambda n: ({"type": "data", "stream": 1, "fragment": "", "more": True},)), "on", (WAITING,)
    ),
    "short fragments": Flood(
        sent(lambda n: ({"type": "data", "stream": 1, "fragment": "xy", "more": True},)), "on", (WAITING,)
    ),
    # WebSocket.
    "WebSocket pings": Flood(wire((Opcode.PING, b"x" * 125, True)), "on"),
    "empty WebSocket pings": Flood(wire((Opcode.PING, b"", True)), "on", (), 30_000),
    "WebSocket pongs": Flood(wire((Opcode.PONG, b"x" * 125, True)), "on"),
    "empty messages": Flood(wire((Opcode.TEXT, b"", True)), "over"),
    "empty continuations": Flood(
        lambda raw: itertools.chain(
            [encode_frame(Opcode.TEXT, b"", masked=True, fin=False)],
            itertools.repeat(encode_frame(Opcode.CONTINUATION, b"", masked=True, fin=False)),
        ),
        "over",
    ),
    "short continuations": Flood(
        lambda raw: itertools.chain(
            [encode_frame(Opcode.TEXT, b"{", masked=True, fin=False)],
            itertools.repeat(encode_frame(Opcode.CONTINUATION, b" " * 8, masked=True, fin=False)),
        ),
        "over",
    ),
    "whole messages in many pieces": Flood(
        wire(
            (Opcode.TEXT, b'{"type":', False),
            *[(Opcode.CONTINUATION, b" ", False)] * 60,
            (Opcode.CONTINUATION, b'"pong"}', True),
        ),
        "on",
        (),
        30_000,
    ),
}


def handler(payload: Any, stream: Any) -> None:
    if payload == "wait":
        stream.closed.wait()
    elif payload == "fail":
        raise RuntimeError("as it was asked to")
    else:
        stream.reply(payload)


def rounds(raw: RawClient, flood: Flood) -> Iterator[bytes]:
    made = flood.make(raw)
    for _ in range(ROUNDS):
        parts, size = [], 0
        while size < flood.round_bytes:
            parts.append(next(made))
            size += len(parts[-1])
        yield b"".join(parts)


def is_paused(peer: Peer) -> bool:
    return peer._link is not None and peer._link.intake.paused


class _Names(logging.Handler):
    """Keeps the loggers' names, and of the records nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.names.append(record.name)


@pytest.fixture
def logged(caplog):
    """The names of the loggers that log; records are not kept, which would count as memory."""
    names, root, level = _Names(), logging.getLogger(), caplog.handler.level
    caplog.handler.setLevel(100)
    root.addHandler(names)
    yield names.names
    root.removeHandler(names)
    caplog.handler.setLevel(level)


@pytest.mark.slow
@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_costs_its_own_connection_and_little(name, logged):
    flood = FLOODS[name]
    with Served(handler, **LIMITS) as served, connect(served.url, heartbeat=None) as beside:
        assert beside.request("echo", timeout=PATIENCE) == "echo"
        # A window that is soon full: what the remote does not read is ours to keep.
        with client(served, receive_buffer_bytes=65_536) as raw:
            peer = served.peer
            for frame in flood.before:
                raw.send(frame)
                if frame.get("end"):
                    raw.expect("data")
            chunks = list(rounds(raw, flood))
            held: list[int] = []
            total = 0
            tracemalloc.start()
            # What measures coverage keeps a table of the greenlets, which it makes anew for every ten.
            gevent.joinall([gevent.spawn(lambda: None) for _ in range(20)])
            try:
                for chunk in chunks:
                    pushing = gevent.spawn(push, raw, chunk)
                    until(lambda: pushing.dead or peer.is_closed or is_paused(peer))  # noqa: B023
                    assert beside.request("echo", timeout=PATIENCE) == "echo"
                    if not pushing.dead:
                        pushing.kill()
                        break
                    total += pushing.value
                    until(lambda: peer.is_closed or is_paused(peer) or peer.stats.bytes_received >= total)  # noqa: B023
                    settle()
                    gc.collect()
                    held.append(tracemalloc.get_traced_memory()[0])
                _, most = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            if flood.outcome == "over":
                until(lambda: peer.is_closed)
            elif flood.outcome == "paused":
                assert is_paused(peer)
                assert peer.stats.held_bytes < 2 * LIMITS["receive_buffer_bytes"]
            else:
                assert peer.is_open
                assert held[-1] - held[-2] < FLAT * flood.round_bytes
                assert len(peer.streams) <= LIMITS["max_concurrent_streams"]
            assert most < MOST_BYTES
        assert beside.request("echo", timeout=PATIENCE) == "echo"
        # A reader that has paused hears of that when its pause is over.
        if flood.outcome != "paused":
            until(lambda: peer.is_closed)
            assert served.app.peers == [served.peers[0]]
    # A handler that fails is the application's matter; what the remote alone does is told a limited number of times.
    assert len(logged) < 200 or name == "opens that fail"
