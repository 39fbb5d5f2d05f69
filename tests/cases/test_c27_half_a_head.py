"""C27: half a request holds its place for no longer than the deadline, while others are served."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import gevent
import pytest
from gevent.pool import Pool

from muxws_green import connect
from tests.cases.green import green, seconds_to_eof
from tests.hosts.client import exchange, head, secure
from tests.transports.raw import PATIENCE, server_context

pytestmark = pytest.mark.case("C27")

DEADLINE = 0.3


def dribble(sock: Any, data: bytes) -> None:
    """One byte after another, for as long as it is taken."""
    with contextlib.suppress(OSError):
        for byte in data:
            sock.sendall(bytes((byte,)))
            gevent.sleep(0.03)


@pytest.mark.slow
def test_a_slow_head_is_cut_off_while_a_good_client_is_served() -> None:
    with green(kind="server", head_timeout=DEADLINE, spawn=Pool(3)) as site:
        slow = [site.connect() for _ in range(2)]
        dribbling = [gevent.spawn(dribble, sock, head()[:-4] + b"\r\nX: " + b"y" * 10_000) for sock in slow]
        begun = time.monotonic()
        with connect(site.url, heartbeat=None) as peer:
            for number in range(5):
                assert peer.request(number, timeout=PATIENCE) == number
            for sock in slow:
                seconds_to_eof(sock)
            assert time.monotonic() - begun < DEADLINE + 1.0
            assert peer.request("still", timeout=PATIENCE) == "still"
        gevent.killall(dribbling)
        # They were no requests.
        assert site.log.getvalue().count("\n") == 1


@pytest.mark.slow
def test_so_is_a_slow_beginning_of_tls() -> None:
    with green(kind="server", head_timeout=DEADLINE, ssl_context=server_context()) as site:
        silent, half = site.connect(), site.connect()
        # A handshake record that announces more than will come.
        half.sendall(b"\x16\x03\x01\x02\x00\x01")
        begun = time.monotonic()
        sock = secure(site.connect())
        assert exchange(sock, head()).status == 101
        for slow in (silent, half):
            seconds_to_eof(slow)
        assert time.monotonic() - begun < DEADLINE + 1.0
        sock.close()


@pytest.mark.parametrize("never", [0, None])
def test_there_need_be_no_deadline(never: float | None) -> None:
    with green(kind="server", head_timeout=never) as site:
        sock = site.connect()
        data = head()
        sock.sendall(data[:20])
        sock.settimeout(0.1)
        with pytest.raises(TimeoutError):
            sock.recv(1)
        sock.settimeout(PATIENCE)
        assert exchange(sock, data[20:]).status == 101


def test_a_peer_is_not_cut_off_by_it() -> None:
    with green(kind="server", head_timeout=0.05) as site, connect(site.url, heartbeat=None) as peer:
        gevent.sleep(0.15)
        assert peer.request("alive", timeout=PATIENCE) == "alive"
