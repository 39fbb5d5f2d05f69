"""The check of what is left behind, without pytest around it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from functools import partial

import gevent
import pytest
from gevent.event import Event

from muxws_green.runtime.clock import default_clock
from muxws_green.testing import LeakCheck, RawServer, peer_pair, settle
from muxws_green.testing.leaks import open_descriptors


@pytest.fixture
def check() -> Iterator[LeakCheck]:
    check = LeakCheck()
    yield check
    check.close()
    check.close()


def test_nothing_is_left_where_nothing_was_begun(check):
    assert check.left() == []
    assert check.wait() == []


def test_descriptors_that_are_opened_are_told_until_they_are_closed(check):
    fd = os.dup(1)
    assert [text for text in check.left() if text.startswith(f"descriptor {fd} -> ")] == check.left() != []
    os.close(fd)
    assert check.left() == []


def test_a_descriptor_that_became_another_is_told():
    with open(os.devnull) as file:
        check = LeakCheck()
        with socket.socket() as other:
            os.dup2(other.fileno(), file.fileno())
        left = check.left()
        check.close()
    assert len(left) == 1
    assert "socket" in left[0]


def test_greenlets_of_peers_are_told_until_they_end(check):
    with peer_pair() as (dialer, acceptor):
        acceptor.on_stream(lambda payload, stream: stream.receive())
        dialer.open()
        settle()
        left = " ".join(check.left())
        for job in ("reader", "writer", "handler"):
            assert f"greenlet {job} " in left
    assert check.wait() == []


def test_greenlets_of_others_are_not(check):
    gate = Event()
    for work in (gate.wait, partial(gate.wait)):
        gevent.spawn(work)
    gevent.spawn(lambda: gate.wait())
    gevent.Greenlet().start()
    assert check.left() == []
    gate.set()
    settle()


def test_a_partial_of_ours_is_ours(check):
    sleeping = gevent.spawn(partial(partial(default_clock.sleep), 0.01))
    assert check.left() == [f"greenlet {sleeping.name}"]
    assert check.wait() == []
    assert sleeping.dead


def test_what_was_allowed_may_stay(check):
    with check.allowing():
        server = RawServer()
        server.refuse()
        server.admit()
    assert check.left() == []
    other = RawServer()
    assert len(check.left()) == 3
    other.close()
    assert check.wait() == []
    server.close()


def test_the_wait_is_bounded(check):
    with RawServer():
        assert len(check.wait(0.01)) == 3


def test_once_closed_it_notes_no_more():
    check = LeakCheck()
    check.close()
    before = open_descriptors()
    with RawServer():
        assert not any(text.startswith("greenlet") for text in check.left())
    settle()
    assert open_descriptors() == before


def test_a_handler_is_told_though_one_before_the_check_has_left_its_greenlet(check):
    check.close()
    with peer_pair() as (dialer, acceptor):
        acceptor.on_stream(lambda payload, stream: stream.receive() if payload else stream.reply(1))
        dialer.request()
        dialer.request()
        later = LeakCheck()
        assert later.left() == []
        dialer.open("wait")
        settle()
        assert [text for text in later.left() if text.startswith("greenlet handler ")]
        later.close()
    assert later.wait() == []


def test_a_greenlet_that_rests_for_the_next_handler_is_not_told(check):
    with peer_pair() as (dialer, acceptor):
        acceptor.on_stream(lambda payload, stream: stream.reply(1))
        dialer.request()
        dialer.request()
    assert check.wait() == []
