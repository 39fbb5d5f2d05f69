"""Document A, "The hello"."""

from __future__ import annotations

import copy
import inspect
import json
import logging
from typing import Any

import gevent
import pytest
from gevent.event import Event

from muxws_green import (
    ConnectionLost,
    Frame,
    HandshakeRefused,
    Peer,
    PeerRegistry,
    Stream,
    StreamReset,
    WSGIApp,
    accept,
    connect,
)
from muxws_green.codecs import MsgpackCodec
from tests.seeds.fixtures import cut
from tests.seeds.scripted import Wire, mute, never_acknowledges, outcome, polite

seed = pytest.mark.seed


def lose_and_return(clock, server, times: int = 3) -> None:
    """Let the connection die and come back, several times."""
    for _ in range(times):
        server.last.reset()
        clock.advance(1.0)


@seed("A: a stream the dialer opens first on every connection")
@seed("A: hello_timeout=10.0")
def test_the_hello_is_the_first_frame_of_every_socket(clock, raw_server, dial) -> None:
    server = raw_server(polite)
    dial(
        server.url,
        hello={"tab": "t-1", "topics": ["orders"]},
        hello_headers={"client": "dashboard"},
        hello_timeout=10.0,
    )
    lose_and_return(clock, server)
    assert len(server.wires) == 4
    for wire in server.wires:
        assert wire.log[0][1] == {
            "type": "open",
            "stream": 1,
            "end": True,
            "headers": {"client": "dashboard"},
            "payload": {"tab": "t-1", "topics": ["orders"]},
        }


@seed("A: a stream the dialer opens first on every connection")
@pytest.mark.parametrize("heartbeat", ["counting", "idle"])
def test_nothing_overtakes_the_hello(clock, raw_server, dial, heartbeat) -> None:
    """Not a heartbeat that pings at once, and not an answer to a server that speaks before it is greeted."""
    from muxws_green import CountingHeartbeat, IdleHeartbeat

    def hasty(wire: Wire) -> None:
        wire.write("ping", nonce="hasty")
        wire.write("open", stream=2, payload="hasty", end=True)
        polite(wire)

    server = raw_server(hasty)
    policy = CountingHeartbeat() if heartbeat == "counting" else IdleHeartbeat(0.05, 1.0)
    dial(server.url, hello=1, heartbeat=policy, on_stream=lambda payload, stream: stream.reply("answer"))
    clock.settle()
    lose_and_return(clock, server)
    assert len(server.wires) == 4
    for wire in server.wires:
        kinds = [(frame["type"], frame.get("stream")) for _, frame in wire.log]
        assert kinds[0] == ("open", 1)
        assert ("pong", None) in kinds
        assert ("data", 2) in kinds


@seed("A: Captured once, at connect(), by value")
@seed("A: Modifying the dict after the call has no effect")
@seed("A: not re-read from the passed object, not recomputed, and cannot be supplied as a callback")
def test_changing_what_was_passed_changes_nothing(clock, raw_server, dial) -> None:
    hello = {"tab": "t-1", "topics": ["orders"]}
    headers = {"client": "dashboard", "versions": [1, {"minor": 2}]}
    before = copy.deepcopy((hello, headers))
    server = raw_server(polite)
    peer = dial(server.url, hello=hello, hello_headers=headers)
    hello["tab"] = "t-2"
    hello["topics"].append("invoices")  # type: ignore[attr-defined]
    headers["client"] = "other"
    headers["versions"][1]["minor"] = 9  # type: ignore[index]
    lose_and_return(clock, server)
    for wire in server.wires:
        _, frame = wire.log[0]
        assert (frame["payload"], frame["headers"]) == before
    assert peer.is_open


@seed("A: not re-read from the passed object, not recomputed, and cannot be supplied as a callback")
def test_a_callback_is_no_hello(clock, raw_server) -> None:
    server = raw_server(polite)
    with pytest.raises(TypeError):
        connect(server.url, hello=lambda: {"tab": 1}, clock=clock)
    clock.settle()
    assert server.wires == []


@seed("A: not re-read from the passed object, not recomputed, and cannot be supplied as a callback")
def test_the_payload_is_encoded_once(clock, raw_server, dial) -> None:
    """What an object turns into is asked for at `connect` and never again."""
    from muxws_green.codecs import JsonCodec

    class Counting(JsonCodec):
        payloads = 0

        def encode_payload(self, value: Any) -> str:
            self.payloads += 1
            return super().encode_payload(value)

    codec = Counting()
    server = raw_server(polite)
    dial(server.url, hello={"tab": 1}, codec=codec)
    lose_and_return(clock, server)
    assert codec.payloads == 1


@seed("A: identical bytes each time")
@pytest.mark.parametrize(
    "payload, headers",
    [
        ({"b": 1, "a": [1.0, None, "ü"]}, None),
        ({"b": 1, "a": [1.0, None, "ü"]}, {"z": 1, "a": {"nested": [True]}}),
        ("x" * 200_000, None),
        ("x" * 200_000, {"z": 1}),
        (None, {"z": 1, "a": 2}),
        (0, None),
        ("", {}),
    ],
)
def test_identical_bytes_on_every_socket(clock, raw_server, dial, payload, headers) -> None:
    def greet_in_pieces(wire: Wire) -> None:
        while True:
            frame = wire.read()
            if not frame.get("more"):
                break
        wire.write("data", stream=1, end=True)
        wire.serve()

    server = raw_server(greet_in_pieces)
    dial(server.url, hello=payload, hello_headers=headers)
    lose_and_return(clock, server)
    assert len(server.wires) == 4
    first = server.wires[0].texts
    assert all(wire.texts == first for wire in server.wires)
    assert len(first) == (1 if payload != "x" * 200_000 else 4)


@seed("A: identical bytes each time")
def test_identical_bytes_whoever_looks_at_them(clock, raw_server, dial) -> None:
    """Observers and whoever finds the hello among the streams may change what they see."""
    server = raw_server(polite)

    def spoil(direction: str, frame: Frame, size: int) -> None:
        if frame.headers:
            frame.headers["versions"].append("spoilt")
        if isinstance(frame.payload, dict):
            frame.payload["tab"] = "spoilt"

    def late(wire: Wire) -> None:
        wire.read()
        clock.sleep(0.1)
        wire.write("data", stream=1, end=True)
        wire.serve()

    peer = dial(server.url, hello={"tab": 1}, hello_headers={"versions": [1]})
    peer.on_frame(spoil)
    server.scripts[:] = [late]
    for _ in range(3):
        server.last.reset()
        clock.advance(0.3)
        for stream in peer.streams.values():
            stream.headers["versions"].append("spoilt")
        clock.advance(1.0)
    assert len(server.wires) == 4
    assert len({wire.texts[0] for wire in server.wires}) == 1


@seed("A: Sent as an ordinary open(payload")
@seed("A: indistinguishable from any other unary open")
def test_the_hello_looks_like_any_other_call(clock, raw_server, dial) -> None:
    server = raw_server(polite)
    peer = dial(server.url, hello={"tab": 1}, hello_headers={"h": 1})
    peer.open({"tab": 1}, headers={"h": 1}, end=True)
    clock.settle()
    hello, other = server.last.texts
    assert hello.replace(b'"stream":1', b'"stream":3') == other


@seed("A: Sent as an ordinary open(payload")
def test_headers_alone_make_a_hello_with_null(clock, raw_server, dial) -> None:
    server = raw_server(polite)
    dial(server.url, hello_headers={"client": "dashboard"})
    assert json.loads(server.last.texts[0])["payload"] is None


@seed("A: Sent as an ordinary open(payload")
def test_open_interceptors_do_not_run_on_it(clock, raw_server, dial) -> None:
    seen: list[Any] = []
    server = raw_server(polite)
    peer = dial(server.url, hello="h", open_interceptors=[lambda headers, payload: seen.append(payload)])
    peer.notify("n")
    lose_and_return(clock, server, 1)
    assert seen == ["n"]


@seed("A: Delivered to the acceptor's on_stream handler")
@seed("A: registers no separate handler for it and cannot disable it")
def test_it_reaches_the_one_handler(clock, green_server, dial) -> None:
    seen: list[tuple[Any, Any, Any]] = []

    def handler(payload: Any, stream: Stream) -> None:
        seen.append((payload, dict(stream.headers), stream.id))

    server = green_server(handler)
    peer = dial(server.url, hello={"tab": 1}, hello_headers={"h": 1})
    peer.open({"tab": 2}, end=True).closed.wait(5.0)
    assert seen == [({"tab": 1}, {"h": 1}, 1), ({"tab": 2}, {}, 3)]
    for accepting in (accept, WSGIApp):
        assert not [name for name in inspect.signature(accepting).parameters if "hello" in name]
    assert not [name for name in dir(Peer) if "hello" in name]


@seed("A: Acknowledged when that handler returns")
@seed("A: that end is the acknowledgement; no application code sends it")
def test_the_return_of_the_handler_acknowledges(clock, green_server) -> None:
    gate = Event()
    server = green_server(lambda payload, stream: gate.wait())
    caller = outcome(connect, server.url, hello=1, clock=clock, hello_timeout=60.0)
    with clock.held():
        clock.settle()
        assert not caller.dead
        gate.set()
        clock.settle()
        peer = caller.value
        assert isinstance(peer, Peer)
        assert peer.is_open
    peer.close()


@seed("A: To reject the identity, the acceptor resets the stream")
@pytest.mark.parametrize("how", ["reset", "raise"])
def test_an_acceptor_that_rejects(clock, green_server, dial, how) -> None:
    welcome = True

    def handler(payload: Any, stream: Stream) -> None:
        if not welcome:
            if how == "raise":
                raise PermissionError("unknown client")
            stream.reset(4, "unknown client")

    server = green_server(handler)
    peer = dial(server.url, hello=1)
    welcome = False
    cut(server.peer)
    clock.advance(4.0)
    assert not peer.is_open
    assert peer.supervisor.attempt == 4
    assert isinstance(peer.supervisor.last_error, StreamReset)
    assert peer.supervisor.last_error.reason == "unknown client"
    assert len(server.accepted) == 5
    with pytest.raises(StreamReset, match="unknown client"):
        connect(server.url, hello=1, clock=clock)
    welcome = True
    clock.advance(4.0)
    assert peer.is_open


@seed("A: discarded without any error or log entry")
@seed("A: the reply is lost")
@pytest.mark.parametrize("replies", [["subscribed"], ["one", "two", "three"], ["x" * 300_000]])
def test_an_answer_to_the_hello_is_lost(clock, green_server, dial, replies, caplog) -> None:
    def handler(payload: Any, stream: Stream) -> None:
        for reply in replies:
            stream.send(reply)

    server = green_server(handler)
    with caplog.at_level(logging.DEBUG, logger="muxws"):
        peer = dial(server.url, hello=1)
    assert peer.is_open
    assert peer.stats.held_bytes == 0
    assert peer.streams == {}
    assert [record for record in caplog.records if record.levelno >= logging.INFO] == []


@seed("A: discarded without any error or log entry")
def test_an_answer_that_nobody_reads_holds_nothing_up(clock, green_server, dial) -> None:
    """Far more than may wait to be consumed, and it does not count as waiting."""

    def handler(payload: Any, stream: Stream) -> None:
        for _ in range(20):
            stream.send("x" * 10_000)

    server = green_server(handler)
    # No time passes in here, so a reader that paused would never go on.
    peer = dial(server.url, hello=1, receive_buffer_bytes=20_000)
    assert peer.is_open


@seed("A: the reply is lost")
def test_an_answer_without_an_end_does_not_acknowledge(clock, raw_server) -> None:
    def answers_and_waits(wire: Wire) -> None:
        hello = wire.read()
        wire.write("data", stream=hello["stream"], payload=["orders"])
        wire.listen()

    server = raw_server(answers_and_waits)
    from muxws_green import StreamTimeout

    with pytest.raises(StreamTimeout):
        connect(server.url, hello=1, clock=clock, hello_timeout=2.0)


@seed("A: Send that list on a stream the acceptor opens instead")
@seed("A: the client receives the initial state and the updates through one code path")
def test_initial_state_and_updates_come_the_same_way(clock, green_server, dial) -> None:
    registry = PeerRegistry()
    holder: list[Peer] = []

    def handler(payload: Any, stream: Stream) -> None:
        peer = holder[-1]
        peer.tags["tab"] = payload["tab"]
        registry.register(peer)
        peer.notify({"orders": [1, 2]})

    server = green_server(handler, on_connect=holder.append)
    got: list[Any] = []
    dial(server.url, hello={"tab": 7}, on_stream=lambda payload, stream: got.append(payload))
    clock.settle()
    # It was pushed before the hello was acknowledged, and has arrived.
    assert got == [{"orders": [1, 2]}]
    for peer in registry.peers_for(tab=7):
        peer.notify({"orders": [1, 2, 3]})
    clock.settle()
    assert got == [{"orders": [1, 2]}, {"orders": [1, 2, 3]}]


@seed("A: Send that list on a stream the acceptor opens instead")
def test_what_is_pushed_before_the_acknowledgement_is_handled(clock, raw_server) -> None:
    def push_first(wire: Wire) -> None:
        hello = wire.read()
        wire.write("open", stream=2, payload="pushed", end=True)
        answer = wire.read()
        assert answer == {"type": "data", "stream": 2, "end": True, "payload": "seen"}
        wire.write("data", stream=hello["stream"], end=True)
        wire.serve()

    server = raw_server(push_first)
    with clock.held():
        peer = connect(server.url, hello=1, clock=clock, on_stream=lambda payload, stream: stream.reply("seen"))
    assert len(server.last.log) == 2
    peer.close()


@seed("A: peer.open() raises ConnectionLost")
@seed("A: no application frame precedes the hello")
def test_nothing_can_be_sent_before_the_acknowledgement(clock, raw_server, dial) -> None:
    gate = Event()

    def held_back(wire: Wire) -> None:
        hello = wire.read()
        gate.wait()
        wire.write("data", stream=hello["stream"], end=True)
        wire.serve()

    server = raw_server(polite, held_back)
    peer = dial(server.url, hello="hello", hello_timeout=60.0)
    server.last.reset()
    clock.advance(1.0)
    assert len(server.wires) == 2
    assert peer.supervisor.state == "connecting"
    assert not peer.is_open
    calls = [peer.open, peer.request, peer.notify]
    for call in calls:
        for payload in ("application", "x" * 100_000):
            with pytest.raises(ConnectionLost):
                call(payload)
    clock.settle()
    assert [frame["payload"] for frame in server.last.of("open")] == ["hello"]
    gate.set()
    clock.settle()
    assert peer.is_open
    assert peer.request("application", timeout=1.0) == "application"
    assert [frame["payload"] for frame in server.last.of("open")] == ["hello", "application"]


@pytest.mark.slow
@seed("A: no application frame precedes the hello")
def test_a_flood_of_calls_through_a_reconnection(clock, raw_server, dial) -> None:
    """Whoever calls all the time, whenever it works: the hello is first all the same."""
    server = raw_server(polite)
    peer = dial(server.url, hello="hello")

    def caller() -> None:
        while clock.now() < 10.0:
            try:
                peer.request("application", timeout=5.0)
            except StreamReset:
                pass
            clock.sleep(0.05)

    callers = [gevent.spawn(caller) for _ in range(3)]
    for _ in range(8):
        clock.advance(0.505)
        server.last.reset()
    clock.advance(7.0)
    assert all(greenlet.successful() for greenlet in callers)
    assert len(server.wires) >= 5
    for wire in server.wires:
        payloads = [frame["payload"] for frame in wire.of("open")]
        assert payloads[0] == "hello"
        assert payloads.count("hello") == 1
        assert "application" in payloads


@seed("A: Authentication belongs to the WebSocket upgrade")
def test_the_upgrade_carries_credentials(clock, raw_server, dial) -> None:
    """Cookie, header, signed URL and a further subprotocol: on every dial, before any frame."""

    def look(wire: Wire) -> None:
        wire.upgrade()
        polite(wire)

    server = raw_server(look, upgrade=False)
    peer = dial(
        f"{server.url}?signature=s3cret",
        hello=1,
        headers={"Authorization": "Bearer s3cret", "Cookie": "session=s3cret"},
        subprotocols=["bearer.s3cret"],
    )
    lose_and_return(clock, server, 1)
    assert peer.is_open
    assert len(server.wires) == 2
    for wire in server.wires:
        connection = wire.connection
        assert connection.header("Authorization") == "Bearer s3cret"
        assert connection.header("Cookie") == "session=s3cret"
        assert connection.header("Sec-WebSocket-Protocol") == "muxws.v1.json, bearer.s3cret"
        assert b"GET /?signature=s3cret HTTP/1.1" in connection.request
        assert not [text for text in wire.texts if b"s3cret" in text]


@seed("A: Authentication belongs to the WebSocket upgrade")
def test_the_acceptor_judges_before_accept(clock, dial) -> None:
    """An ordinary WSGI application looks at the request first; no muxws code has run when it refuses."""
    from gevent.pywsgi import WSGIServer

    handled: list[Any] = []
    inner = WSGIApp(lambda payload, stream: handled.append(payload), heartbeat=None, clock=clock)

    def application(environ: Any, start_response: Any) -> Any:
        if environ.get("HTTP_AUTHORIZATION") != "Bearer s3cret":
            start_response("401 Unauthorized", [("Content-Length", "0")])
            return [b""]
        return inner(environ, start_response)

    server = WSGIServer(("127.0.0.1", 0), application, log=None)
    server.start()
    url = f"ws://127.0.0.1:{server.server_port}/"
    with pytest.raises(HandshakeRefused) as info:
        dial(url, hello="no credential")
    assert info.value.status == 401
    assert handled == []
    peer = dial(url, hello="with one", headers={"Authorization": "Bearer s3cret"})
    assert handled == ["with one"]
    peer.close()
    server.stop(timeout=0)


@seed("A: passed as an ordinary payload to every frame observer")
def test_observers_see_the_hello(clock, green_server, dial) -> None:
    seen: list[tuple[str, Any]] = []

    def observe(peer: Peer) -> None:
        peer.on_frame(lambda direction, frame, size: seen.append((direction, frame.payload)))

    server = green_server(lambda payload, stream: None, on_connect=observe)
    own: list[Any] = []
    peer = dial(server.url, hello={"secret": "do not"})
    peer.on_frame(lambda direction, frame, size: own.append(frame.payload) if frame.type == "open" else None)
    assert seen[0] == ("rx", {"secret": "do not"})
    cut(server.peer)
    clock.advance(1.0)
    assert own == [{"secret": "do not"}]


@seed("A: hello_timeout=10.0")
def test_the_timeout_of_the_hello_at_work(clock, raw_server, dial) -> None:
    server = raw_server(polite, never_acknowledges)
    peer = dial(server.url, hello=1, heartbeat=None)
    server.wires[0].reset()
    clock.advance(10.0)
    assert peer.supervisor.state == "connecting"
    clock.advance(0.25)
    assert peer.supervisor.state == "backing_off"
    assert server.wires[1].gone_at == 10.25


@seed("A: hello_timeout=10.0")
@pytest.mark.parametrize("timeout", [-1.0, float("nan"), True, "10"])
def test_a_timeout_that_is_no_duration_is_refused(clock, raw_server, timeout) -> None:
    server = raw_server(polite)
    with pytest.raises(ValueError, match="hello_timeout"):
        connect(server.url, hello=1, hello_timeout=timeout, clock=clock)
    clock.settle()
    assert server.wires == []


@seed("A: identical bytes each time")
def test_a_binary_codec_too(clock, dial) -> None:
    from gevent.pywsgi import WSGIServer

    codec = MsgpackCodec()
    seen: list[Any] = []

    def observe(peer: Peer) -> None:
        peer.on_stream(lambda payload, stream: seen.append((payload, dict(stream.headers))))

    app = WSGIApp(None, on_connect=observe, codec=codec, heartbeat=None, clock=clock)
    server = WSGIServer(("127.0.0.1", 0), app, log=None)
    server.start()
    peer = dial(f"ws://127.0.0.1:{server.server_port}/", hello=b"\x00\xff", hello_headers={"h": 1}, codec=codec)
    for _ in range(2):
        cut(app.peers[0])
        clock.advance(1.0)
    assert seen == [(b"\x00\xff", {"h": 1})] * 3
    peer.close()
    server.stop(timeout=0)


@seed("A: that end is the acknowledgement; no application code sends it")
def test_a_server_that_greets_and_falls_silent_has_acknowledged(clock, raw_server, dial) -> None:
    server = raw_server(mute)
    assert dial(server.url, hello=1).is_open
