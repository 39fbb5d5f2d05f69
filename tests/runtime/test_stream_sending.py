"""What one end sends on a stream: order, ends, headers, trailers, and what cannot be sent (PROTOCOL §6)."""

from __future__ import annotations

import math

import gevent
import pytest

from muxws_green import (
    ConnectionLost,
    ProtocolError,
    RemoteError,
    ResetCode,
    StreamClosed,
    StreamReset,
    StreamState,
)
from muxws_green.codecs.msgpack import MsgpackCodec
from muxws_green.testing import settle
from tests.runtime.ends import PATIENCE, Gate, echo, outcome


def collect(into):
    """A handler that notes all payloads of its stream and then the trailers."""

    def handle(payload, stream):
        into.append(payload)
        into.extend(stream)
        into.append(stream.trailers)

    return handle


def test_payloads_arrive_in_order_and_then_the_end(ends):
    ends, got = ends(), []
    ends.far.on_stream(collect(got))
    stream = ends.near.open("first")
    for number in range(5):
        stream.send(number)
    stream.end("last", trailers={"sum": 10})
    assert stream.closed.wait(PATIENCE)
    assert got == ["first", 0, 1, 2, 3, 4, "last", {"sum": 10}]


def test_the_ends_of_both_sides_close_a_stream(ends):
    ends, gate = ends(), Gate()
    ends.far.on_stream(gate)
    stream = ends.near.open()
    assert stream.state is StreamState.OPEN
    stream.end()
    assert stream.state is StreamState.HALF_CLOSED_LOCAL
    far = gate.reached()
    assert far.state is StreamState.HALF_CLOSED_REMOTE
    assert not stream.closed.is_set()
    gate.open.set()
    assert stream.closed.wait(PATIENCE)
    assert (stream.state, far.state) == (StreamState.CLOSED, StreamState.CLOSED)
    assert not ends.near.streams
    assert not ends.far.streams


@pytest.mark.parametrize("again", ["send", "end", "reply", "send_headers"])
def test_nothing_can_be_sent_after_the_end(ends, again):
    ends, gate = ends(), Gate()
    ends.far.on_stream(gate)
    stream = ends.near.open(end=True)
    arguments = {"send": (1,), "end": (), "reply": (1,), "send_headers": ({"a": 1},)}[again]
    with pytest.raises(StreamClosed, match="ended"):
        getattr(stream, again)(*arguments)
    far = gate.reached()
    far.send(1, end=True)
    with pytest.raises(StreamClosed, match="ended"):
        getattr(far, again)(*arguments)
    assert [frame.get("payload") for frame in ends.sent] == [None]


def test_a_reset_stream_raises_its_reset_at_each_call(ends):
    ends, gate = ends(), Gate()
    ends.far.on_stream(gate)
    stream = ends.near.open()
    gate.reached().reset(ResetCode.PROTOCOL_ERROR, "enough")
    stream.closed.wait(PATIENCE)
    errors = []
    for call in (lambda: stream.send(1), stream.end, lambda: stream.send_headers({})):
        with pytest.raises(StreamReset, match="enough") as caught:
            call()
        errors.append(caught.value)
    assert {error.code for error in errors} == {ResetCode.PROTOCOL_ERROR}
    assert {error.stream_id for error in errors} == {stream.id}
    # A fresh one each time: one and the same would grow a traceback.
    assert len(set(map(id, errors))) == 3


def test_a_stream_whose_socket_died_says_so(ends):
    ends, gate = ends(), Gate()
    ends.far.on_stream(gate)
    stream = ends.near.open()
    far = gate.reached()
    ends.drop()
    for each in (stream, far):
        assert each.closed.wait(PATIENCE)
        with pytest.raises(ConnectionLost) as caught:
            each.send(1)
        assert caught.value.__cause__.code == 1006
        assert each.state is StreamState.CLOSED


@pytest.mark.parametrize(
    "value", [object(), {1, 2}, b"bytes", math.nan, math.inf, -math.inf, "\ud800", {"a": {1: object()}}]
)
@pytest.mark.case("C69")
def test_what_cannot_be_encoded_raises_at_the_call_and_costs_nothing(ends, value):
    ends = ends()
    ends.far.on_stream(echo)
    gate = Gate()
    ends.near.on_stream(gate)
    stream = ends.near.open("good")
    for call in (stream.send, stream.end, stream.reply, ends.near.open, ends.near.request, ends.near.notify):
        with pytest.raises((TypeError, ValueError)):
            call(value)
    assert stream.state is StreamState.OPEN
    for call in (
        lambda: stream.end(trailers={"t": value}),
        lambda: ends.near.open(headers={"h": value}),
        lambda: ends.near.request(headers={"h": value}),
    ):
        with pytest.raises((TypeError, ValueError)):
            call()
    assert stream.result(PATIENCE) == "good"
    # The id that follows: none was spent on what failed.
    assert ends.near.open(end=True).id == stream.id + 2
    ends.far.open()
    answering = gate.reached()
    with pytest.raises((TypeError, ValueError)):
        answering.send("x", headers={"h": value})
    answering.send("x", headers={"h": 1})
    settle()
    assert [frame for frame in ends.sent if frame["stream"] == answering.id] == [
        {"type": "data", "stream": answering.id, "headers": {"h": 1}, "payload": "x"}
    ]


@pytest.mark.parametrize("headers", ["text", [("a", 1)], 7, {1: "a"}, {b"a": 1}, {None: 1}])
def test_headers_and_trailers_are_mappings_with_str_keys(ends, headers):
    ends, gate = ends(), Gate()
    ends.far.on_stream(echo)
    ends.near.on_stream(gate)
    for call in (ends.near.open, ends.near.notify, ends.near.request):
        with pytest.raises(TypeError, match="headers"):
            call(1, headers=headers)
    ends.far.open()
    answering = gate.reached()
    for call in (answering.send, answering.end, answering.reply):
        with pytest.raises(TypeError, match="headers"):
            call(1, headers=headers)
    with pytest.raises(TypeError, match="headers"):
        answering.send_headers(headers)
    with pytest.raises(TypeError, match="trailers"):
        answering.end(trailers=headers)
    assert answering.state is StreamState.OPEN
    settle()
    assert ends.sent == []


class Text(str):
    def __str__(self):
        raise RuntimeError("no text")


@pytest.mark.parametrize("codec", ["json", MsgpackCodec()], ids=["json", "msgpack"])
def test_subclasses_of_str_are_str(ends, codec):
    made, seen = ends(codec=codec), []

    def handle(payload, stream):
        seen.append((payload, stream.headers))
        stream.reply(Text("answer"), headers={Text("a"): Text("b")}, trailers={Text("c"): Text("d")})

    made.far.on_stream(handle)
    stream = made.near.open(Text("ask"), headers={Text("h"): Text("i")}, end=True)
    assert stream.result(PATIENCE) == "answer"
    assert (stream.reply_headers, stream.trailers) == ({"a": "b"}, {"c": "d"})
    assert seen == [("ask", {"h": "i"})]


@pytest.mark.parametrize("codec", ["json", MsgpackCodec()], ids=["json", "msgpack"])
def test_lone_surrogates_raise_at_the_call_wherever_they_are(ends, codec):
    made, gate = ends(codec=codec), Gate()
    made.far.on_stream(gate)
    stream = made.near.open()
    far = gate.reached()
    for call in (
        lambda: stream.send("\ud800"),
        lambda: stream.send({"\ud800": 1}),
        lambda: stream.end(trailers={"\ud800": 1}),
        lambda: made.near.open(headers={"\ud800": 1}),
        lambda: made.near.notify(1, headers={"h": ["\ud800"]}),
        lambda: far.send_headers({"h": "\ud800"}),
        lambda: far.reply(1, headers={"\ud800": 1}),
    ):
        with pytest.raises(ValueError, match="surrogates"):
            call()
    far.reply("fine")
    assert stream.result(PATIENCE) == "fine"
    assert made.near.stats.streams_opened == 1


def test_what_is_sent_is_what_it_was_at_the_call(ends):
    ends, got = ends(), []
    ends.far.on_stream(lambda payload, stream: got.append((payload, stream.headers, list(stream), stream.trailers)))
    payload, headers, trailers = {"a": [1]}, {"h": [1]}, {"t": [1]}
    stream = ends.near.open(payload, headers=headers)
    stream.end(payload, trailers=trailers)
    for value in (payload["a"], headers["h"], trailers["t"]):
        value.append(2)
    stream.closed.wait(PATIENCE)
    assert got == [({"a": [1]}, {"h": [1]}, [{"a": [1]}], {"t": [1]})]


# Reply headers


def test_reply_headers_ride_the_first_frame_of_the_answer(ends):
    ends = ends()
    ends.far.on_stream(lambda payload, stream: stream.reply("body", headers={"status": 200}, trailers={"t": 1}))
    stream = ends.near.open(headers={"ask": 1}, end=True)
    assert not stream.reply_headers_arrived.is_set()
    assert stream.result(PATIENCE) == "body"
    assert stream.reply_headers_arrived.is_set()
    assert (stream.headers, stream.reply_headers, stream.trailers) == ({"ask": 1}, {"status": 200}, {"t": 1})


def test_reply_headers_can_be_announced_alone(ends):
    ends, gate = ends(), Gate()
    ends.far.on_stream(gate)
    stream = ends.near.open(end=True)
    waiting = outcome(stream.result)
    far = gate.reached()
    far.send_headers({"status": 200})
    assert far.reply_headers == {"status": 200}
    assert far.reply_headers_arrived.is_set()
    assert stream.reply_headers_arrived.wait(PATIENCE)
    assert stream.reply_headers == {"status": 200}
    settle()
    assert not waiting.dead
    far.reply("body")
    assert waiting.get(timeout=PATIENCE) == "body"


def test_a_second_set_of_reply_headers_raises_at_the_sender(ends):
    ends, gate = ends(), Gate()
    ends.far.on_stream(gate)
    stream = ends.near.open(end=True)
    far = gate.reached()
    far.send("first")
    for call in (
        lambda: far.send(1, headers={"a": 1}),
        lambda: far.send_headers({"a": 1}),
        lambda: far.end(headers={}),
    ):
        with pytest.raises(ProtocolError, match="first frame"):
            call()
    far.end("second")
    assert list(stream) == ["first", "second"]


def test_an_opener_passes_its_headers_to_open_only(ends):
    ends = ends()
    ends.far.on_stream(echo)
    stream = ends.near.open("x")
    with pytest.raises(ProtocolError, match=r"pass them to open\(\)"):
        stream.send(1, headers={"a": 1})
    assert stream.result(PATIENCE) == "x"


@pytest.mark.parametrize("how", ["answer", "close", "reset", "lost"])
def test_reply_headers_are_final_at_the_first_frame_or_when_the_stream_closes(ends, how):
    ends, gate = ends(), Gate()
    ends.far.on_stream(gate)
    stream = ends.near.open(end=True)
    far, arrived, theirs = gate.reached(), stream.reply_headers_arrived, gate.stream.reply_headers_arrived
    settle()
    assert not arrived.is_set()
    assert not theirs.is_set()
    if how == "answer":
        far.send(1)
    elif how == "close":
        gate.open.set()
    elif how == "reset":
        far.cancel()
    else:
        ends.drop()
    assert arrived.wait(PATIENCE)
    assert theirs.wait(PATIENCE)
    assert stream.reply_headers == {}


def test_headers_over_the_cap_by_themselves_raise_and_send_nothing(ends):
    ends, gate = ends(), Gate()
    ends.far.on_stream(gate)
    big = {"h": "x" * 70_000}
    with pytest.raises(ProtocolError, match="65536"):
        ends.near.open(headers=big)
    stream = ends.near.open()
    with pytest.raises(ProtocolError, match="65536"):
        stream.end(trailers=big)
    far = gate.reached()
    with pytest.raises(ProtocolError, match="65536"):
        far.send_headers(big)
    far.reply("fine", headers={"h": 1})
    assert stream.result(PATIENCE) == "fine"
    assert stream.reply_headers == {"h": 1}


# Big payloads


@pytest.mark.parametrize("codec", ["json", MsgpackCodec()])
def test_big_payloads_travel_both_ways(ends, codec):
    ends = ends(codec=codec)
    ends.far.on_stream(echo)
    value = {"text": "grün " * 40_000, "rows": list(range(1_000))}
    assert ends.near.request(value, headers={"h": 1}, timeout=PATIENCE) == value
    assert max(map(len, ends.near_transport.sent)) <= 65_536
    assert len(ends.near_transport.sent) > 3


def test_a_ping_and_a_small_call_overtake_a_big_payload(ends):
    ends = ends(capacity_bytes=70_000)
    ends.far.on_stream(lambda payload, stream: stream.reply(len(payload)))
    big = outcome(ends.near.request, "x" * 4_000_000)
    gevent.sleep(0)
    small = outcome(ends.near.request, "small")
    ping = outcome(ends.near.ping)
    assert small.get(timeout=PATIENCE) == 5
    assert ping.get(timeout=PATIENCE) >= 0.0
    assert big.get(timeout=PATIENCE) == 4_000_000
    kinds = [(frame["type"], frame.get("payload")) for frame in ends.sent]
    assert len(kinds) > 60
    assert kinds.index(("ping", None)) < 6
    assert kinds.index(("open", "small")) < 6


def test_a_payload_over_the_remotes_limit_costs_its_stream_only(ends):
    ends = ends(far_options={"max_payload_bytes": 100_000})
    ends.far.on_stream(echo)
    with pytest.raises(StreamReset) as caught:
        ends.near.request("x" * 200_000, timeout=PATIENCE)
    assert caught.value.code is ResetCode.PAYLOAD_TOO_LARGE
    assert ends.near.request("y", timeout=PATIENCE) == "y"


def test_an_error_in_the_handler_arrives_behind_what_it_had_sent(ends):
    ends = ends()

    def handle(payload, stream):
        stream.send(1)
        stream.send("x" * 200_000)
        raise LookupError("no more")

    ends.far.on_stream(handle)
    stream, got = ends.near.open(end=True), []
    with pytest.raises(RemoteError, match="no more") as caught:
        got.extend(len(str(row)) for row in stream)
    assert got == [1, 200_000]
    assert caught.value.payload == {"type": "LookupError", "message": "no more"}
    with pytest.raises(RemoteError):
        stream.receive()
