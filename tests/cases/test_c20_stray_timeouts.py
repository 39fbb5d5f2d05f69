"""C20: a Timeout, a GreenletExit or a SystemExit stays with the stream, or the caller, that it belongs to."""

from __future__ import annotations

import gevent
import pytest
from gevent.event import Event
from greenlet import GreenletExit

from muxws_green import RemoteError, ResetCode, connect
from muxws_green.testing import RawServer
from tests.serving import PATIENCE, Served

pytestmark = pytest.mark.case("C20")


@pytest.mark.parametrize("leak", [gevent.Timeout, GreenletExit, SystemExit, BaseException, KeyError])
def test_what_a_handler_leaks_costs_its_own_stream(leak):
    other = Event()

    def handler(payload, stream):
        if payload == "leak":
            raise leak()
        if payload == "wait":
            assert other.wait(PATIENCE)
        stream.reply(payload)

    with Served(handler) as served, connect(served.url, heartbeat=None) as peer:
        beside = peer.open("wait", end=True)
        with pytest.raises(RemoteError):
            peer.request("leak", timeout=PATIENCE)
        assert peer.request("next", timeout=PATIENCE) == "next"
        other.set()
        assert beside.result(PATIENCE) == "wait"


def test_a_timeout_that_a_handler_set_and_left_running():
    def handler(payload, stream):
        gevent.Timeout(0.001).start()
        gevent.get_hub().wait(gevent.get_hub().loop.timer(PATIENCE))

    with Served(handler) as served, connect(served.url, heartbeat=None) as peer:
        for _ in range(2):
            with pytest.raises(RemoteError):
                peer.request(timeout=PATIENCE)


@pytest.mark.parametrize("wait", ["result", "receive", "iteration", "request"])
def test_the_callers_own_timeout_comes_out_as_itself_and_the_remote_is_told(wait):
    with RawServer() as server, connect(server.url, heartbeat=None) as peer:
        raw = server.accept()
        waits = {
            "result": lambda: peer.open().result(),
            "receive": lambda: peer.open().receive(),
            "iteration": lambda: list(peer.open()),
            "request": lambda: peer.request(),
        }
        with pytest.raises(gevent.Timeout) as caught, gevent.Timeout(0.02) as mine:
            waits[wait]()
        assert caught.value is mine
        opened = raw.expect("open")
        raw.expect("reset", stream=opened.stream, code=ResetCode.CANCELLED)
        assert peer.is_open
        answering = gevent.spawn(lambda: raw.answer(raw.receive()))
        assert peer.request("next", timeout=PATIENCE) == "next"
        answering.get(timeout=PATIENCE)
        raw.close()
