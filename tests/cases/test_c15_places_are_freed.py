"""C15: a server with few places serves on, in whatever way its clients vanish."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from gevent.pool import Pool

from tests.cases.green import SERVERS, ask_stream, close_payload, green, heard
from tests.hosts.client import ClientEnd
from tests.transports.raw import CLOSE, PING, TEXT, close_frame, frame

pytestmark = [pytest.mark.case("C15"), pytest.mark.slow]


def close_politely(end: ClientEnd) -> None:
    end.sock.sendall(close_frame(1000, masked=True))
    end.rest()


def fin(end: ClientEnd) -> None:
    end.sock.close()


def reset(end: ClientEnd) -> None:
    end.reset()


def be_silent(end: ClientEnd) -> None:
    """Keep the socket and say nothing more, until the heartbeat gives it up."""
    end.rest()


def half_a_frame(end: ClientEnd) -> None:
    end.sock.sendall(frame(TEXT, b"x" * 100, masked=True)[:60])
    end.sock.close()


def violate(end: ClientEnd) -> None:
    end.sock.sendall(frame(TEXT, b"x", masked=False))
    close_payload(end)
    end.sock.close()


def close_and_stay(end: ClientEnd) -> None:
    """Close, and never close the socket."""
    end.send(CLOSE, b"\x03\xe8")
    close_payload(end)


def ping_without_reading(end: ClientEnd) -> None:
    for _ in range(200):
        end.send(PING, b"x" * 125)
    end.reset()


def leave_while_served(end: ClientEnd) -> None:
    """Vanish while a handler is at work."""
    ask_stream(end, 1, "wait")
    end.sock.close()


WAYS: list[Callable[[ClientEnd], None]] = [
    close_politely,
    fin,
    reset,
    be_silent,
    half_a_frame,
    violate,
    close_and_stay,
    ping_without_reading,
    leave_while_served,
]


@pytest.mark.parametrize("kind", SERVERS)
def test_the_next_client_is_served(kind: str) -> None:
    def handler(payload: Any, stream: Any) -> None:
        if payload == "wait":
            stream.receive()
        stream.reply(payload)

    with green(handler, kind=kind, spawn=Pool(2), ping_interval=0.1, ping_timeout=0.1) as site:
        for vanish in WAYS * 2 + [fin, reset]:
            vanish(site.open())
        begun = time.monotonic()
        end = site.open()
        ask_stream(end, 1, "served")
        while (answer := heard(end))["type"] == "ping":
            pass
        assert answer["payload"] == "served"
        assert time.monotonic() - begun < 2.0
        assert len(site.peers) == len(WAYS) * 2 + 3
