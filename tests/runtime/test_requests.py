"""Calls that are more than a stream: `request` and `notify` (PROTOCOL §6)."""

from __future__ import annotations

import gevent
import pytest

from muxws_green import (
    ConnectionGoingAway,
    ConnectionLost,
    ProtocolError,
    RemoteError,
    ResetCode,
    StreamRefused,
    StreamReset,
    StreamTimeout,
)
from muxws_green.testing import settle
from tests.runtime.ends import PATIENCE, Gate, echo, outcome


@pytest.mark.parametrize("value", [None, 0, False, "", "grün 🥦", [1, [2]], {"a": {"b": None}}, 1.5, 2**53])
def test_a_request_returns_what_the_handler_replies(ends, value):
    made = ends()
    made.far.on_stream(echo)
    assert made.near.request(value) == value
    assert not made.near.streams
    settle()
    assert not made.far.streams


def test_it_is_an_open_with_end(ends):
    made = ends()
    made.far.on_stream(echo)
    made.near.request("x", headers={"h": 1})
    assert made.sent == [
        {"type": "open", "stream": made.sent[0]["stream"], "end": True, "headers": {"h": 1}, "payload": "x"}
    ]


def test_it_waits_for_the_end_of_the_answer(ends):
    made, gate = ends(), Gate()

    def handle(payload, stream):
        stream.send("the answer")
        gate(payload, stream)

    made.far.on_stream(handle)
    waiting = outcome(made.near.request)
    gate.reached()
    settle()
    assert not waiting.dead
    gate.open.set()
    assert waiting.get(timeout=PATIENCE) == "the answer"


def test_a_second_payload_is_a_protocol_error_and_resets(ends):
    made, gate = ends(), Gate()

    def handle(payload, stream):
        stream.send(1)
        stream.send(2)
        gate(payload, stream)

    made.far.on_stream(handle)
    with pytest.raises(ProtocolError, match="more than one payload"):
        made.near.request(timeout=PATIENCE)
    assert gate.ended.wait(PATIENCE)
    assert gate.error.cause.code is ResetCode.PROTOCOL_ERROR
    (reset,) = made.sent_of("reset")
    assert reset["code"] == ResetCode.PROTOCOL_ERROR
    assert made.near.stats.held_bytes == 0


def test_two_payloads_and_the_end_at_once_are_one_too(ends):
    made = ends()

    def handle(payload, stream):
        stream.send(1)
        stream.end(2)

    made.far.on_stream(handle)
    with pytest.raises(ProtocolError, match="more than one payload"):
        made.near.request(timeout=PATIENCE)
    assert made.near.is_open
    assert made.near.stats.held_bytes == 0


def test_no_payload_is_a_protocol_error(ends):
    made = ends()
    made.far.on_stream(lambda payload, stream: None)
    with pytest.raises(ProtocolError, match="without a payload"):
        made.near.request(timeout=PATIENCE)


def test_an_answer_of_null_is_a_payload(ends):
    made = ends()
    made.far.on_stream(lambda payload, stream: stream.reply(None))
    assert made.near.request(timeout=PATIENCE) is None


def test_an_error_after_the_payload_is_raised(ends):
    made = ends()

    def handle(payload, stream):
        stream.send("half of it")
        raise LookupError("the rest")

    made.far.on_stream(handle)
    with pytest.raises(RemoteError, match="the rest"):
        made.near.request(timeout=PATIENCE)
    assert made.near.stats.held_bytes == 0


def test_its_deadline_tells_the_remote_to_stop(ends, clock):
    made, gate = ends(clock=clock), Gate()
    made.far.on_stream(gate)
    with pytest.raises(StreamTimeout, match=r"4\.0"):
        made.near.request(timeout=4.0)
    assert clock.now() == 4.0
    assert gate.ended.wait(PATIENCE)
    assert gate.error.cause.code is ResetCode.TIMEOUT
    assert made.near.is_open


def test_a_deadline_of_zero_is_over_at_once(ends, clock):
    made = ends(clock=clock)
    made.far.on_stream(Gate())
    with pytest.raises(StreamTimeout):
        made.near.request(timeout=0)
    assert clock.now() == 0.0


@pytest.mark.parametrize("timeout", [-1, float("nan"), "soon", True])
def test_a_wrong_deadline_sends_nothing(ends, timeout):
    made = ends()
    with pytest.raises(ValueError, match="timeout"):
        made.near.request(timeout=timeout)
    assert made.near.stats.streams_opened == 0


@pytest.mark.parametrize("thrown", [gevent.Timeout(5), gevent.GreenletExit("stop"), KeyError("mine")])
@pytest.mark.case("C20")
def test_what_is_thrown_into_it_cancels_and_comes_out(ends, thrown):
    made, gate = ends(), Gate()
    made.far.on_stream(gate)
    waiting = outcome(made.near.request)
    gate.reached()
    waiting.kill(thrown, block=False)
    assert waiting.get(timeout=PATIENCE) is thrown
    assert gate.ended.wait(PATIENCE)
    assert gate.error.cause.code is ResetCode.CANCELLED


def test_the_callers_own_timeout_is_that_very_one(ends):
    made = ends()
    made.far.on_stream(Gate())
    with gevent.Timeout(0.001) as own, pytest.raises(gevent.Timeout) as caught:
        made.near.request()
    assert caught.value is own
    assert made.near.is_open


def test_many_at_once_get_each_its_own_answer(ends):
    made = ends()

    def handle(payload, stream):
        # The later ones are answered first.
        for _ in range(50 - payload):
            gevent.sleep(0)
        stream.reply(payload)

    made.far.on_stream(handle)
    running = [gevent.spawn(made.near.request, number) for number in range(50)]
    gevent.joinall(running, timeout=PATIENCE)
    assert [each.value for each in running] == list(range(50))


def test_both_ends_call_each_other_inside_their_handlers(ends):
    made = ends()

    def handle(payload, stream):
        peer = made.far if stream.id % 2 == made.far_id % 2 else made.near
        other = made.near if peer is made.far else made.far
        stream.reply(payload if payload == 0 else other.request(payload - 1))

    made.near.on_stream(handle)
    made.far.on_stream(handle)
    assert made.near.request(20, timeout=PATIENCE) == 0


# notify


def test_a_notify_is_an_open_with_end_whose_answer_is_discarded(ends):
    made, got = ends(), []

    def handle(payload, stream):
        got.append((payload, stream.headers))
        for _ in range(100):
            stream.send("x" * 10_000)

    made.far.on_stream(handle)
    assert made.near.notify({"tell": 1}, headers={"h": 1}) is None
    settle()
    assert got == [({"tell": 1}, {"h": 1})]
    assert made.near.stats.held_bytes == 0
    assert not made.near.streams
    assert made.sent_of("reset") == []


@pytest.mark.parametrize("answer", ["error", "refused", "reset"])
def test_what_becomes_of_a_notify_is_nobodys_business(ends, answer, caplog):
    made = ends()

    def handle(payload, stream):
        if answer == "error":
            raise ValueError
        stream.cancel()

    if answer != "refused":
        made.far.on_stream(handle)
    made.near.notify()
    settle()
    assert made.near.is_open
    assert not made.near.streams
    assert not [record for record in caplog.records if made.near.id in record.getMessage()]


# Where there is nobody to call


@pytest.mark.parametrize("call", ["open", "request", "notify"])
def test_calls_fail_where_the_remote_is_going_away(ends, call):
    made = ends()
    made.inject(type="goaway", code=0, last_stream=0)
    settle()
    with pytest.raises(ConnectionGoingAway):
        getattr(made.near, call)()
    assert made.near.is_open
    assert made.near.ping() >= 0.0


@pytest.mark.parametrize("call", ["open", "request", "notify", "ping"])
def test_calls_on_a_closed_peer_say_why(ends, call):
    made = ends()
    made.drop()
    settle()
    with pytest.raises(ConnectionLost, match="closed") as caught:
        getattr(made.near, call)()
    assert caught.value.__cause__ is made.near.close_cause
    assert caught.value.__cause__.code == 1006


def test_streams_that_the_remote_will_not_process_fail_and_nothing_is_sent_for_them(ends):
    made = ends()
    made.far.on_stream(Gate())
    first = made.near.open()
    settle()
    second, third = made.near.open(), outcome(made.near.request)
    settle()
    before = len(made.sent)
    made.inject(type="goaway", code=0, last_stream=first.id)
    for waiting in (outcome(second.result), third):
        error = waiting.get(timeout=PATIENCE)
        assert isinstance(error, StreamRefused)
        assert isinstance(error, StreamReset)
    assert len(made.sent) == before
    # The others may finish.
    made.inject(type="data", stream=first.id, payload="fine")
    assert first.result(PATIENCE) == "fine"
