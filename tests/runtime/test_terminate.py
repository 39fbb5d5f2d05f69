"""The one way in which a connection ends: whatever fails, everything about it ends, once, and says so (DESIGN §4)."""

from __future__ import annotations

import json
import logging

import gevent
import pytest
from gevent.event import Event
from greenlet import GreenletExit

from muxws_green import (
    ConnectionClosed,
    ConnectionLost,
    IdleHeartbeat,
    JsonCodec,
    StreamState,
)
from muxws_green.runtime import link as link_module
from muxws_green.runtime.greenlets import OwnGreenlet
from muxws_green.runtime.options import Options
from muxws_green.runtime.parting import PARTING_SECONDS
from muxws_green.runtime.peer import Peer
from muxws_green.testing import established_peer, settle
from muxws_green.transports.memory import memory_pair
from tests.alive import alive
from tests.runtime.ends import PATIENCE, Gate, outcome


class Ending:
    """Everything that can hang on a connection, and what becomes of it."""

    def __init__(self, made) -> None:
        self.made = made
        self.link = made.near._link
        self.gate = Gate()
        self.order: list[str] = []
        self.reasons: list = []
        made.near.on_stream(self.gate)
        made.far.on_stream(lambda payload, stream: Event().wait())
        made.near.on_close(self._told)
        self.stream = made.near.open()
        self.incoming = made.far.open()
        made.far_transport.incoming.stall()
        waits = {
            "result": lambda: made.near.open().result(),
            "iterate": lambda: list(made.near.open()),
            "receive": lambda: made.near.open().receive(),
            "request": made.near.request,
            "ping": lambda: made.near.ping(timeout=1e6),
            "closed": self.stream.closed.wait,
        }
        self.waits = {name: outcome(self._noted, name, call) for name, call in waits.items()}
        self.gate.reached()
        settle()
        assert not any(each.dead for each in self.waits.values())

    def _told(self, reason):
        self.order.append("on_close")
        self.reasons.append(reason)

    def _noted(self, name, call):
        try:
            return call()
        finally:
            self.order.append(name)

    def check(self, code=1006):
        """Everything is over, and had failed before anybody was told."""
        settle()
        made, link = self.made, self.link
        assert link.cause.code == code
        assert made.near.close_cause is link.cause
        assert not made.near.is_open
        assert made.near.is_closed
        assert [reason.code for reason in self.reasons] == [code]
        assert self.reasons[0].will_retry is False
        assert self.order.index("on_close") == len(self.waits)
        for name, waited in self.waits.items():
            value = waited.get(timeout=PATIENCE)
            kind = {"ping": ConnectionClosed, "closed": bool}.get(name, ConnectionLost)
            assert isinstance(value, kind), name
            if kind is not bool:
                assert value.__cause__ is link.cause
        assert self.stream.state is StreamState.CLOSED
        assert type(self.gate.error).__name__ == "HandlerStopped"
        for own in (link._reader, link._writer, link.heartbeat.greenlet if link.heartbeat else None):
            assert own is None or own.dead
        assert not made.near.streams
        assert made.near.stats.held_bytes == made.near.stats.queued_bytes == 0
        for call in (made.near.open, made.near.notify, made.near.request, made.near.ping, lambda: self.stream.send(1)):
            with pytest.raises(ConnectionLost) as caught:
                call()
            assert caught.value.__cause__ is link.cause


@pytest.mark.case("C41")
def test_all_waits_fail_before_on_close_runs(ends):
    ending = Ending(ends())
    ending.made.drop()
    ending.check()


OF_LINK = {
    "reader": lambda link: link._reader,
    "writer": lambda link: link._writer,
    "heartbeat": lambda link: link.heartbeat.greenlet,
}


@pytest.mark.parametrize("job", OF_LINK)
@pytest.mark.case("C54")
def test_a_greenlet_of_ours_that_is_killed_ends_the_connection(ends, clock, job):
    ending = Ending(ends(clock=clock, near_options={"heartbeat": IdleHeartbeat(1e9, 1.0)}))
    OF_LINK[job](ending.link).kill(block=False)
    ending.check(1011)
    assert isinstance(ending.link.cause.__cause__, GreenletExit)


@pytest.mark.parametrize("job", OF_LINK)
def test_an_error_thrown_into_one_ends_the_connection_and_is_logged(ends, clock, job, caplog):
    thrown = RuntimeError("a bug")
    ending = Ending(ends(clock=clock, near_options={"heartbeat": IdleHeartbeat(1e9, 1.0)}))
    OF_LINK[job](ending.link).kill(thrown, block=False)
    ending.check(1011)
    assert ending.link.cause.__cause__ is thrown
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert record.exc_info[1] is thrown


@pytest.mark.parametrize("job", OF_LINK)
@pytest.mark.case("C20")
def test_a_stray_timeout_ends_the_connection_and_goes_on_to_its_owner(ends, clock, job, expected_hub_errors):
    thrown = gevent.Timeout(9)
    ending = Ending(ends(clock=clock, near_options={"heartbeat": IdleHeartbeat(1e9, 1.0)}))
    OF_LINK[job](ending.link).kill(thrown, block=False)
    ending.check(1011)
    assert ending.link.cause.__cause__ is thrown
    assert [seen.error for seen in expected_hub_errors] == [thrown]


@pytest.mark.parametrize("job", OF_LINK)
def test_one_that_is_killed_before_it_runs_ends_the_connection(make, job):
    made = make(near_options={"heartbeat": IdleHeartbeat(1e9, 1.0)})
    told = []
    made.near.on_close(told.append)
    stream = made.near.open()
    OF_LINK[job](made.near._link).kill(block=False)
    assert stream.closed.wait(PATIENCE)
    with pytest.raises(ConnectionLost, match=job):
        stream.result()
    settle()
    assert [reason.code for reason in told] == [1011]


@pytest.mark.parametrize("thrown", [GreenletExit("stop"), RuntimeError("stop")], ids=["kill", "error"])
def test_a_writer_that_is_killed_in_the_middle_of_a_write(ends, thrown):
    made = ends(capacity_bytes=1)
    made.near_transport.outgoing.stall()
    made.near.notify("first")
    waiting, link = outcome(made.near.request, "x" * 200_000), made.near._link
    settle()
    link._writer.kill(thrown, block=False)
    assert isinstance(waiting.get(timeout=PATIENCE), ConnectionLost)
    # Half a frame may have left, so no close frame may follow it.
    assert made.near_transport.closed_with is None
    made.near_transport.outgoing.resume()
    settle()
    assert link._reader.dead
    assert made.far.close_cause.code == 1006


def test_a_reader_that_is_killed_while_it_is_paused(ends):
    made = ends(near_options={"receive_buffer_bytes": 1_000})
    made.far.on_stream(lambda payload, stream: [stream.send("x" * 500) for _ in range(5)])
    stream = made.near.open()
    settle()
    assert made.near._link.intake.paused
    made.near._link._reader.kill(block=False)
    assert stream.closed.wait(PATIENCE)
    assert made.near.close_cause.code == 1011


def test_a_heartbeat_that_is_killed_while_it_judges(ends, clock):
    made = ends(clock=clock, near_options={"heartbeat": IdleHeartbeat(10.0, 1.0)})
    made.near_transport.outgoing.stall()
    made.near_transport.incoming.stall()
    link = made.near._link
    bury = link.heartbeat._bury

    def killed():
        link.heartbeat.greenlet.kill(block=False)
        return bury()

    link.heartbeat._bury = killed
    clock.advance(60.0)
    assert made.near.is_closed
    assert made.near.close_cause.code == 1011


@pytest.mark.parametrize("job", OF_LINK)
def test_every_greenlet_at_once(make, job):
    made = make(near_options={"heartbeat": IdleHeartbeat(1e9, 1.0)})
    ending = Ending(made)
    first = OF_LINK[job](ending.link)
    others = [find(ending.link) for find in OF_LINK.values()]
    gevent.killall([first, *others], block=False)
    ending.check(1011)


# Failures of the transport and of what the application brings


@pytest.mark.parametrize(
    "error",
    [ConnectionClosed(code=1006), OSError(32, "broken pipe"), ValueError("a bug")],
    ids=lambda e: type(e).__name__,
)
@pytest.mark.parametrize("method", ["send", "receive"])
@pytest.mark.case("C54")
def test_a_transport_that_fails_ends_both_loops(ends, method, error):
    ending = Ending(ends())

    def fails(*arguments):
        raise error

    setattr(ending.made.near_transport, method, fails)
    # One frame, so that the writer writes, and one that makes the reader return for the next.
    ending.stream.send(1)
    ending.made.inject(type="pong", nonce="nobody's")
    ending.check(1006 if isinstance(error, ConnectionClosed) else 1011)


def test_a_transport_that_cannot_be_aborted_does_not_keep_the_rest_from_ending(ends, caplog):
    ending = Ending(ends())
    abort = ending.made.near_transport.abort

    def fails(code=None):
        abort(code)
        raise RuntimeError("the descriptor is not mine")

    ending.made.near_transport.abort = fails
    ending.made.drop()
    ending.check()
    assert "could not be aborted" in caplog.text


def test_somebody_who_is_told_of_the_loss_and_raises_changes_nothing(ends, caplog):
    ending, told = Ending(ends()), []

    def fails(peer):
        raise gevent.Timeout(3)

    ending.made.near._on_loss(fails)
    ending.made.near._on_loss(told.append)
    ending.made.drop()
    ending.check()
    assert told == [ending.made.near]
    assert "Timeout" in caplog.text


class Unable(JsonCodec):
    """Cannot encode one type of frame."""

    def __init__(self, kind, error):
        self.kind = kind
        self.error = error

    def encode(self, frame):
        if frame.type == self.kind:
            raise self.error
        return super().encode(frame)


@pytest.mark.parametrize("error", [ValueError("no"), KeyError("no"), gevent.Timeout(3)], ids=lambda e: type(e).__name__)
def test_a_codec_that_cannot_encode_a_reset_leaves_nobody_waiting(ends, error):
    made = ends(codec=Unable("reset", error))
    made.far.on_stream(Gate())
    stream = made.near.open()
    waiting = outcome(stream.result)
    settle()
    with pytest.raises(type(error)):
        stream.cancel()
    assert waiting.get(timeout=PATIENCE).code == 1
    assert stream.state is StreamState.CLOSED


@pytest.mark.parametrize("kind", ["goaway", "reset"])
def test_a_codec_that_fails_in_the_reader_ends_the_connection(ends, kind):
    made = ends(near_options={"codec": Unable(kind, ValueError("no"))})
    waiting = outcome(made.near.request)
    settle()
    if kind == "goaway":
        made.inject(type="open", stream=made.far_id + 1)
    else:
        made.inject(type="open", stream=made.far_id)
    assert isinstance(waiting.get(timeout=PATIENCE), Exception)
    settle()
    assert made.near.is_closed
    assert made.near._link is None


def test_terminate_never_switches_and_runs_once(ends):
    ending = Ending(ends())
    # A callback of the hub cannot switch, so this would raise if it tried.
    first, second = ConnectionClosed("first", code=1006), ConnectionClosed("second", code=1011)
    raised = []

    def end():
        try:
            ending.link.terminate(first)
            ending.link.terminate(second, abort_code=1011)
        except BaseException as error:
            raised.append(error)

    gevent.get_hub().loop.run_callback(end)
    ending.check()
    assert raised == []
    assert ending.link.cause is first


class Failing:
    """A heartbeat policy, and its own state, of which one method raises."""

    def __init__(self, method):
        self.method = method

    def __getattr__(self, name):
        def call(*arguments):
            if name == self.method:
                raise ValueError("no heartbeat")
            return {"start": self, "due": 1e9}.get(name)

        return call


@pytest.mark.parametrize("method", ["start", "received", "sent", "due", "look"])
def test_a_heartbeat_policy_that_raises_ends_the_connection(ends, method, caplog):
    made = ends(near_options={"heartbeat": Failing(method)})
    waiting = outcome(lambda: made.near.open().result())
    assert isinstance(waiting.get(timeout=PATIENCE), ConnectionLost)
    settle()
    assert made.near.is_closed
    assert made.near.close_cause.code == 1011
    assert isinstance(made.near.close_cause.__cause__, ValueError)
    assert caplog.text.count("no heartbeat") == 1


# What on_close sees


@pytest.mark.parametrize(
    "frame, code, reason, clean",
    [
        ((1000, "done"), 1000, "done", True),
        ((1001, "going"), 1001, "going", False),
        ((4321, "own"), 4321, "own", False),
        ((None, ""), 1005, "", False),
    ],
)
def test_the_remotes_close_frame_is_reported(ends, frame, code, reason, clean):
    made, told = ends(), []
    made.near.on_close(told.append)
    made.near_transport.inject_close(*frame)
    settle()
    (seen,) = told
    assert (seen.code, seen.reason, seen.was_clean, seen.will_retry) == (code, reason, clean, False)
    assert made.near_transport.closed_with == frame
    assert made.near.close_cause.code == code


@pytest.mark.parametrize("code", [1002, 1007, 1009])
def test_a_broken_websocket_rule_is_answered_with_its_code(ends, clock, code):
    made, told = ends(clock=clock), []
    made.near.on_close(told.append)
    stream = made.near.open()
    made.near_transport.inject_violation(code, "broken")
    assert stream.closed.wait(PATIENCE)
    clock.advance(2 * PARTING_SECONDS)
    (seen,) = told
    assert (seen.code, seen.reason, seen.was_clean) == (code, "broken", False)
    assert made.near_transport.closed_with == (code, "broken")
    assert made.sent_of("goaway")[0]["code"] == 3


BROKEN = {
    "not json": "{",
    "no type": '{"stream":1}',
    "wrong parity": None,
    "data on an unknown stream": '{"type":"data","stream":99}',
    "open without an id": '{"type":"open"}',
    "a list": "[1]",
    "NaN": '{"type":"data","stream":1,"payload":NaN}',
    "a field of a wrong type": '{"type":"open","stream":"1"}',
    "both": '{"type":"open","stream":1,"payload":1,"fragment":"1"}',
}


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.case("C53")
def test_a_rule_broken_by_the_remote_ends_the_connection_with_1002(ends, clock, broken, caplog):
    made, told = ends(clock=clock), []
    made.near.on_close(told.append)
    gate = Gate()
    made.near.on_stream(gate)
    made.far.on_stream(Gate())
    stream, ping = made.near.open(), outcome(made.near.ping, timeout=1e6)
    made.far_transport.incoming.stall()
    made.far.open()
    gate.reached()
    message = BROKEN[broken] or json.dumps({"type": "open", "stream": stream.id + 2})
    made.near_transport.inject(message)
    with clock.held():
        settle()
        # All at once, although the farewell has not arrived anywhere.
        with pytest.raises(ConnectionLost):
            stream.result()
        assert not made.near.is_open
        assert gate.ended.is_set()
        if not ping.dead:
            # The line is stalled in the other direction only for what is sent from here.
            pytest.fail("the ping still waits")
        assert told == []
        with pytest.raises(ConnectionLost):
            made.near.open()
    made.far_transport.incoming.resume()
    settle()
    (seen,) = told
    assert (seen.code, seen.was_clean, seen.will_retry) == (1002, False, False)
    assert made.sent[-1]["type"] == "goaway"
    assert made.sent[-1]["code"] == 3
    assert made.near_transport.closed_with[0] == 1002
    assert caplog.text.count("connection-level protocol error") == 1


def test_a_remote_that_never_reads_the_farewell_is_given_two_seconds(ends, clock):
    made, told = ends(clock=clock, capacity_bytes=1), []
    made.near.on_close(lambda reason: told.append((clock.now(), reason.code)))
    made.near_transport.outgoing.stall()
    made.near.notify("stuck")
    made.near.notify("stuck")
    settle()
    made.near_transport.inject("{")
    with clock.held():
        settle()
    clock.advance(10.0)
    assert told == [(PARTING_SECONDS, 1002)]


def test_a_remote_that_does_not_answer_the_close_frame_is_given_a_second(ends, clock):
    made, told = ends(clock=clock), []
    made.near.on_close(lambda reason: told.append((clock.now(), reason.code)))
    made.near_transport.incoming.stall()
    made.near_transport.incoming._stalled = False
    made.far_transport.outgoing.stall()
    made.near_transport.inject("{")
    clock.advance(10.0)
    assert told == [(PARTING_SECONDS, 1002)]


@pytest.mark.parametrize("kill", ["before it runs", "while it waits"])
def test_the_parting_that_is_killed_ends_at_once(ends, clock, kill):
    made, told = ends(clock=clock), []
    made.near.on_close(lambda reason: told.append((clock.now(), reason.code)))
    made.far_transport.outgoing.stall()
    started = []
    gevent.Greenlet.add_spawn_callback(started.append)
    try:
        with clock.held():
            made.near._link.fail(ConnectionClosed("broken", code=1002), 1002, "broken")
            (parting,) = [own for own in started if own.name.startswith("parting")]
            if kill == "while it waits":
                settle()
            parting.kill(block=False)
            settle()
    finally:
        gevent.Greenlet.remove_spawn_callback(started.append)
    assert told == [(0.0, 1002)]


def test_a_remote_that_pings_without_reading_is_closed_with_1008(ends, clock):
    made, told = ends(clock=clock, capacity_bytes=1), []
    made.near.on_close(told.append)
    made.near_transport.outgoing.stall()
    for number in range(200):
        made.inject(type="ping", nonce=str(number))
    clock.advance(5.0)
    assert [reason.code for reason in told] == [1008]


# An acceptor's request greenlet


def serving(**options):
    left, right = memory_pair()
    near = Peer(Options(codec=JsonCodec(), **options), dialer=False)
    near._attach(left)
    far = established_peer(right, Options(codec=JsonCodec()), dialer=True)
    return near, far, left


@pytest.mark.parametrize("thrown", [gevent.Timeout(9), GreenletExit("the host stops"), KeyError("mine")])
def test_what_is_thrown_into_serve_ends_the_connection_and_comes_out(thrown, caplog):
    near, far, line = serving()
    told = []
    near.on_close(told.append)
    server = outcome(near.serve)
    assert far.ping() >= 0.0
    server.kill(thrown, block=False)
    value = server.get(timeout=PATIENCE)
    settle()
    assert value is thrown
    assert [reason.code for reason in told] == [1011]
    assert far.is_closed
    # It is the caller's own, so it is the caller who tells of it.
    assert caplog.text == ""
    line.drop()


def test_serve_returns_when_everything_has_ended():
    near, far, line = serving()
    near._finish = lambda: ["body"]
    server = outcome(near.serve)
    far.ping()
    link = near._link
    far.close()
    assert server.get(timeout=PATIENCE) == ["body"]
    assert link._writer.dead
    assert near.is_closed
    line.drop()


def test_serve_after_the_end_returns_at_once():
    near, far, line = serving()
    near._finish = lambda: ["body"]
    with pytest.raises(ConnectionClosed):
        near._link.start_reading()
        line.drop()
        near.ping()
    assert near.serve() == ["body"]
    assert far.is_closed


def test_a_peer_that_does_not_serve_yet_reads_at_its_first_blocking_call():
    near, far, line = serving()
    far.on_stream(lambda payload, stream: stream.reply(payload))
    assert near.request("before serve()", timeout=PATIENCE) == "before serve()"
    server = outcome(near.serve)
    settle()
    assert not server.dead
    line.drop()
    assert server.get(timeout=PATIENCE) == []


@pytest.mark.parametrize("wait", ["closed", "reply_headers_arrived", "gevent.wait stream", "gevent.wait peer"])
def test_waiting_for_an_event_of_a_peer_that_does_not_serve_yet(wait):
    near, far, line = serving()
    far.on_stream(lambda payload, stream: stream.reply(payload, headers={"a": 1}))
    stream = near.open(1, end=True)
    if wait == "gevent.wait stream":
        assert gevent.wait([stream], timeout=PATIENCE) == [stream]
    elif wait == "gevent.wait peer":
        gevent.get_hub().loop.run_callback(line.drop)
        assert gevent.wait([near], timeout=PATIENCE) == [near]
    else:
        assert getattr(stream, wait).wait(PATIENCE)
    line.drop()
    settle()


# An end in the middle of reading


def test_what_a_transport_hands_over_after_the_end_is_not_looked_at(ends):
    made, seen = ends(), []
    made.near.on_stream(lambda payload, stream: seen.append(payload))
    link, receive = made.near._link, made.near_transport.receive

    def ends_meanwhile():
        messages = receive()
        link.terminate(ConnectionClosed("so", code=4000))
        return messages

    made.near_transport.receive = ends_meanwhile
    made.far.notify(1)
    made.far.notify(2)
    settle()
    assert seen == []
    assert made.near.close_cause.code == 4000


def test_a_stream_let_go_of_while_the_writer_is_made_makes_no_second_one(make, monkeypatch):
    """The garbage collector may run wherever an object is made, and what it finalizes may have something to send."""
    link = make().near._link
    made = []

    class Bell(link_module.Doorbell):
        def __init__(self, hub):
            super().__init__(hub)
            if not made:
                made.append(self)
                link.wake_writer()

    monkeypatch.setattr(link_module, "Doorbell", Bell)
    assert link._writer is None
    link.wake_writer()
    assert len(made) == 1
    writer, bell = link._writer, link.bell
    settle()
    assert (link._writer, link.bell) == (writer, bell)
    assert bell.resting
    assert len([each for each in alive(OwnGreenlet) if each.name == f"writer {link.id}" and not each.dead]) == 1


def test_what_a_transport_has_to_write_after_the_end_needs_no_writer(ends):
    made = ends()
    link = made.near._link
    made.near_transport.abort()
    settle()
    assert link.cause is not None
    made.near_transport._wake()
    assert link._writer is None


def test_nothing_is_looked_at_behind_a_frame_in_which_the_connection_ended(ends):
    made, seen = ends(), []
    made.near.on_stream(lambda payload, stream: seen.append(payload))

    def ends_it(*_):
        made.near._link.terminate(ConnectionClosed("so", code=4000))

    made.near.on_frame(ends_it)
    for number in range(3):
        made.inject(type="open", stream=made.far_id + 2 * number, payload=number)
    settle()
    assert seen == []
    assert made.near.close_cause.code == 4000


def test_a_rule_of_websocket_broken_during_the_parting_changes_nothing(ends, clock):
    made, told = ends(clock=clock), []
    made.near.on_close(told.append)
    made.far_transport.incoming.stall()
    made.inject(type="open", stream=0)
    settle()
    made.near_transport.inject_violation(1009, "too long")
    clock.advance(5.0)
    assert [reason.code for reason in told] == [1002]
