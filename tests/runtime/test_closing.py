"""`Peer.close` from inside whatever the application registers: it stops dialling for good and holds up nobody."""

from __future__ import annotations

from typing import Any

import gevent
import pytest
from gevent.event import Event

from muxws_green import CloseReason, ConnectionGoingAway, ConnectionLost
from muxws_green.runtime.supervisor import SupervisorState
from tests.seeds.scripted import RawServer, Wire, outcome, polite, resets_hello

#: Seconds that a close may take where nothing drains: one for our close frame to leave and one for the answer.
PARTING = 2.0


class Closer:
    """Closes a peer from inside something, once, and notes how long the call took."""

    def __init__(self, clock) -> None:
        self.peer: Any = None
        self.took: list[float] = []
        self._clock = clock
        self._used = False

    def __call__(self, *arguments: Any) -> None:
        if not self._used and self.peer is not None:
            self._used = True
            began = self._clock.now()
            self.peer.close(reason="from inside")
            self.took.append(self._clock.now() - began)

    def as_verdict(self) -> bool:
        self()
        return True


def pushes(wire: Wire) -> None:
    """Greet, then call the client, and be polite."""
    wire.greet()
    wire.write("open", stream=2, payload="job", end=True)
    wire.serve()


def from_on_close(peer, closer: Closer, server: RawServer) -> None:
    peer.on_close(closer)
    server.last.reset()


def from_on_reconnect(peer, closer: Closer, server: RawServer) -> None:
    peer.on_reconnect(closer)
    server.last.reset()


def from_retry_if(peer, closer: Closer, server: RawServer) -> None:
    server.scripts[:] = [resets_hello]
    server.last.reset()


def from_on_frame(direction: str):
    def begin(peer, closer: Closer, server: RawServer) -> None:
        peer.on_frame(lambda seen, frame, size: closer() if seen == direction else None)
        peer.open("call").closed.wait(60.0)

    return begin


def from_intercept_open(peer, closer: Closer, server: RawServer) -> None:
    peer.intercept_open(closer)
    with pytest.raises((ConnectionGoingAway, ConnectionLost)):
        peer.open("call")


def from_incoming_headers(peer, closer: Closer, server: RawServer) -> None:
    peer.intercept_incoming_headers(closer)
    peer.open("call", end=True).closed.wait(60.0)


def from_handler(peer, closer: Closer, server: RawServer) -> None:
    peer.on_stream(closer)
    server.last.write("open", stream=2, payload="job")


def from_reply_headers(peer, closer: Closer, server: RawServer) -> None:
    peer.intercept_reply_headers(closer)
    peer.on_stream(lambda payload, stream: stream.reply("done"))
    server.last.write("open", stream=2, payload="job", end=True)


BACKGROUND = [from_on_close, from_on_reconnect, from_on_frame("rx"), from_on_frame("tx"), from_incoming_headers]
WAITING = [from_retry_if, from_intercept_open, from_handler, from_reply_headers]


@pytest.mark.leaks
@pytest.mark.parametrize(
    "begin", [*BACKGROUND, *WAITING], ids=lambda begin: begin.__qualname__.replace("<locals>.", "")
)
def test_close_from_inside(clock, raw_server, dial, begin) -> None:
    server = raw_server(polite)
    told: list[CloseReason] = []
    closer = Closer(clock)
    peer = dial(server.url, hello=1, retry_if=lambda error: closer.as_verdict(), on_close=told.append)
    closer.peer = peer
    begin(peer, closer, server)
    clock.advance(30.0)
    dials = len(server.wires)
    (took,) = closer.took
    assert took == 0.0 if begin in BACKGROUND else took <= PARTING
    assert peer.is_closed
    assert peer.supervisor.state is SupervisorState.STOPPED
    assert [reason.will_retry for reason in told].count(False) == 1
    assert not told[-1].will_retry
    assert told[-1].code == 1000
    assert told[-1].reason == "from inside"
    clock.advance(300.0)
    assert len(server.wires) == dials


def test_a_handler_that_closes_runs_to_its_end(clock, raw_server, dial) -> None:
    """As one that resets its stream: it asked for the end and is not stopped by it."""
    server = raw_server(polite)
    peer = dial(server.url, hello=1)
    after: list[str] = []
    later = Event()

    @peer.on_stream
    def handler(payload: Any, stream: Any) -> None:
        peer.close()
        after.append("closed")
        clock.sleep(5.0)
        after.append("later")
        later.set()

    server.last.write("open", stream=2, payload="job")
    clock.advance(1.0)
    assert after == ["closed"]
    assert peer.is_closed
    clock.advance(5.0)
    assert after == ["closed", "later"]


def test_other_handlers_are_stopped_by_a_close(clock, raw_server, dial) -> None:
    server = raw_server(polite)
    peer = dial(server.url, hello=1)
    ended: list[BaseException] = []

    @peer.on_stream
    def handler(payload: Any, stream: Any) -> None:
        if payload == "close":
            peer.close(drain=1.0)
            return
        try:
            Event().wait()
        except BaseException as error:
            ended.append(error)
            raise

    server.last.write("open", stream=2, payload="wait")
    server.last.write("open", stream=4, payload="close")
    clock.advance(10.0)
    assert peer.is_closed
    assert [type(error).__name__ for error in ended] == ["HandlerStopped"]


@pytest.mark.leaks
@pytest.mark.parametrize("direction", ["rx", "tx"])
def test_an_acceptor_closed_from_its_on_frame_hook(clock, green_server, dial, direction) -> None:
    """There the reader is the greenlet of the request."""
    closer = Closer(clock)
    server = green_server(lambda payload, stream: stream.reply(payload))
    peer = dial(server.url)
    acceptor = closer.peer = server.peer
    acceptor.on_frame(lambda seen, frame, size: closer() if seen == direction else None)
    told: list[CloseReason] = []
    peer.on_close(told.append)
    assert peer.request("call", timeout=1.0) == "call"
    clock.settle()
    assert closer.took == [0.0]
    assert acceptor.is_closed
    assert told[0].code == 1000


def test_an_error_serializer_that_closes(clock, raw_server, dial) -> None:
    server = raw_server(polite)
    closer = Closer(clock)

    def serializer(error: BaseException) -> Any:
        closer()
        return {"message": "redacted"}

    def handler(payload: Any, stream: Any) -> None:
        raise ValueError("so it goes")

    peer = closer.peer = dial(server.url, hello=1, error_serializer=serializer, on_stream=handler)
    server.last.write("open", stream=2, payload="job")
    clock.advance(30.0)
    assert peer.is_closed
    (took,) = closer.took
    assert took <= PARTING


def test_reason_and_code_of_a_close_are_what_the_remote_sees(clock, raw_server, dial) -> None:
    server = raw_server(polite)
    peer = dial(server.url, hello=1)
    peer.close(reason="enough")
    clock.settle()
    assert server.last.close_code == 1000
    assert [(frame["code"], frame["reason"]) for frame in server.last.of("goaway")] == [(0, "enough")]


@pytest.mark.leaks
def test_a_close_that_is_interrupted_ends_the_connection_at_once(clock, raw_server, dial) -> None:
    server = raw_server(polite)
    told: list[CloseReason] = []
    peer = dial(server.url, hello=1, on_close=told.append)
    stream = peer.open("a stream that nobody ends")
    closing = outcome(peer.close, reason="enough", drain=30.0)
    with clock.held():
        clock.settle()
        assert server.last.of("goaway")
        assert not peer.is_closed
        own = gevent.Timeout()
        closing.kill(own, block=False)
        clock.settle()
        assert closing.value is own
        assert peer.is_closed
        assert stream.closed.is_set()
        assert server.last.close_code == 1000
    clock.advance(60.0)
    assert [(reason.code, reason.reason, reason.will_retry) for reason in told] == [(1000, "enough", False)]
    assert len(server.wires) == 1
