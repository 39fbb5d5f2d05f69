"""C53: what an application raises stays with its stream; where reception must end, the peer is closed and says so."""

from __future__ import annotations

import gevent
import pytest

from muxws_green import RemoteError, ResetCode, connect
from muxws_green.testing import RawServer
from tests.serving import PATIENCE, Served, echo, until

pytestmark = pytest.mark.case("C53")


class Odd(Exception):
    """Cannot be shown either."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


def broken(*_args, **_more):
    raise Odd


@pytest.mark.parametrize("error", [ValueError, Odd])
def test_a_handler_that_raises_each_time(error):
    def handler(payload, stream):
        if payload % 2:
            raise error()
        stream.reply(payload)

    with Served(handler) as served, connect(served.url, heartbeat=None) as peer:
        for number in range(6):
            if number % 2:
                with pytest.raises(RemoteError):
                    peer.request(number, timeout=PATIENCE)
            else:
                assert peer.request(number, timeout=PATIENCE) == number
        assert peer.is_open


@pytest.mark.parametrize("hook", ["on_frame", "intercept_incoming_headers"])
def test_an_observer_that_raises_each_time(hook):
    def hooked(peer):
        getattr(peer, hook)(broken)

    with Served(echo, on_connect=hooked) as served, connect(served.url, heartbeat=None) as peer:
        hooked(peer)
        for number in range(3):
            assert peer.request(number, headers={"n": number}, timeout=PATIENCE) == number


def test_an_interceptor_that_raises_fails_the_call_and_nothing_else():
    with Served(echo) as served, connect(served.url, heartbeat=None) as peer:
        remove = peer.intercept_open(broken)
        for _ in range(2):
            with pytest.raises(Odd):
                peer.request(timeout=PATIENCE)
        assert peer.stats.streams_opened == 0
        remove()
        assert peer.request("next", timeout=PATIENCE) == "next"
        removing = served.peer.intercept_reply_headers(broken)
        with pytest.raises(RemoteError):
            peer.request(timeout=PATIENCE)
        removing()
        assert peer.request("next", timeout=PATIENCE) == "next"


@pytest.mark.parametrize("raises", [False, True])
def test_a_message_that_is_none_ends_the_connection_on_both_sides(raises):
    """A hook that raises when it hears of it changes nothing."""
    reasons = []

    def told(reason):
        reasons.append(reason)
        if raises:
            raise Odd

    def script(raw):
        raw.send_frame(1, b"{not json")
        raw.expect("goaway", code=ResetCode.PROTOCOL_ERROR)
        raw.expect_close(1002)
        raw.send_close(1002)

    with RawServer(script) as server:
        peer = connect(server.url, heartbeat=None, retry_if=lambda error: False, on_close=told)
        server.refuse()
        until(lambda: reasons)
        assert reasons[0].code == 1002
        assert not peer.is_open
        with gevent.Timeout(PATIENCE):
            peer.close()
        assert peer.is_closed
        until(lambda: not reasons[-1].will_retry)
    # The loss of the socket, and that it will not dial again.
    assert [reason.will_retry for reason in reasons] == [True, False]
