"""C08: how long a message is, is judged before it is read, and the sum of its frames is bounded too."""

from __future__ import annotations

import contextlib
import struct
import time
from collections.abc import Callable
from pathlib import Path

import gevent
import pytest

from tests.cases.green import SERVERS, ask_stream, close_payload, green, heard, resident_bytes
from tests.hosts.client import ClientEnd, exchange, head
from tests.hosts.process import serving
from tests.transports.raw import CONTINUATION, PATIENCE, TEXT, frame

pytestmark = pytest.mark.case("C08")

MAX_GROWTH_BYTES = 8 * 1024 * 1024


def announce(end: ClientEnd, size: int) -> None:
    """The head of a message of that size, and ten bytes of it."""
    end.sock.sendall(b"\x81\xff" + struct.pack(">Q", size) + b"\0\0\0\0" + b"x" * 10)


@pytest.mark.parametrize("kind", SERVERS)
def test_an_announced_length_is_judged_at_once(kind: str) -> None:
    with green(kind=kind) as site:
        # The topmost bit must not be set (RFC 6455 §5.2), so the last two are wrong in two ways.
        for size in (2**17 + 1, 2**30, 2**40, 2**63 - 1, 2**63, 2**64 - 1):
            end = site.open()
            begun = time.monotonic()
            announce(end, size)
            code = int.from_bytes(close_payload(end)[:2], "big")
            assert code == 1009 or (size >= 2**63 and code == 1002)
            assert time.monotonic() - begun < 1.0
        # Others are served.
        other = site.open()
        ask_stream(other, 1, "alive")
        assert heard(other)["payload"] == "alive"


def endless(end: ClientEnd) -> None:
    """One message in a thousand frames, none of which is the last."""
    piece = frame(CONTINUATION, b"x" * 65_536, masked=True, fin=False)
    end.sock.sendall(frame(TEXT, b"x" * 65_536, masked=True, fin=False))
    for _ in range(999):
        end.sock.sendall(piece)


def many_empty(end: ClientEnd) -> None:
    """One message in frames that hold nothing, and then too much."""
    end.sock.sendall(frame(TEXT, b"", masked=True, fin=False))
    end.sock.sendall(frame(CONTINUATION, b"", masked=True, fin=False) * 50_000)
    endless_tail = frame(CONTINUATION, b"x" * 65_536, masked=True, fin=False)
    for _ in range(999):
        end.sock.sendall(endless_tail)


def huge(end: ClientEnd) -> None:
    announce(end, 2**40)


@pytest.mark.slow
@pytest.mark.host
@pytest.mark.parametrize("host", ["pywsgi", "server"])
def test_memory_does_not_grow_with_what_a_client_announces_or_sends(host: str, tmp_path: Path) -> None:
    with serving(host, tmp_path, "doors/plain") as server:

        def attack(how: Callable[[ClientEnd], None]) -> None:
            answer = exchange(server.connect(), head())
            assert answer.status == 101
            # Cut off while it sends, at the latest when it reads.
            with contextlib.suppress(OSError):
                how(answer.end)
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                assert close_payload(answer.end)[:2] == b"\x03\xf1"

        attack(huge)
        before = resident_bytes(server.process.pid)
        attacks = [gevent.spawn(attack, how) for how in (huge, endless, many_empty) * 5]
        with gevent.Timeout(PATIENCE):
            gevent.joinall(attacks, raise_error=True)
        assert resident_bytes(server.process.pid) - before < MAX_GROWTH_BYTES
        assert server.errors() == ""
