"""The form of named calls on the wire, frame by frame, for whoever has no library for them (docs/messaging.md)."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from muxws_green.messaging import Message, MessagePeer
from tests.seeds.scripted import Wire


def silent(wire: Wire) -> None:
    wire.listen()


def frames(wire: Any) -> list[dict[str, Any]]:
    """What came, without the bookkeeping of the connection."""
    return [frame for _, frame in wire.log if frame["type"] not in ("ping", "goaway")]


def test_what_a_caller_sends(clock, raw_server, caller) -> None:
    def script(wire: Wire) -> None:
        for answer in ({"payload": 5, "end": True}, None, {"payload": 0}):
            call = wire.read()
            if answer is not None:
                wire.write("data", stream=call["stream"], **answer)
        wire.listen()

    server = raw_server(script)
    peer = caller(server.url)
    assert peer.request("add", {"a": 2, "b": 3}).body == 5
    peer.push("note")
    answers = peer.stream("count", 10)
    assert next(answers) == 0
    answers.close()
    clock.settle()
    assert frames(server.last) == [
        {"type": "open", "stream": 1, "end": True, "headers": {"method": "add"}, "payload": {"a": 2, "b": 3}},
        {"type": "open", "stream": 3, "end": True, "headers": {"method": "note"}, "payload": None},
        {"type": "open", "stream": 5, "end": True, "headers": {"method": "count"}, "payload": 10},
        {"type": "reset", "stream": 5, "code": 1, "reason": "the caller has seen enough"},
    ]


def test_what_a_caller_is_answered(clock, service, raw_client, caplog) -> None:
    """An acceptor that is told by any peer what to do: the answers are what that peer sees."""

    def setup(peer: MessagePeer) -> None:
        peer.on("add", lambda message: message.body["a"] + message.body["b"])
        peer.on("note", lambda message: None)
        peer.on("rows", lambda message: (row for row in ("x", "y")))

        @peer.on("fails")
        def fails(message: Message) -> None:
            raise LookupError("no such row")

    wire = raw_client(service(setup).url)

    def call(stream: int, **fields: Any) -> None:
        wire.write("open", stream=stream, end=True, **fields)
        clock.settle()

    with caplog.at_level(logging.CRITICAL, "muxws"):
        call(1, headers={"method": "add"}, payload={"a": 2, "b": 3})
        call(3, headers={"method": "note"})
        call(5, headers={"method": "rows"}, payload=None)
        call(7, headers={"method": "nowhere"}, payload=1)
        call(9, payload=1)
        call(11, headers={"method": "fails"}, payload=1)
    assert frames(wire) == [
        {"type": "data", "stream": 1, "payload": 5, "end": True},
        {"type": "data", "stream": 3, "payload": None, "end": True},
        {"type": "data", "stream": 5, "payload": "x"},
        {"type": "data", "stream": 5, "payload": "y"},
        {"type": "data", "stream": 5, "end": True},
        error(7, "UnknownMethodError", "no method 'nowhere'"),
        error(9, "UnknownMethodError", "the call has no header 'method' to say what is called"),
        error(11, "LookupError", "no such row"),
    ]


def error(stream: int, kind: str, text: str) -> dict[str, Any]:
    return {"type": "reset", "stream": stream, "code": 2, "reason": text, "payload": {"type": kind, "message": text}}


@pytest.mark.parametrize("fragmented", [False, True])
def test_a_call_may_come_in_fragments(clock, service, raw_client, fragmented) -> None:
    wire = raw_client(service(lambda peer: peer.on("len", lambda message: len(message.body))).url)
    if fragmented:
        wire.write("open", stream=1, headers={"method": "len"}, fragment='"abc', more=True)
        wire.write("open", stream=1, fragment='def"', end=True)
    else:
        wire.write("open", stream=1, headers={"method": "len"}, payload="abcdef", end=True)
    clock.settle()
    assert frames(wire) == [{"type": "data", "stream": 1, "payload": 6, "end": True}]


def test_a_browser_may_leave_its_side_open(clock, service, raw_client) -> None:
    """A call whose opener has not ended is handled as soon as its body is whole, and answered."""
    wire = raw_client(service(lambda peer: peer.on("echo", lambda message: message.body)).url)
    wire.write("open", stream=1, headers={"method": "echo"}, payload="hi")
    clock.settle()
    assert frames(wire) == [{"type": "data", "stream": 1, "payload": "hi", "end": True}]
