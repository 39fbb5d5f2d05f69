"""Calls to and from a plain reference peer, in a process of its own, that sets the header by itself; both roles."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import gevent
import pytest
from gevent.event import AsyncResult, Event

from muxws_green import RemoteError
from muxws_green.messaging import BadBodyError, Message, MessagePeer, UnknownMethodError, connect, serve
from tests.interop.process import PATIENCE, Reference, running

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.leaks]


@dataclass
class Talk:
    """Our end, the reference, and what our handlers have seen."""

    ours: MessagePeer
    reference: Reference
    seen: list[Message] = field(default_factory=list)
    stopped: Event = field(default_factory=Event)


@pytest.fixture(params=["we dial", "the reference dials"])
def talk(request: pytest.FixtureRequest) -> Iterator[Talk]:
    seen: list[Message] = []
    stopped = Event()
    arrived: AsyncResult[MessagePeer] = AsyncResult()

    def setup(peer: MessagePeer) -> None:
        peer.on("add", lambda message: seen.append(message) or sum(message.body))  # type: ignore[func-returns-value]
        peer.on("note", seen.append)
        peer.on("count", lambda message: (n for n in range(message.body)))
        peer.on("relay", lambda message: message.peer.request(message.body["name"], message.body["body"]).body)

        @peer.on("endless")
        def endless(message: Message) -> Iterator[Any]:
            try:
                while True:
                    yield message.body
            finally:
                stopped.set()

        @peer.on("picky")
        def picky(message: Message) -> None:
            raise BadBodyError("not this one")

        arrived.set(peer)

    with gevent.Timeout(2 * PATIENCE):
        if request.param == "we dial":
            with running("tests.messaging.reference_peer", "serve") as child:
                port = json.loads(child.line())["port"]
                reference = Reference(child)
                with connect(f"ws://127.0.0.1:{port}/", setup) as peer:
                    yield Talk(peer, reference, seen, stopped)
                reference.close()
        else:
            server = serve("127.0.0.1", 0, setup)
            with running("tests.messaging.reference_peer", "dial") as child:
                reference = Reference(child)
                reference.do("dial", url=f"ws://127.0.0.1:{server.port}/")
                caller = arrived.get()
                assert caller is not None
                yield Talk(caller, reference, seen, stopped)
                server.drain(0.0)
                reference.close()


def test_we_call_the_reference(talk: Talk) -> None:
    ours = talk.ours
    assert ours.request("add", [1, 2, 3]).body == 6
    assert list(ours.stream("count", 100)) == list(range(100))
    ours.push("note", {"n": 1})
    with pytest.raises(UnknownMethodError, match="the reference has no nowhere"):
        ours.request("nowhere")
    with pytest.raises(RemoteError, match="kaputt") as raised:
        ours.request("fails", "kaputt")
    assert raised.value.payload == {"type": "LookupError", "message": "kaputt"}
    with ours.stream("endless", "x") as answers:
        assert [next(answers) for _ in range(10)] == ["x"] * 10
    assert talk.reference.do("wait_stopped")
    assert talk.reference.do("heard") == [{"n": 1}]


def test_the_reference_calls_us(talk: Talk) -> None:
    reference = talk.reference
    assert reference.do("request", name="add", body=[1, 2, 3]) == 6
    assert talk.seen == [Message("add", [1, 2, 3], talk.ours, {"method": "add"})]
    assert reference.do("stream", name="count", body=100, count=-1) == list(range(100))
    reference.do("push", name="note", body={"n": 1})
    assert reference.do("request", name="nowhere", body=None) == {
        "code": 2,
        "reason": "no method 'nowhere'",
        "payload": {"type": "UnknownMethodError", "message": "no method 'nowhere'"},
    }
    assert reference.do("request", name="picky", body=None) == {
        "code": 2,
        "reason": "not this one",
        "payload": {"type": "BadBodyError", "message": "not this one"},
    }
    assert reference.do("stream", name="endless", body="x", count=10) == ["x"] * 10
    assert talk.stopped.wait(PATIENCE)
    assert [message.body for message in talk.seen] == [[1, 2, 3], {"n": 1}]


def test_both_call_both_ways_and_back(talk: Talk) -> None:
    """Each is called within its own call to the other: ours by theirs by ours, and the other way round."""
    order = {"name": "relay", "body": {"name": "add", "body": [4, 5]}}
    calls = [talk.reference.start("request", name="relay", body=order) for _ in range(20)]
    ours = [gevent.spawn(talk.ours.request, "relay", order) for _ in range(20)]
    assert [talk.reference.finish(call) for call in calls] == [9] * 20
    assert [call.get().body for call in ours] == [9] * 20
