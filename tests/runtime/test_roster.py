"""Sending every peer away: at once, for as long as they need, and no longer."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import gevent
import pytest
from gevent.event import Event

from muxws_green.runtime import roster
from muxws_green.runtime.home import Home
from muxws_green.testing import peer_pair
from tests.alive import alive


class Leaver:
    """Takes until `quiet` to close, or until its drain is over."""

    def __init__(self, name: str = "p", *, quiet: bool = True) -> None:
        self.id = name
        self.is_closed = False
        self.closed_with: tuple[int, str] | None = None
        self.closed_in: int | None = None
        self.quiet = Event()
        if quiet:
            self.quiet.set()
        self._home = Home()

    def _close(self, *, ws_code: int, reason: str, drain: float) -> None:
        self.quiet.wait(drain)
        self.closed_with = ws_code, reason
        self.closed_in = threading.get_ident()
        self.is_closed = True

    def run_threadsafe(self, function: Any) -> Future[Any]:
        return self._home.run_threadsafe(function)

    def disown(self) -> None:
        self.is_closed = True


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    roster.live.clear()
    yield
    roster.reopen()
    roster.live.clear()


def test_all_leave_at_once_and_it_returns_when_the_last_is_gone():
    peers = [Leaver(str(number), quiet=False) for number in range(50)]
    draining = gevent.spawn(roster.drain, peers, 30.0)
    gevent.idle()
    for peer in peers[1:]:
        peer.quiet.set()
    gevent.idle()
    assert [peer.is_closed for peer in peers] == [False] + [True] * 49
    assert not draining.ready()
    peers[0].quiet.set()
    assert draining.get(timeout=1) == 0
    assert {peer.closed_with for peer in peers} == {(1001, "server is going away")}


def test_nobody_has_longer_than_all():
    peers = [Leaver(quiet=False) for _ in range(20)]
    begun = time.monotonic()
    assert roster.drain(peers, 0.1, code=1012) == 0
    assert time.monotonic() - begun < 1
    assert {peer.closed_with for peer in peers} == {(1012, roster.REASON)}


@pytest.mark.parametrize("timeout", [0, -1.0])
def test_there_may_be_no_time_at_all(timeout):
    peer = Leaver(quiet=False)
    assert roster.drain([peer], timeout) == 0
    assert peer.is_closed


def test_closed_peers_are_left_alone():
    peer = Leaver()
    peer.is_closed = True
    assert roster.drain([peer], 1.0) == 0
    assert peer.closed_with is None


def test_one_that_hangs_is_counted_and_not_waited_for(monkeypatch):
    monkeypatch.setattr(roster, "CLOSING_SECONDS", 0.05)
    hanging, other = Leaver(), Leaver()
    stuck = Event()
    hanging._close = lambda **_: stuck.wait()
    assert roster.drain([hanging, other], 0.0) == 1
    assert other.is_closed
    stuck.set()


def test_the_set_keeps_nobody_alive():
    roster.add(Leaver())
    gc.collect()
    assert len(roster.live) == 0
    peer = Leaver()
    roster.add(peer)
    roster.add(peer)
    assert list(roster.live) == [peer]


def test_peers_in_memory_were_not_accepted():
    with peer_pair(codec="json") as (dialer, acceptor):
        assert list(roster.live) == []
        assert roster.drain_all(0.1) == 0
        assert acceptor.is_open
        assert dialer.is_open


def test_draining_all_closes_the_door_until_it_is_opened_again():
    peer = Leaver()
    roster.add(peer)
    assert roster.is_open()
    assert roster.drain_all(1.0) == 0
    assert peer.is_closed
    assert not roster.is_open()
    roster.reopen()
    assert roster.is_open()


def test_the_door_is_closed_before_anybody_is_sent_away():
    seen = []
    peer = Leaver()
    peer._close = lambda **_: seen.append(roster.is_open())
    roster.add(peer)
    roster.drain_all(0)
    assert seen == [False]


def test_peers_of_another_threads_hub_close_there():
    made: list[Leaver] = []
    ready, over = threading.Event(), threading.Event()

    def elsewhere():
        made.append(Leaver())
        ready.set()
        while not over.is_set():
            gevent.sleep(0.001)
        gevent.get_hub().destroy()

    thread = threading.Thread(target=elsewhere)
    thread.start()
    try:
        assert ready.wait(5)
        here = Leaver()
        assert roster.drain([here, *made], 1.0) == 0
        assert made[0].closed_in == thread.ident
        assert here.closed_in == threading.get_ident()
    finally:
        over.set()
        thread.join(5)


def test_one_in_a_thread_that_is_blocked_is_counted_and_not_waited_for(monkeypatch):
    monkeypatch.setattr(roster, "CLOSING_SECONDS", 0.05)
    made: list[Leaver] = []
    ready, over = threading.Event(), threading.Event()

    def elsewhere():
        made.append(Leaver("slow"))
        ready.set()
        over.wait(5)
        gevent.get_hub().destroy()

    thread = threading.Thread(target=elsewhere)
    thread.start()
    try:
        assert ready.wait(5)
        assert roster.drain(made, 0.0) == 1
        # Whoever waited for it does not do so for ever either.
        late = [each for each in alive(gevent.Greenlet) if each.name == "drain slow"]
        assert gevent.joinall(late, timeout=5) == late
        assert not made[0].is_closed
    finally:
        over.set()
        thread.join(5)


def test_a_forked_child_has_nobody_to_send_away():
    peer = Leaver()
    roster.add(peer)
    child = os.fork()
    if not child:
        os._exit(len(roster.live))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert list(roster.live) == [peer]
