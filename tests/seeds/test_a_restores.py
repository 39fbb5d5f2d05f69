"""Document A, "What a reconnect restores", "tags and reconnects" and "Client identity"."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any

import pytest

import muxws_green
from muxws_green import (
    CloseReason,
    ConnectionLost,
    MuxwsError,
    Peer,
    PeerRegistry,
    Stream,
    StreamClosed,
    StreamReset,
)
from tests.seeds.fixtures import cut
from tests.seeds.scripted import Wire, mute, outcome, polite, resets_hello

seed = pytest.mark.seed


@seed("A: fires once per re-established connection")
@seed("A: the socket is open, and")
@seed("A: the acceptor has acknowledged the hello on it")
def test_on_reconnect(clock, raw_server, dial) -> None:
    """Not for the first connection, once for each later one, and never for an attempt that fails."""
    server = raw_server(polite, polite, resets_hello, resets_hello, polite)
    fired: list[Any] = []
    peer = dial(server.url, hello=1)

    @peer.on_reconnect
    def again(attempt: int, given: Peer) -> None:
        wire = server.last
        # The acknowledgement has been written, so the hello has been read.
        fired.append((attempt, given is peer, peer.is_open, [frame["stream"] for frame in wire.of("open")]))
        assert peer.request("usable", timeout=1.0) == "usable"

    clock.settle()
    assert fired == []
    for _ in range(2):
        server.last.reset()
        clock.advance(10.0)
    assert len(server.wires) == 5
    assert fired == [(1, True, True, [1]), (2, True, True, [1])]
    assert peer.stats.reconnects == 2


@seed("A: fires once per re-established connection")
def test_several_callbacks_in_their_order_and_one_that_raises(clock, raw_server, dial, caplog) -> None:
    server = raw_server(polite)
    order: list[Any] = []
    peer = dial(server.url, hello=1)
    peer.on_close(lambda reason: order.append("close"))

    @peer.on_reconnect
    def raises(attempt: int, given: Peer) -> None:
        order.append("first")
        raise ValueError("so it goes")

    peer.on_reconnect(lambda attempt, given: order.append("second"))
    with caplog.at_level(logging.ERROR, logger="muxws"):
        server.last.reset()
        clock.advance(1.0)
        server.last.reset()
        clock.advance(1.0)
    assert order == ["close", "first", "second"] * 2
    assert peer.is_open
    assert "so it goes" in caplog.text


@seed("A: No stream is restored")
@seed("A: was failed with ConnectionLost")
@seed("A: Stream objects are closed, although the Peer object remains")
def test_every_live_stream_fails_and_none_comes_back(clock, raw_server, dial) -> None:
    server = raw_server(mute)
    handled: list[Stream] = []
    ended: list[str] = []

    def handler(payload: Any, stream: Stream) -> None:
        handled.append(stream)
        try:
            stream.receive()
        except StreamReset as error:
            ended.append(type(error).__name__)
            raise

    peer = dial(server.url, hello=1, on_stream=handler, heartbeat=None)
    peer.on_close(lambda reason: ended.append("on_close"))
    half, whole = peer.open("half open"), peer.open("sent", end=True)
    server.last.write("open", stream=2, payload="theirs")
    waits = [
        outcome(peer.request, "a call"),
        outcome(half.result),
        outcome(list, peer.open("iterated")),
        outcome(peer.ping, 60.0),
    ]
    clock.settle()
    assert len(peer.streams) == 5
    server.last.reset()
    clock.settle()
    kinds = [type(wait.value).__name__ for wait in waits]
    assert kinds == ["ConnectionLost", "ConnectionLost", "ConnectionLost", "ConnectionClosed"]
    assert peer.streams == {}
    for stream in (half, whole, handled[0]):
        assert stream.closed.is_set()
        assert stream.state.value == "closed"
    # They had failed before anybody was told.
    assert ended == ["ConnectionLost", "on_close"]
    clock.advance(1.0)
    assert peer.is_open
    assert peer.streams == {}
    assert [frame["payload"] for frame in server.last.of("open")] == [1]


@pytest.mark.slow
@seed("A: no in-flight frame is re-sent")
@seed("A: Nothing is buffered between sockets")
@seed("A: queues are discarded on socket death")
def test_what_was_queued_is_thrown_away(clock, raw_server, dial) -> None:
    """Megabytes wait behind a remote that does not read; the next socket sees none of them."""

    def stuck(wire: Wire) -> None:
        wire.greet()

    server = raw_server(stuck, polite)
    peer = dial(server.url, hello="hello", heartbeat=None)
    peer.notify({"bulk": "x" * 8_000_000})
    peer.notify("small")
    clock.settle()
    assert peer.stats.queued_bytes > 1_000_000
    server.last.reset()
    clock.settle()
    assert peer.stats.queued_bytes == 0
    clock.advance(60.0)
    assert peer.is_open
    assert [frame.get("payload") for frame in server.last.of("open")] == ["hello"]


@seed("A: using it raises")
@seed("A: Stream objects are closed, although the Peer object remains")
def test_a_stream_that_is_held_across_a_reconnection(clock, raw_server, dial) -> None:
    server = raw_server(polite)
    peer = dial(server.url, hello=1)
    held, ended = peer.open("held"), peer.open("ended", end=True)
    assert ended.result(timeout=1.0) == "ended"
    clock.settle()
    server.last.reset()
    for _ in range(2):
        # Between sockets, and on the next one.
        uses = [
            lambda: held.send("more"),
            lambda: held.end(),
            lambda: held.reply("answer"),
            lambda: held.send_headers({"h": 1}),
            lambda: held.receive(),
        ]
        clock.settle()
        for use in uses:
            with pytest.raises(ConnectionLost):
                use()
        with pytest.raises(StreamClosed):
            ended.send("more")
        held.cancel()
        clock.advance(1.0)
        assert peer.is_open
    frames = [frame for _, frame in server.last.log]
    assert [frame["type"] for frame in frames] == ["open"]
    with pytest.raises(ConnectionLost):
        list(held)


@seed("A: The id space starts empty")
@seed("A: allocates from 1 (dialer) or 2 (acceptor) again")
def test_ids_begin_anew(clock, green_server, dial) -> None:
    """Both ends' ids and both marks: an id that was used before the loss is not above any mark after it."""
    server = green_server(lambda payload, stream: stream.reply(stream.id))
    pushed: list[int] = []
    peer = dial(server.url, on_stream=lambda payload, stream: pushed.append(stream.id))
    for _ in range(3):
        assert [peer.request(None, timeout=1.0) for _ in range(3)] == [1, 3, 5]
        assert [server.peer.open(None, end=True).id for _ in range(2)] == [2, 4]
        clock.settle()
        cut(server.peer)
        clock.advance(1.0)
    assert pushed == [2, 4] * 3


@seed("A: between sockets raises; it does not wait")
@seed("A: Nothing is buffered between sockets")
def test_between_sockets_everything_raises_at_once(clock, raw_server, dial) -> None:
    server = raw_server(polite)
    peer = dial(server.url, hello="hello")
    stream = peer.open("before")
    server.last.reset()
    clock.settle()
    began = clock.now()
    calls = [
        lambda: peer.open("open"),
        lambda: peer.request("request"),
        lambda: peer.notify("notify"),
        lambda: stream.send("send"),
        lambda: peer.ping(),
    ]
    with clock.held():
        for call in calls:
            with pytest.raises(ConnectionLost) as info:
                call()
            assert isinstance(info.value, MuxwsError)
        with pytest.raises(ConnectionLost) as info:
            peer.open("open")
    assert info.value.__cause__ is peer.close_cause
    assert clock.now() == began
    clock.advance(1.0)
    assert peer.is_open
    assert [frame["payload"] for frame in server.last.of("open")] == ["hello"]


@seed("A: peer.id changes to a new value")
def test_each_socket_has_an_id_of_its_own(clock, raw_server, dial, caplog) -> None:
    with caplog.at_level(logging.DEBUG, logger="muxws.frames"):
        server = raw_server(polite, polite, resets_hello, polite)
        peer = dial(server.url, hello=1)
        ids = [peer.id]
        peer.on_reconnect(lambda attempt, given: ids.append(given.id))
        for _ in range(2):
            server.last.reset()
            clock.advance(2.0)
    assert len(server.wires) == 4
    assert len(set(ids)) == 3
    assert ids[-1] == peer.id
    prefix = ids[0].partition("-")[0]
    assert all(each.startswith(f"{prefix}-") for each in ids)
    # The lines of the log tell the sockets apart, the one whose hello was reset included.
    lines = [record.getMessage() for record in caplog.records if " dir=tx type=open " in record.getMessage()]
    connections = [line.split(" conn=")[1].split(" ")[0] for line in lines]
    assert len(connections) == len(set(connections)) == 4
    assert set(ids) < set(connections)


@seed("A: reopens the streams it needs from on_reconnect")
def test_subscriptions_are_reopened_from_on_reconnect(clock, raw_server, dial) -> None:
    server = raw_server(polite)
    peer = dial(server.url, hello=1)
    peer.notify({"subscribe": "orders"})

    @peer.on_reconnect
    def resubscribe(attempt: int, peer: Peer) -> None:
        peer.notify({"subscribe": "orders", "attempt": attempt})

    for _ in range(2):
        clock.settle()
        server.last.reset()
        clock.advance(1.0)
    assert [[frame["payload"] for frame in wire.of("open")][1:] for wire in server.wires] == [
        [{"subscribe": "orders"}],
        [{"subscribe": "orders", "attempt": 1}],
        [{"subscribe": "orders", "attempt": 2}],
    ]


@seed("A: a new Peer object with empty tags")
@seed("A: the old tags are not carried over")
@seed("A: writes its index entries again, from the hello handler")
@seed("A: neither reads nor clears its tags")
def test_tags_on_both_ends(clock, green_server, dial) -> None:
    registry = PeerRegistry()
    seen_empty: list[bool] = []
    holder: list[Peer] = []

    def handler(payload: Any, stream: Stream) -> None:
        peer = holder[-1]
        seen_empty.append(peer.tags == {})
        peer.tags["tab"] = payload["tab"]
        registry.register(peer)

    server = green_server(handler, on_connect=holder.append)
    peer = dial(server.url, hello={"tab": 7})
    own = peer.tags
    own["note"] = unhashable = ["kept"]
    assert registry.peers_for(tab=7) == [holder[0]]
    cut(server.peer)
    clock.settle()
    assert registry.peers_for(tab=7) == []
    clock.advance(1.0)
    assert len(holder) == 2
    assert holder[0] is not holder[1]
    assert seen_empty == [True, True]
    assert registry.peers_for(tab=7) == [holder[1]]
    # On this side nothing has been touched.
    assert peer.tags is own
    assert own == {"note": unhashable}
    assert own["note"] is unhashable


@seed("A: does not generate or store a client identity")
@seed("A: does not inspect the hello payload")
def test_nothing_is_added_to_what_the_application_says(clock, raw_server, dial) -> None:
    """A payload that looks like an identity is a payload like any other, and without one nothing is said."""
    server = raw_server(polite)
    dial(server.url, hello={"tab": "t", "session_id": "s", "client": "c"})
    assert server.last.of("open")[0]["payload"] == {"tab": "t", "session_id": "s", "client": "c"}
    silent = raw_server(Wire.serve)
    dial(silent.url)
    clock.advance(5.0)
    assert silent.last.log == []
    names = {name for name in dir(muxws_green) if not name.startswith("_")}
    assert not [name for name in names if "identity" in name.lower() or "client_id" in name.lower()]


@seed("A: does not inspect the hello payload")
@pytest.mark.parametrize("payload", [False, 0, "", [], {}, [[]], {"type": "reset", "stream": 1}, "close"])
def test_any_payload_will_do(clock, raw_server, dial, payload) -> None:
    server = raw_server(polite)
    assert dial(server.url, hello=payload).is_open
    assert server.last.of("open")[0]["payload"] == payload


@seed("A: CloseReason and its four fields")
def test_the_fields_of_a_close_reason() -> None:
    assert [field.name for field in dataclasses.fields(CloseReason)] == ["code", "reason", "was_clean", "will_retry"]


@seed("A: on_reconnect, on_close, ping, close, is_open, id")
def test_the_names_of_a_peer(clock, raw_server, dial) -> None:
    peer = dial(raw_server(polite).url, hello=1)
    for name in ("on_reconnect", "on_close", "ping", "close"):
        assert callable(getattr(peer, name))
    assert peer.is_open is True
    assert isinstance(peer.id, str)
