"""The `on_stream` handler: how it is called, what becomes of what it does, and how it is stopped (PROTOCOL §6)."""

from __future__ import annotations

import gc
import json
import logging

import gevent
import pytest
from gevent.event import Event
from greenlet import GreenletExit

from muxws_green import (
    ConnectionLost,
    HandlerStopped,
    JsonCodec,
    RemoteError,
    ResetCode,
    StreamRefused,
    StreamReset,
    StreamState,
)
from muxws_green.testing import settle
from tests.runtime.ends import PATIENCE, Gate, echo, make_ends, outcome

# How it is called


def test_it_gets_the_opening_payload_and_the_stream(ends):
    made, seen = ends(), []

    def handle(payload, stream):
        seen.append((payload, stream.payload, stream.headers, stream.id, stream.local, stream.state))

    made.far.on_stream(handle)
    stream = made.near.open({"job": 1}, headers={"h": 1}, end=True)
    assert stream.closed.wait(PATIENCE)
    assert seen == [({"job": 1}, {"job": 1}, {"h": 1}, stream.id, False, StreamState.HALF_CLOSED_REMOTE)]
    assert stream.local


def test_an_open_without_a_payload_reaches_it_as_none(ends):
    made, seen = ends(), []
    made.near.on_stream(lambda payload, stream: seen.append(payload))
    made.inject(type="open", stream=made.far_id, end=True)
    settle()
    assert seen == [None]


def test_it_may_wait_without_holding_up_anybody(ends, clock):
    made = ends(clock=clock)

    def handle(payload, stream):
        if payload == "slow":
            clock.sleep(2.0)
        stream.reply(payload)

    made.far.on_stream(handle)
    slow = outcome(made.near.request, "slow")
    gevent.sleep(0)
    with clock.held():
        assert [made.near.request(number) for number in range(50)] == list(range(50))
        assert made.near.ping() == 0.0
    assert slow.get(timeout=PATIENCE) == "slow"


def test_a_stream_that_it_leaves_open_is_ended_for_it(ends):
    made = ends()
    made.far.on_stream(lambda payload, stream: stream.send(payload))
    stream = made.near.open("x")
    assert list(stream) == ["x"]
    assert stream.state is StreamState.HALF_CLOSED_REMOTE


def test_without_a_handler_streams_are_refused(ends):
    made = ends()
    with pytest.raises(StreamRefused, match="no on_stream handler"):
        made.near.request(1, timeout=PATIENCE)
    # It is asked for anew with each stream.
    made.far.on_stream(echo)
    assert made.near.request(1, timeout=PATIENCE) == 1


def test_another_one_replaces_it_and_is_logged(ends, caplog):
    made = ends()
    returned = made.far.on_stream(echo)
    assert returned is echo
    assert caplog.text == ""

    @made.far.on_stream
    def second(payload, stream):
        stream.reply([payload])

    @made.far.on_stream(stop=False)
    def third(payload, stream):
        stream.reply([[payload]])

    assert caplog.text.count("replaced") == 2
    assert made.near.request(1) == [[1]]


# What it raises

LEAKS = [
    ValueError("leaked"),
    gevent.Timeout(5),
    GreenletExit("leaked"),
    SystemExit(3),
    GeneratorExit("leaked"),
    AssertionError("leaked"),
    StreamReset("leaked"),
    StopIteration("leaked"),
]


@pytest.mark.parametrize("leaked", LEAKS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("when", ["at once", "after an answer", "after its end"])
@pytest.mark.case("C20")
def test_whatever_it_raises_costs_its_own_stream_only(ends, leaked, when):
    made = ends()

    def handle(payload, stream):
        if payload == "good":
            stream.reply("good")
            return
        if when == "after an answer":
            stream.send("partial")
        elif when == "after its end":
            stream.end("partial")
        raise leaked

    made.far.on_stream(handle)
    stream, got = made.near.open(), []
    if when == "after its end":
        # The remote has ended its side; the reset may only end ours.
        assert stream.closed.wait(PATIENCE)
    with pytest.raises(RemoteError) as caught:
        got.extend(row for row in stream)
    assert caught.value.payload == {"type": type(leaked).__name__, "message": str(leaked)}
    assert caught.value.reason == str(leaked)
    assert got == ([] if when == "at once" else ["partial"])
    assert made.near.request("good", timeout=PATIENCE) == "good"


def test_a_keyboard_interrupt_is_answered_for_and_reaches_the_program(make, expected_hub_errors):
    made = make()

    def handle(payload, stream):
        raise KeyboardInterrupt

    made.far.on_stream(handle)
    stream = made.near.open()
    with pytest.raises(KeyboardInterrupt):
        settle()
    with pytest.raises(RemoteError):
        stream.result(PATIENCE)
    assert made.near.is_open


def test_a_keyboard_interrupt_in_the_error_serializer_too(make, expected_hub_errors):
    def serialize(error):
        raise KeyboardInterrupt

    made = make(far_options={"error_serializer": serialize})
    made.far.on_stream(lambda payload, stream: 1 / 0)
    stream = made.near.open()
    with pytest.raises(KeyboardInterrupt):
        settle()
    with pytest.raises(RemoteError) as raised:
        stream.result(PATIENCE)
    assert raised.value.payload is None
    assert made.near.is_open


def test_one_that_somebody_kills_is_answered_for(ends):
    made, gate = ends(), Gate()
    made.far.on_stream(gate)
    stream = made.near.open()
    far = gate.reached()
    far._handler.greenlet.kill(block=False)
    with pytest.raises(RemoteError):
        stream.result(PATIENCE)
    assert made.far.is_open


class Unable(JsonCodec):
    """Cannot encode a reset."""

    def encode(self, frame):
        if frame.type == "reset":
            raise ValueError("no")
        return super().encode(frame)


def test_one_that_cannot_be_answered_for_does_not_count_for_ever(ends, expected_hub_errors):
    made = ends(far_options={"codec": Unable(), "max_concurrent_streams": 1})

    def fails(payload, stream):
        raise LookupError

    made.far.on_stream(fails)
    made.near.open()
    settle()
    made.far.on_stream(echo)
    assert made.near.request(1, timeout=PATIENCE) == 1
    assert {str(seen.error) for seen in expected_hub_errors} == {"no"}


@pytest.mark.parametrize("cause", ["its own error", "nothing", "its stream", "its stop"])
def test_what_it_raises_after_its_stream_has_ended_is_logged_if_it_tells_something(ends, cause, caplog):
    made, gate = ends(), Event()

    def handle(payload, stream):
        if cause in ("its own error", "nothing"):
            stream.reply(1)
            if cause == "its own error":
                raise ValueError("a bug")
        elif cause == "its stream":
            stream.receive()
        else:
            gate.wait()

    made.far.on_stream(handle)
    stream = made.near.open()
    if cause in ("its own error", "nothing"):
        stream.end()
    else:
        settle()
        stream.cancel()
    settle()
    records = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(records) == (cause == "its own error")
    if records:
        assert records[0].exc_info[1].args == ("a bug",)
    settle()


def test_its_error_is_logged_with_the_connection_and_the_stream(ends, caplog):
    made = ends()

    def handle(payload, stream):
        raise ValueError("told")

    made.far.on_stream(handle)
    stream = made.near.open()
    settle()
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert record.getMessage() == f"muxws conn={made.far.id} stream={stream.id} the on_stream handler raised"
    assert record.exc_info[1].args == ("told",)


def test_a_log_handler_that_raises_does_not_keep_the_reset_from_the_remote(ends, expected_hub_errors):
    made = ends()

    class Broken(logging.Handler):
        def emit(self, record):
            raise RuntimeError("the disk is full")

    def handle(payload, stream):
        raise ValueError("x")

    made.far.on_stream(handle)
    log, broken = logging.getLogger("muxws.peer"), Broken()
    log.addHandler(broken)
    try:
        stream = made.near.open()
        with pytest.raises(RemoteError):
            stream.result(PATIENCE)
        settle()
    finally:
        log.removeHandler(broken)
    assert {str(seen.error) for seen in expected_hub_errors} == {"the disk is full"}


# What is said of its error


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no text")


class Redacts:
    def __init__(self, value):
        self.value = value

    def __call__(self, error):
        if isinstance(self.value, BaseException):
            raise self.value
        return self.value


@pytest.mark.parametrize(
    "serializer, payload, reason",
    [
        (None, {"type": "ValueError", "message": "secret"}, "secret"),
        (Redacts(None), None, None),
        (Redacts({"type": "Error"}), {"type": "Error"}, None),
        (Redacts({"message": "redacted"}), {"message": "redacted"}, "redacted"),
        (Redacts({"message": 7}), {"message": 7}, None),
        (Redacts("just text"), "just text", None),
        (Redacts([1]), [1], None),
        (Redacts(object()), None, None),
        (Redacts({"message": "told", "bad": object()}), None, "told"),
        (Redacts({"message": "x" * 70_000}), None, "x" * 1_000),
        (Redacts({"message": "\ud800"}), None, "?"),
        (Redacts(ValueError("in the serializer")), None, None),
        (Redacts(gevent.Timeout(3)), None, None),
        (Redacts(SystemExit(3)), None, None),
        (Redacts(GreenletExit()), None, None),
    ],
)
@pytest.mark.case("C72")
def test_the_error_serializer_decides_what_the_remote_is_told(ends, serializer, payload, reason):
    made = ends(far_options={"error_serializer": serializer})

    def handle(_, stream):
        raise ValueError("secret")

    made.far.on_stream(handle)
    with pytest.raises(RemoteError) as caught:
        made.near.request(timeout=PATIENCE)
    assert caught.value.payload == payload
    assert caught.value.reason == reason
    if serializer is not None:
        assert not any(b"secret" in message for message in made.far_transport.sent)
    made.far.on_stream(echo)
    assert made.near.request(1, timeout=PATIENCE) == 1


def test_an_error_without_a_text_is_reset_all_the_same(ends):
    made = ends()

    def handle(payload, stream):
        raise Unprintable

    made.far.on_stream(handle)
    with pytest.raises(RemoteError) as caught:
        made.near.request(timeout=PATIENCE)
    assert (caught.value.payload, caught.value.reason) == (None, None)


def test_an_error_serializer_may_wait(ends):
    gate = Event()

    def serialize(error):
        gate.wait()
        return "late"

    made = ends(far_options={"error_serializer": serialize})

    def handle(payload, stream):
        raise ValueError

    made.far.on_stream(handle)
    stream = made.near.open()
    waiting = outcome(stream.result)
    settle()
    assert not waiting.dead
    assert made.near.ping() >= 0.0
    gate.set()
    assert waiting.get(timeout=PATIENCE).payload == "late"


def test_the_serializer_is_asked_for_the_very_exception(ends):
    seen, error = [], ValueError("this one")
    made = ends(far_options={"error_serializer": seen.append})

    def handle(payload, stream):
        raise error

    made.far.on_stream(handle)
    with pytest.raises(RemoteError):
        made.near.request(timeout=PATIENCE)
    assert seen == [error]


# What it returns


def yielding(payload, stream):
    yield stream.send(payload)


async def awaiting(payload, stream):
    stream.send(payload)


async def yielding_async(payload, stream):
    yield payload


class Awaitable:
    def __call__(self, payload, stream):
        return self

    def __await__(self):
        return iter(())


@pytest.mark.parametrize(
    "handler, kind",
    [
        (yielding, "generator"),
        (awaiting, "coroutine"),
        (yielding_async, "async_generator"),
        (Awaitable(), "Awaitable"),
    ],
)
def test_a_handler_of_another_colour_is_a_mistake_that_is_told(ends, handler, kind, caplog):
    made = ends()
    made.far.on_stream(handler)
    with pytest.raises(RemoteError, match=f"returned a {kind}") as caught:
        made.near.request(timeout=PATIENCE)
    assert caught.value.payload["type"] == "TypeError"
    # Nothing of this process is in what the remote reads.
    assert "0x" not in caught.value.reason
    assert f"returned a {kind}; handlers are plain blocking functions" in caplog.text


def returning(payload, stream):
    stream.reply(payload)
    return payload


class Methods:
    def returning(self, payload, stream):
        return returning(payload, stream)


class Unhashable:
    __hash__ = None  # type: ignore[assignment]

    def __call__(self, payload, stream):
        return returning(payload, stream)


@pytest.mark.parametrize("kind", ["function", "method", "unhashable"])
def test_another_value_is_told_of_once_for_each_handler(kind, monkeypatch):
    told: list[str] = []
    # Not by records, which would keep alive what they tell of.
    monkeypatch.setattr(logging.getLogger("muxws.peer"), "warning", lambda text, *values: told.append(text))
    owner, unhashable = Methods(), Unhashable()

    def function(payload, stream):
        return returning(payload, stream)

    # A server has one handler and a new peer for every visitor, the old ones being gone.
    for _ in range(1 if kind == "unhashable" else 3):
        made = make_ends("dialer")
        made.far.on_stream({"function": function, "method": owner.returning, "unhashable": unhashable}[kind])
        assert [made.near.request(number) for number in (1, 2)] == [1, 2]
        assert made.near.request(None) is None
        made.drop()
        settle()
        del made
        gc.collect()
    assert len(told) == 1
    assert "which is discarded" in told[0]


# How it is stopped


@pytest.mark.parametrize("how", ["reset", "cancel", "timeout", "violation", "lost", "peer closed", "far cancels"])
def test_it_is_stopped_at_its_next_wait_when_its_stream_ends_by_a_reset(ends, how):
    made, gate = ends(), Gate()
    made.far.on_stream(gate)
    stream = made.near.open()
    far = gate.reached()
    if how == "reset":
        stream.reset(ResetCode.PROTOCOL_ERROR, "why")
    elif how == "cancel":
        stream.cancel("why")
    elif how == "timeout":
        stream.reset(ResetCode.TIMEOUT, "why")
    elif how == "violation":
        made.far_transport.inject(f'{{"type":"data","stream":{far.id},"headers":{{"a":1}}}}')
    elif how == "lost":
        made.drop()
    elif how == "peer closed":
        made.near.close(drain=0.0)
    else:
        far.cancel("why")
    assert gate.ended.wait(PATIENCE)
    assert type(gate.error) is HandlerStopped
    assert isinstance(gate.error, GreenletExit)
    cause = gate.error.cause
    if how in ("lost", "peer closed"):
        assert isinstance(cause, ConnectionLost)
    else:
        codes = {"reset": 3, "cancel": 1, "timeout": 6, "violation": 3, "far cancels": 1}
        assert cause.code == codes[how]
    # It is over with the handler too: nothing is reset behind that.
    settle()
    assert made.far_transport.sent == [] or all(b'"code":2' not in message for message in made.far_transport.sent)


@pytest.mark.parametrize("call", ["cancel", "reset"])
def test_it_is_not_stopped_by_its_own_reset(ends, call):
    made, gate, ended = ends(), Event(), []

    def handle(payload, stream):
        stream.cancel("enough") if call == "cancel" else stream.reset(ResetCode.NO_ERROR)
        gate.wait()
        ended.append(True)

    made.far.on_stream(handle)
    with pytest.raises(StreamReset):
        made.near.open().result(PATIENCE)
    settle()
    made.drop()
    settle()
    gate.set()
    settle()
    assert ended == [True]


def test_it_is_not_stopped_where_its_stream_ends_normally(ends):
    made, gate, ended = ends(), Event(), []

    def handle(payload, stream):
        stream.reply(payload)
        gate.wait()
        ended.append(True)

    made.far.on_stream(handle)
    assert made.near.request(1) == 1
    made.drop()
    settle()
    gate.set()
    settle()
    assert ended == [True]


def test_it_runs_on_where_it_must_not_be_stopped(ends):
    made, gate = ends(), Gate()
    made.far.on_stream(gate, stop=False)
    stream = made.near.open()
    far = gate.reached()
    stream.cancel("why")
    settle()
    assert not gate.ended.is_set()
    assert far.state is StreamState.CLOSED
    with pytest.raises(StreamReset, match="why"):
        far.send(1)
    gate.open.set()
    settle()
    assert gate.error is None


def test_it_may_tidy_up_and_even_wait_meanwhile(ends, clock):
    made, tidied = ends(clock=clock), []

    def handle(payload, stream):
        try:
            Event().wait()
        finally:
            clock.sleep(3.0)
            tidied.append(clock.now())

    made.far.on_stream(handle)
    stream = made.near.open()
    settle()
    stream.cancel()
    clock.advance(3.0)
    assert tidied == [3.0]


def test_one_that_has_not_started_is_not_started(ends):
    made, ran = ends(), []
    made.near.on_stream(lambda payload, stream: ran.append(payload))
    made.far.open("first").cancel()
    made.far.open("second")
    settle()
    # All of them were there in one read.
    assert [json.loads(message)["type"] for message in made.far_transport.sent[:3]] == ["open", "open", "reset"]
    assert ran == ["second"]
    assert made.near.is_open


# How many there are


def test_one_stream_too_many_is_refused(ends):
    made, gate = ends(far_options={"max_concurrent_streams": 3}), Gate()
    made.far.on_stream(gate)
    streams = [made.near.open(number) for number in range(3)]
    settle()
    with pytest.raises(StreamRefused, match="limit of 3"):
        made.near.request(timeout=PATIENCE)
    # What this end opens does not count at the other.
    made.near.on_stream(echo)
    assert [made.far.request(number) for number in range(5)] == list(range(5))
    gate.open.set()
    for stream in streams:
        assert list(stream) == []
        stream.end()
    made.far.on_stream(echo)
    assert made.near.request(1, timeout=PATIENCE) == 1


def test_the_place_of_a_handler_that_has_answered_and_ended_is_free_as_its_answer_leaves(ends):
    """Otherwise a client that calls again at once is refused although it never has more calls than it may."""
    made, places = ends(), []

    @made.far.on_frame
    def watch(direction, frame, _size):
        if direction == "tx" and frame.type == "data":
            places.append(made.far._link.core._remote_streams)

    made.far.on_stream(echo)
    callers = [outcome(made.near.request, number) for number in range(3)]
    assert [caller.get(timeout=PATIENCE) for caller in callers] == [0, 1, 2]
    assert places == [0, 0, 0]


def test_handlers_count_until_they_end_and_not_until_their_streams_do(ends):
    made, gates = ends(far_options={"max_concurrent_streams": 2}), []

    def handle(payload, stream):
        gate = Event()
        gates.append(gate)
        gate.wait()

    made.far.on_stream(handle, stop=False)
    for _ in range(2):
        stream = made.near.open()
        settle()
        stream.cancel()
    settle()
    assert not made.far.streams
    with pytest.raises(StreamRefused):
        made.near.request(timeout=PATIENCE)
    gates[0].set()
    settle()
    third = made.near.open()
    settle()
    assert third.state is StreamState.OPEN
    for gate in gates:
        gate.set()


def test_the_limit_holds_over_thousands_of_streams_that_end_in_every_way(ends):
    made = ends(far_options={"max_concurrent_streams": 2})

    def handle(payload, stream):
        if payload == 0:
            raise ValueError
        if payload == 1:
            stream.reply(1)
        elif payload == 2:
            stream.cancel()
        elif payload == 3:
            stream.end()
        else:
            Event().wait()

    made.far.on_stream(handle)
    for number in range(500):
        stream = made.near.open(number % 5, end=number % 2 == 0)
        if number % 5 == 4:
            settle() if number < 50 else gevent.sleep(0)
        try:
            stream.receive(timeout=0)
        except Exception:
            pass
        stream.cancel()
        while made.far._link.core._remote_streams:
            gevent.sleep(0)
    assert made.far._link.core._remote_streams == 0
    made.far.on_stream(echo)
    assert made.near.request(1, timeout=PATIENCE) == 1
