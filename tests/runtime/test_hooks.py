"""Observing and intercepting: the frame log, `on_frame`, and the interceptors of headers (PROTOCOL §9)."""

from __future__ import annotations

import logging

import gevent
import pytest
from greenlet import GreenletExit

from muxws_green import ABSENT, Frame, ProtocolError, RemoteError, ResetCode, StreamRefused, StreamState
from muxws_green.codecs.msgpack import MsgpackCodec
from muxws_green.runtime.hooks import NO_HOOKS, Hooks, frame_line
from muxws_green.testing import settle
from tests.runtime.ends import PATIENCE, Gate, echo

BAD = [ValueError("bad"), gevent.Timeout(5), AssertionError("bad"), GeneratorExit("bad")]


# The frame log


@pytest.mark.parametrize(
    "frame, size, line",
    [
        (Frame("open", stream=7, payload=1, headers={"a": 1}), 214, "type=open   stream=7 end=0 bytes=214 headers=1"),
        (Frame("open", stream=7, end=True), 30, "type=open   stream=7 end=1 bytes=30"),
        (Frame("data", stream=8, payload=None), 30, "type=data   stream=8 end=0 bytes=30"),
        (Frame("data", stream=8, fragment="x", more=True), 99, "type=data   stream=8 end=0 bytes=99 frag=more"),
        (
            Frame("data", stream=8, fragment="x", end=True, trailers={"t": 1}),
            99,
            "type=data   stream=8 end=1 bytes=99 frag=last",
        ),
        (
            Frame("open", stream=8, fragment="", headers={"a": 1, "b": 2}, more=True),
            99,
            "type=open   stream=8 end=0 bytes=99 frag=more headers=2",
        ),
        (Frame("reset", stream=8, code=1), 30, "type=reset  stream=8 bytes=30 code=1"),
        (
            Frame("reset", stream=8, code=2, reason="it's\n", payload={"secret": 1}),
            30,
            'type=reset  stream=8 bytes=30 code=2 reason="it\'s\\n"',
        ),
        (Frame("ping", nonce="n"), 30, "type=ping   bytes=30"),
        (Frame("pong", nonce="n"), 30, "type=pong   bytes=30"),
        (Frame("goaway", code=0, last_stream=0), 30, "type=goaway bytes=30 code=0 last=0"),
        (
            Frame("goaway", code=3, last_stream=9, reason="why"),
            30,
            "type=goaway bytes=30 code=3 last=9 reason='why'",
        ),
        (Frame("later"), 30, "type='later' bytes=30"),
        (Frame("x dir=tx\ntype=y" + "z" * 99), 30, r"type='x dir=tx\ntype=yzzzzzzzzzzzzzzz bytes=30"),
    ],
)
def test_the_line_of_each_frame(frame, size, line):
    assert frame_line("a3f-17", "tx", frame, size) == f"muxws conn=a3f-17 dir=tx {line}"


def lines_of(caplog, peer):
    return [record.getMessage() for record in caplog.records if f"conn={peer.id} " in record.getMessage()]


@pytest.mark.parametrize("codec", ["json", MsgpackCodec()], ids=["json", "msgpack"])
def test_each_frame_is_a_line_at_debug_with_the_length_of_its_message(ends, caplog, codec):
    made = ends(codec=codec)
    made.far.on_stream(echo)
    caplog.set_level(logging.DEBUG, "muxws.frames")
    made.near.request({"password": "hunter2"}, headers={"token": "hunter2"})
    settle()
    sizes = [len(made.near_transport.sent[0]), len(made.far_transport.sent[0])]
    stream = 1 if made.near.is_dialer else 2
    assert lines_of(caplog, made.near) == [
        f"muxws conn={made.near.id} dir=tx type=open   stream={stream} end=1 bytes={sizes[0]} headers=1",
        f"muxws conn={made.near.id} dir=rx type=data   stream={stream} end=1 bytes={sizes[1]}",
    ]
    assert lines_of(caplog, made.far) == [
        f"muxws conn={made.far.id} dir=rx type=open   stream={stream} end=1 bytes={sizes[0]} headers=1",
        f"muxws conn={made.far.id} dir=tx type=data   stream={stream} end=1 bytes={sizes[1]}",
    ]
    assert {record.name for record in caplog.records} == {"muxws.frames"}
    assert {record.levelno for record in caplog.records} == {logging.DEBUG}
    assert "hunter2" not in caplog.text


def test_fragments_and_connection_frames_are_lines_too(ends, caplog):
    made = ends()
    made.far.on_stream(echo)
    caplog.set_level(logging.DEBUG, "muxws.frames")
    made.near.request("x" * 150_000)
    made.near.ping()
    made.near.close()
    told = lines_of(caplog, made.near)
    assert sum("frag=more" in line for line in told) == 4
    assert sum("frag=last" in line for line in told) == 2
    assert sum("type=ping   bytes=" in line for line in told) == 1
    assert sum("type=pong   bytes=" in line for line in told) == 1
    assert sum("type=goaway bytes=" in line and line.endswith("code=0 last=0") for line in told) == 1


def test_nothing_is_made_of_frames_that_nobody_looks_at(ends, caplog, monkeypatch):
    made, shown = ends(), []
    made.far.on_stream(echo)
    monkeypatch.setattr(Hooks, "frame", lambda *arguments: shown.append(arguments))
    caplog.set_level(logging.INFO, "muxws.frames")
    made.near.request(1)
    assert caplog.records == []
    assert shown == []


def test_a_log_handler_that_raises_changes_nothing(ends):
    class Broken(logging.Handler):
        def emit(self, record):
            raise RuntimeError("the disk is full")

    made, broken = ends(), Broken()
    made.far.on_stream(echo)
    log = logging.getLogger("muxws.frames")
    log.addHandler(broken)
    log.setLevel(logging.DEBUG)
    try:
        assert made.near.request(1, timeout=PATIENCE) == 1
    finally:
        log.removeHandler(broken)
        log.setLevel(logging.NOTSET)


# on_frame


def test_on_frame_sees_every_frame_in_both_directions(ends):
    made, seen = ends(), []
    made.far.on_stream(lambda payload, stream: stream.reply(payload, headers={"r": 1}, trailers={"t": 1}))
    hook = lambda *arguments: seen.append(arguments)  # noqa: E731
    assert made.near.on_frame(hook) is hook
    made.near.request([1], headers={"h": 1})
    stream = 1 if made.near.is_dialer else 2
    assert seen == [
        ("tx", Frame("open", stream=stream, payload=[1], headers={"h": 1}, end=True), len(made.near_transport.sent[0])),
        (
            "rx",
            Frame("data", stream=stream, payload=[1], headers={"r": 1}, end=True, trailers={"t": 1}),
            len(made.far_transport.sent[0]),
        ),
    ]


def test_on_frame_sees_the_frames_of_the_fast_path_and_unknown_ones(ends):
    made, seen = ends(), []
    made.far.on_stream(Gate())
    stream = made.near.open()
    settle()
    made.near.on_frame(lambda direction, frame, size: seen.append((direction, frame)))
    made.inject(type="data", stream=stream.id, payload=1)
    made.inject(type="data", stream=stream.id, payload=2)
    made.inject(type="later", stream=stream.id)
    made.inject(type="pong", nonce="nobody's")
    settle()
    assert seen == [
        ("rx", Frame("data", stream=stream.id, payload=1)),
        ("rx", Frame("data", stream=stream.id, payload=2)),
        ("rx", Frame("later", stream=stream.id)),
        ("rx", Frame("pong", nonce="nobody's")),
    ]
    assert seen[2][1].payload is ABSENT


@pytest.mark.parametrize("error", BAD, ids=lambda error: type(error).__name__)
@pytest.mark.case("C53")
def test_a_hook_that_raises_is_logged_and_changes_nothing(ends, error, caplog):
    made, seen = ends(), []

    def bad(direction, frame, size):
        raise error

    made.far.on_stream(echo)
    for peer in (made.near, made.far):
        peer.on_frame(bad)
        peer.on_frame(lambda *arguments: seen.append(arguments))
    assert [made.near.request(number, timeout=PATIENCE) for number in range(3)] == [0, 1, 2]
    settle()
    assert len(seen) == 12
    assert caplog.text.count("an on_frame hook raised") == 12
    assert made.near.is_open
    assert made.far.is_open


def test_a_hook_may_call_the_peer_it_looks_at(ends):
    made, told = ends(), []

    def hook(direction, frame, size):
        if frame.type == "data" and direction == "rx":
            made.near.notify(["seen", frame.payload])

    made.far.on_stream(
        lambda payload, stream: told.append(payload) if isinstance(payload, list) else echo(payload, stream)
    )
    made.near.on_frame(hook)
    assert made.near.request(7, timeout=PATIENCE) == 7
    settle()
    assert told == [["seen", 7]]


# Outgoing opens


def test_open_interceptors_change_the_headers_of_every_call(ends):
    made, seen = ends(), []

    def handle(payload, stream):
        seen.append((payload, stream.headers))
        stream.reply(payload)

    def number(headers, payload):
        headers["n"] = payload

    def second(headers, payload):
        headers["again"] = headers["n"]
        headers.pop("drop", None)

    made.far.on_stream(handle)
    made.near.intercept_open(number)
    made.near.intercept_open(second)
    given = {"drop": 1}
    made.near.request(1, headers=given)
    made.near.notify(2)
    stream = made.near.open(3, end=True)
    stream.result(PATIENCE)
    assert seen == [(n, {"n": n, "again": n}) for n in (1, 2, 3)]
    assert stream.headers == {"n": 3, "again": 3}
    # The caller's own mapping is not touched.
    assert given == {"drop": 1}


def test_an_open_without_headers_has_none_on_the_wire(ends):
    made = ends()
    made.near.intercept_open(lambda headers, payload: None)
    made.near.notify(1)
    settle()
    assert "headers" not in made.sent[0]


@pytest.mark.parametrize("error", BAD, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("call", ["open", "request", "notify"])
def test_an_open_interceptor_that_raises_fails_that_call(ends, call, error):
    made = ends()
    made.far.on_stream(echo)

    def bad(headers, payload):
        if payload == "bad":
            raise error

    made.near.intercept_open(bad)
    with pytest.raises(type(error)) as caught:
        getattr(made.near, call)("bad")
    assert caught.value is error
    assert made.near.request("good", timeout=PATIENCE) == "good"
    assert made.near.stats.streams_opened == 1


@pytest.mark.parametrize("key", [1, None, b"b", ("t",)])
def test_keys_that_are_no_str_fail_the_call(ends, key):
    made, gate = ends(), Gate()
    made.near.on_stream(gate)
    made.near.intercept_open(lambda headers, payload: headers.update({key: 1}))
    made.near.intercept_reply_headers(lambda headers, stream: headers.update({key: 1}))
    with pytest.raises(TypeError, match="keys of headers are str"):
        made.near.open()
    made.far.open()
    answering = gate.reached()
    for call in (lambda: answering.send(1), answering.end, lambda: answering.send_headers({})):
        with pytest.raises(TypeError, match="keys of headers are str"):
            call()
    assert answering.state is StreamState.OPEN
    settle()
    assert made.sent == []


def test_an_interceptor_that_waits_and_finds_the_peer_closed(ends):
    made = ends()

    def waits(headers, payload):
        made.drop()
        settle()

    made.near.intercept_open(waits)
    with pytest.raises(Exception, match="closed"):
        made.near.open()


# Outgoing reply headers


@pytest.mark.parametrize("answer", ["send", "end", "reply", "send_headers", "ended for it"])
def test_reply_interceptors_run_once_before_the_first_frame(ends, answer):
    made, seen = ends(), []

    def handle(payload, stream):
        if answer == "send_headers":
            stream.send_headers({"own": 1})
            stream.send(1)
        elif answer == "end":
            stream.end(headers={"own": 1})
        elif answer != "ended for it":
            getattr(stream, answer)(1, headers={"own": 1})
            if answer == "send":
                stream.send(2)
        seen.append(stream.reply_headers)

    def intercept(headers, stream):
        seen.append((dict(headers), stream.id))
        headers["added"] = 1

    made.far.on_stream(handle)
    made.far.intercept_reply_headers(intercept)
    stream = made.near.open(end=True)
    assert stream.closed.wait(PATIENCE)
    own = {} if answer == "ended for it" else {"own": 1}
    told = (own, stream.id)
    assert [each for each in seen if isinstance(each, tuple)] == [told]
    assert stream.reply_headers == {**own, "added": 1}
    if answer != "ended for it":
        assert seen[-1] == {"own": 1, "added": 1}


def test_reply_interceptors_do_not_run_for_own_streams_nor_for_resets(ends):
    made, seen = ends(), []
    made.near.intercept_reply_headers(lambda headers, stream: seen.append(stream.id))
    made.far.on_stream(echo)
    stream = made.near.open()
    stream.send(1)
    stream.end()
    made.near.on_stream(lambda payload, stream: stream.cancel())
    made.far.open().closed.wait(PATIENCE)
    assert seen == []


@pytest.mark.parametrize("error", BAD, ids=lambda error: type(error).__name__)
def test_a_reply_interceptor_that_raises_fails_that_call_and_no_other(ends, error):
    made, caught = ends(), []

    def bad(headers, stream):
        if not caught:
            raise error

    def handle(payload, stream):
        try:
            stream.reply("never")
        except BaseException as raised:
            caught.append(raised)
        stream.reply("then")

    made.far.on_stream(handle)
    made.far.intercept_reply_headers(bad)
    assert made.near.request(timeout=PATIENCE) == "then"
    assert caught == [error]


def test_one_that_raises_where_the_stream_is_ended_for_the_handler_is_the_handlers_error(ends):
    made = ends()

    def bad(headers, stream):
        raise LookupError("no headers")

    made.far.on_stream(lambda payload, stream: None)
    made.far.intercept_reply_headers(bad)
    with pytest.raises(RemoteError, match="no headers"):
        made.near.open().result(PATIENCE)


def test_a_second_set_from_the_caller_raises_although_an_interceptor_has_run(ends):
    made, gate = ends(), Gate()
    made.far.on_stream(gate)
    made.far.intercept_reply_headers(lambda headers, stream: headers.update(added=1))
    stream = made.near.open(end=True)
    answering = gate.reached()
    answering.send(1)
    with pytest.raises(ProtocolError):
        answering.send(2, headers={"own": 1})
    answering.end(2)
    assert list(stream) == [1, 2]
    assert stream.reply_headers == {"added": 1}


# Incoming headers


def test_incoming_interceptors_run_once_for_each_stream_headers_or_none(ends):
    made, seen = ends(), []
    made.near.intercept_incoming_headers(lambda headers, stream: seen.append((dict(headers), stream.id, stream.local)))
    made.near.on_stream(lambda payload, stream: stream.reply(len(list(stream))))
    made.far.on_stream(lambda payload, stream: [stream.send(1, headers=payload), stream.send(2)])
    theirs = made.far.open(headers={"a": 1})
    theirs.send("x" * 200_000)
    theirs.end()
    theirs.closed.wait(PATIENCE)
    bare = made.far.open("x" * 200_000, end=True)
    bare.closed.wait(PATIENCE)
    ours, plain = made.near.open({"r": 1}, end=True), made.near.open(None, end=True)
    for each in (ours, plain):
        each.closed.wait(PATIENCE)
    assert seen == [
        ({"a": 1}, theirs.id, False),
        ({}, bare.id, False),
        ({"r": 1}, ours.id, True),
        ({}, plain.id, True),
    ]


def test_they_come_before_the_payload_is_whole_and_cannot_change_anything(ends, caplog):
    made, seen = ends(), []

    def intercept(headers, stream):
        seen.append((stream.payload, stream.state))
        with pytest.raises(TypeError):
            headers["a"] = 2

    made.near.intercept_incoming_headers(intercept)
    made.near.on_stream(lambda payload, stream: seen.append((len(payload), stream.headers)))
    made.far.open("x" * 200_000, headers={"a": 1}, end=True).closed.wait(PATIENCE)
    assert seen == [(None, StreamState.OPEN), (200_000, {"a": 1})]
    assert caplog.text == ""


@pytest.mark.parametrize("error", BAD, ids=lambda error: type(error).__name__)
@pytest.mark.case("C53")
def test_an_incoming_interceptor_that_raises_is_logged_only(ends, error, caplog):
    made, seen = ends(), []

    def bad(headers, stream):
        raise error

    made.near.intercept_incoming_headers(bad)
    made.near.intercept_incoming_headers(lambda headers, stream: seen.append(dict(headers)))
    made.near.on_stream(echo)
    assert [made.far.request(number, headers={"n": number}, timeout=PATIENCE) for number in range(3)] == [0, 1, 2]
    assert seen == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert caplog.text.count("an incoming headers interceptor raised") == 3


def test_they_may_end_the_stream(ends):
    made, ran = ends(), []
    made.near.intercept_incoming_headers(lambda headers, stream: stream.reset(ResetCode.REFUSED, "not from you"))
    made.near.on_stream(lambda payload, stream: ran.append(payload))
    for payload in ("small", "x" * 200_000):
        with pytest.raises(StreamRefused, match="not from you"):
            made.far.request(payload, timeout=PATIENCE)
    made.far.on_stream(echo)
    with pytest.raises(StreamRefused, match="not from you"):
        made.near.request(timeout=PATIENCE)
    assert ran == []
    assert made.near.is_open
    assert made.far.is_open


@pytest.mark.parametrize("refused", ["no handler", "over the limit", "going away"])
def test_they_do_not_run_for_refused_streams(ends, refused):
    made, seen = ends(near_options={"max_concurrent_streams": 1}), []
    made.near.intercept_incoming_headers(lambda headers, stream: seen.append(headers["n"]))
    if refused != "no handler":
        made.near.on_stream(Gate())
        made.far.open(headers={"n": 1})
        settle()
        seen.clear()
    if refused == "going away":
        made.near._link.core.goaway(0, None)
    with pytest.raises(StreamRefused):
        made.far.request(headers={"n": 2}, timeout=PATIENCE)
    assert seen == []


# Registrations


@pytest.mark.parametrize("kind", ["intercept_open", "intercept_reply_headers", "intercept_incoming_headers"])
def test_each_registration_is_removed_by_its_own_function(ends, kind):
    made, seen = ends(), []
    made.near.on_stream(echo)
    made.far.on_stream(echo)

    def interceptor(headers, about):
        seen.append(1)

    removals = [getattr(made.near, kind)(interceptor) for _ in range(3)]

    def count():
        seen.clear()
        (made.far if kind == "intercept_reply_headers" else made.near).request()
        return len(seen)

    assert count() == 3
    removals[1]()
    assert count() == 2
    removals[1]()
    assert count() == 2
    removals[0]()
    removals[2]()
    assert count() == 0


def test_an_interceptor_may_remove_itself(ends):
    made, seen = ends(), []
    made.far.on_stream(echo)

    def once(headers, payload):
        seen.append(payload)
        remove()

    remove = made.near.intercept_open(once)
    made.near.intercept_open(lambda headers, payload: seen.append("other"))
    made.near.request(1)
    made.near.request(2)
    assert seen == [1, "other", "other"]


def test_a_hook_that_is_killed_with_its_greenlet_ends_the_connection(ends):
    made = ends()

    def dies(direction, frame, size):
        raise GreenletExit

    made.near.on_frame(dies)
    stream = made.near.open()
    assert stream.closed.wait(PATIENCE)
    assert made.near.is_closed


def test_what_is_registered_on_one_peer_is_no_other_peers(ends):
    made, other = ends(), ends()
    made.far.on_stream(echo)
    other.far.on_stream(echo)
    seen = []
    # While its connection is up, and with nothing registered before.
    made.near.on_frame(lambda direction, frame, size: seen.append(direction))
    assert other.near.request(1) == 1
    assert seen == []
    assert made.near.request(1) == 1
    assert seen == ["tx", "rx"]
    assert NO_HOOKS.observers == ()


def test_tags_are_the_applications(ends):
    peer = ends().near
    assert peer.tags == {}
    peer.tags["a"] = 1
    assert peer.tags == {"a": 1}
    peer.tags = {"b": 2}
    assert peer.tags == {"b": 2}
