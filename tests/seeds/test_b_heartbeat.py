"""Document B, the heartbeat: what it promises, and the heartbeat's rows of "What We Test".

Its `heartbeat_interval` and `max_missed_pongs` are `CountingHeartbeat(interval, max_missed)` here; its pongs and its
pushes and requests are frames of muxws.
"""

from __future__ import annotations

import inspect
import logging
from typing import Any

import pytest
from gevent.event import Event

from muxws_green import (
    CloseReason,
    ConnectionClosed,
    ConnectionLost,
    CountingHeartbeat,
    HeartbeatTimeoutError,
    Peer,
    Stream,
    WSGIApp,
    connect,
)
from tests.seeds.scripted import Gone, Wire, mute, outcome, polite

seed = pytest.mark.seed

COUNTED = CountingHeartbeat()


@pytest.mark.slow
@seed("B: Time is driven by FakeClock(autojump=True)")
def test_many_intervals_pass_in_no_time(clock, raw_server, dial) -> None:
    """A day of pings, each at its exact time, over a real socket."""
    server = raw_server(polite)
    peer = dial(server.url, hello=1, heartbeat=CountingHeartbeat(interval=300.0))
    clock.sleep(86_400.0)
    clock.settle()
    assert peer.is_open
    assert server.last.times("ping") == [300.0 * n for n in range(289)]


@seed("B: heartbeat_interval 5.0 seconds")
@seed("B: max_missed_pongs 3")
def test_the_settings_and_their_defaults() -> None:
    assert CountingHeartbeat() == CountingHeartbeat(interval=5.0, max_missed=3)
    for taking in (connect, WSGIApp):
        kinds = inspect.signature(taking).parameters
        assert "heartbeat" in kinds or "options" in kinds


@seed("B: Pings go out at once and then exactly every heartbeat_interval")
@seed("B: Ping at once, then every interval")
@seed("B: The first ping goes out when the peer starts")
@seed("B: A ping carries no id (its body is just a counter")
@seed("B: a healthy server answers each ping")
def test_pings_of_a_dialer(clock, raw_server, dial) -> None:
    server = raw_server(polite)
    dial(server.url, hello=1, heartbeat=COUNTED)
    clock.advance(50.0)
    assert server.last.times("ping") == [5.0 * n for n in range(11)]
    assert server.last.of("ping") == [{"type": "ping", "nonce": str(n)} for n in range(1, 12)]


@seed("B: Pings go out at once and then exactly every heartbeat_interval")
@seed("B: on both ends, by default")
def test_pings_of_an_acceptor(clock, green_server, raw_client) -> None:
    server = green_server(lambda payload, stream: None, heartbeat=COUNTED)
    client = raw_client(server.url)
    for _ in range(4):
        clock.advance(5.0)
        client.write("pong", nonce="0")
    assert client.log == [(5.0 * n, {"type": "ping", "nonce": str(n + 1)}) for n in range(5)]


@seed("B: on both ends, by default")
@seed("B: both connect() and serve() peers ping by default")
def test_both_ends_have_a_heartbeat_unless_told_otherwise(clock, raw_server, raw_client) -> None:
    """By default it is the one of document A, on either end; the messaging layer brings this one."""
    from gevent.pywsgi import WSGIServer

    server = raw_server(polite)
    with clock.held():
        peer = connect(server.url, hello=1, clock=clock)
    app = WSGIServer(("127.0.0.1", 0), WSGIApp(lambda payload, stream: None, clock=clock), log=None)
    app.start()
    client = raw_client(f"ws://127.0.0.1:{app.server_port}/")
    clock.advance(25.0)
    assert server.last.times("ping") == [20.0]
    assert client.times("ping") == [20.0]
    peer.close()
    app.stop(timeout=0)


@seed("B: Answer pings straight away")
@seed("B: by the reader itself (not a handler task), echoing its body")
@seed("B: a tiny ping sent on a timer, which the other side answers")
@pytest.mark.parametrize("heartbeat", [COUNTED, None])
@pytest.mark.parametrize("role", ["dialer", "acceptor"])
def test_pings_are_answered_whatever_the_handlers_do(
    clock, raw_server, green_server, raw_client, dial, heartbeat, role
) -> None:
    gate = Event()

    def busy(payload: Any, stream: Stream) -> None:
        gate.wait()

    if role == "dialer":
        server = raw_server(polite)
        dial(server.url, hello=1, heartbeat=heartbeat, on_stream=busy)
        wire, first = server.last, 2
    else:
        wire, first = raw_client(green_server(busy, heartbeat=heartbeat).url), 1
    for n in range(20):
        wire.write("open", stream=first + 2 * n, payload="busy", end=True)
    for nonce in ("1", "body", "ü" * 50, ""):
        wire.write("ping", nonce=nonce)
    clock.settle()
    assert [frame["nonce"] for frame in wire.of("pong")] == ["1", "body", "ü" * 50, ""]
    gate.set()
    clock.settle()


@seed("B: heartbeat_interval=None still answers")
@seed("B: heartbeat_interval=None sends no pings")
def test_a_peer_without_a_heartbeat(clock, raw_server, dial) -> None:
    server = raw_server(mute)
    peer = dial(server.url, hello=1, heartbeat=None)
    clock.advance(10_000.0)
    assert server.last.of("ping") == []
    assert peer.is_open
    server.last.write("ping", nonce="7")
    clock.settle()
    assert server.last.of("pong") == [{"type": "pong", "nonce": "7"}]


@seed("B: a zero, NaN or infinite interval, or a negative (or True/False) max_missed_pongs")
@pytest.mark.parametrize(
    "options",
    [
        *({"interval": bad} for bad in (0, 0.0, -1.0, float("nan"), float("inf"), True, "5")),
        *({"max_missed": bad} for bad in (-1, True, False, 1.0, None)),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(options) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        CountingHeartbeat(**options)


@pytest.mark.slow
@seed("B: Each ping sent adds one")
@seed("B: A server that answers only every third ping keeps the connection alive")
@seed("B: each pong resets the count")
def test_every_third_pong_is_enough(clock, raw_server, dial) -> None:
    def lazy(wire: Wire) -> None:
        wire.greet()
        while True:
            frame = wire.read()
            if frame["type"] == "ping" and int(frame["nonce"]) % 3 == 0:
                wire.answer(frame)

    server = raw_server(lazy)
    told: list[CloseReason] = []
    peer = dial(server.url, hello=1, heartbeat=COUNTED, on_close=told.append)
    clock.advance(500.0)
    assert peer.is_open
    assert told == []
    assert len(server.wires) == 1
    assert server.last.times("ping") == [5.0 * n for n in range(101)]


@seed("B: Anything that arrives from the other side")
@seed("B: any frame proves they are still there")
@pytest.mark.parametrize("peep", ["pong", "request", "push", "response", "their ping", "reset", "unknown", "part"])
def test_any_frame_resets_the_count(clock, raw_server, dial, peep) -> None:
    """The server never answers a ping, and says something else every 14 seconds."""
    server = raw_server(mute)
    told: list[CloseReason] = []
    peer = dial(server.url, hello=1, heartbeat=COUNTED, on_close=told.append, on_stream=lambda payload, stream: None)
    live = peer.open("a stream for responses")
    whole = b'\x81\x7e\x02\x00{"type":"pong","nonce":"' + b"x" * 486 + b'"}'
    for n in range(10):
        clock.advance(14.0)
        wire = server.last
        match peep:
            case "pong":
                wire.write("pong", nonce="of something else")
            case "request":
                wire.write("open", stream=2 + 2 * n, payload="request")
            case "push":
                wire.write("open", stream=2 + 2 * n, payload="push", end=True)
            case "response":
                wire.write("data", stream=live.id, payload="response")
            case "their ping":
                wire.write("ping", nonce=str(n))
            case "reset":
                wire.write("reset", stream=live.id, code=1)
            case "unknown":
                wire.write("of-the-future")
            case "part":
                # Some bytes of a frame on a line so slow that it takes two minutes.
                wire.sock.sendall(whole[n * 40 : (n + 1) * 40])
    assert told == []
    assert peer.is_open
    # The ping of 145 is the first that nothing answers.
    clock.advance(24.75)
    assert told == []
    clock.advance(0.25)
    assert [reason.code for reason in told] == [1006]


@seed("B: A silent server is declared dead after exactly (max_missed_pongs + 1) * heartbeat_interval")
@seed("B: if more than max_missed_pongs pings in a row are unanswered")
@seed("B: declared dead (max_missed_pongs + 1) * heartbeat_interval seconds")
@seed("B: t=20 4 > max_missed_pongs (3)")
@seed("B: every waiting request fails with ConnectionClosedError")
@seed("B: on_close(cause) runs with the HeartbeatTimeoutError")
@seed("B: the socket is cut at once")
@pytest.mark.parametrize("interval, missed", [(5.0, 3), (0.5, 0), (1.0, 10), (0.125, 2)])
def test_a_silent_server_is_dead_at_the_exact_time(clock, raw_server, dial, interval, missed) -> None:
    server = raw_server(Wire.listen)
    told: list[Any] = []
    peer = dial(server.url, heartbeat=CountingHeartbeat(interval=interval, max_missed=missed))

    @peer.on_close
    def closed(reason: CloseReason) -> None:
        told.append((clock.now(), reason.code, type(peer.close_cause)))

    waiting = outcome(peer.request, "call")
    death = (missed + 1) * interval
    clock.advance(death - interval / 4)
    assert told == []
    assert not waiting.dead
    clock.advance(interval / 4)
    assert told == [(death, 1006, HeartbeatTimeoutError)]
    assert server.wires[0].times("ping") == [interval * n for n in range(missed + 1)]
    assert server.wires[0].gone_at == death
    # A request fails with the loss of its stream, and what caused that is the death.
    assert isinstance(waiting.value, ConnectionLost)
    assert isinstance(waiting.value.__cause__, HeartbeatTimeoutError)
    assert isinstance(waiting.value.__cause__, ConnectionClosed)


@seed("B: A silent server is declared dead after exactly (max_missed_pongs + 1) * heartbeat_interval")
def test_what_acknowledges_the_hello_has_been_heard(clock, raw_server, dial) -> None:
    """It comes after the first ping, so the second is the first unanswered one."""
    server = raw_server(mute)
    dial(server.url, hello=1, heartbeat=COUNTED)
    clock.advance(30.0)
    assert server.wires[0].times("ping") == [0.0, 5.0, 10.0, 15.0, 20.0]
    assert server.wires[0].gone_at == 25.0


@seed("B: A silent server is declared dead after exactly (max_missed_pongs + 1) * heartbeat_interval")
def test_a_silent_dialer_is_dead_at_the_exact_time(clock, green_server, raw_client) -> None:
    server = green_server(lambda payload, stream: None, heartbeat=COUNTED)
    client = raw_client(server.url)
    acceptor = server.peer
    told: list[Any] = []
    acceptor.on_close(lambda reason: told.append((clock.now(), reason)))
    clock.advance(60.0)
    assert [at for at, _ in told] == [20.0]
    assert isinstance(acceptor.close_cause, HeartbeatTimeoutError)
    assert client.gone_at == 20.0
    assert server.app.peers == []


@seed("B: Three pings (at 0, 0.1 and 0.2 seconds) went unanswered")
@seed("B: closed after 0.3s, heartbeat death")
@seed("B: A hand-made server that reads everything and answers nothing")
def test_the_first_demo(clock, raw_server, dial) -> None:
    server = raw_server(Wire.listen)
    lines: list[str] = []
    began = clock.now()
    peer = dial(server.url, heartbeat=CountingHeartbeat(interval=0.1, max_missed=2))

    @peer.on_close
    def closed(reason: CloseReason) -> None:
        dead = isinstance(peer.close_cause, HeartbeatTimeoutError)
        lines.append(f"closed after {clock.now() - began:.1f}s, heartbeat death: {dead}")

    clock.advance(0.35)
    assert lines == ["closed after 0.3s, heartbeat death: True"]
    assert server.wires[0].times("ping") == [0.0, 0.1, 0.2]


@seed("B: a demo that shows the pongs and then a server that freezes")
@seed("B: declared dead after 0.6s")
def test_the_second_demo(clock, raw_server, dial) -> None:
    lines: list[str] = []

    def freezing(wire: Wire) -> None:
        wire.greet()
        for _ in range(3):
            ping = wire.read()
            wire.answer(ping)
            lines.append(f"server: ping {ping['nonce']} -> pong")
        lines.append("server: *freezes*")
        wire.listen()

    server = raw_server(freezing)
    peer = dial(server.url, hello=1, heartbeat=CountingHeartbeat(interval=0.1, max_missed=2))
    peer.on_close(
        lambda reason: lines.append(
            f"client: declared dead after {clock.now():.1f}s: {type(peer.close_cause).__name__}"
        )
    )
    clock.advance(0.65)
    assert lines == [
        "server: ping 1 -> pong",
        "server: ping 2 -> pong",
        "server: ping 3 -> pong",
        "server: *freezes*",
        "client: declared dead after 0.6s: HeartbeatTimeoutError",
    ]


@seed("B: so a pong can never be mistaken for the answer to a request")
@seed("B: A pong carrying a pending request's id never settles that request")
def test_a_pong_settles_no_request(clock, raw_server, dial) -> None:
    def confusing(wire: Wire) -> None:
        wire.greet()
        while True:
            frame = wire.read()
            if frame["type"] == "open":
                stream = frame["stream"]
                wire.write("pong", stream=stream, nonce=str(stream), payload="no answer", end=True)
                wire.write("pong", stream=stream, payload="no answer", end=True)

    server = raw_server(confusing)
    peer = dial(server.url, hello=1, heartbeat=None)
    waiting = outcome(peer.request, "call")
    clock.advance(60.0)
    assert not waiting.dead
    assert peer.is_open
    server.last.write("data", stream=3, payload="the answer", end=True)
    clock.settle()
    assert waiting.value == "the answer"


@seed("B: a malformed ping or push with an id is reported, not answered with an error")
def test_a_malformed_ping_is_reported(clock, raw_server, dial, caplog) -> None:
    server = raw_server(polite)
    peer = dial(server.url, hello=1, heartbeat=None)
    with caplog.at_level(logging.INFO, logger="muxws"):
        server.last.write("ping", stream=1)
        server.last.write("ping", stream=2, nonce="with an id")
        clock.settle()
    assert "ping without a nonce" in caplog.text
    # The one that can be answered is, and nothing else is said.
    answers = [frame for _, frame in server.last.log if frame["type"] != "open"]
    assert answers == [{"type": "pong", "nonce": "with an id"}]
    assert peer.is_open


@seed("B: Closing on heartbeat death works exactly like any other broken connection")
@seed("B: register on_close and check whether the cause is a HeartbeatTimeoutError")
def test_death_by_silence_is_a_loss_like_any_other(clock, raw_server, dial) -> None:
    """Pending calls fail at once, on_close runs once with the cause, nothing is flushed, and what follows follows."""
    server = raw_server(Wire.listen, Wire.serve)
    told: list[CloseReason] = []
    causes: list[Any] = []
    peer = dial(server.url, heartbeat=COUNTED, on_close=told.append)
    peer.on_close(lambda reason: causes.append(peer.close_cause))
    waits = [outcome(peer.request, n) for n in range(3)]
    clock.advance(20.0)
    assert [type(wait.value) for wait in waits] == [ConnectionLost] * 3
    assert len(told) == 1
    assert [type(cause) for cause in causes] == [HeartbeatTimeoutError]
    clock.advance(1.0)
    assert peer.is_open
    assert len(told) == 1


@seed("B: we get a goodbye (end of file) straight away")
@seed("B: its exit will be seen as end of file anyway")
def test_an_exit_is_seen_without_a_heartbeat(clock, raw_server, dial) -> None:
    server = raw_server(polite)
    told: list[tuple[float, CloseReason]] = []
    peer = dial(server.url, hello=1, heartbeat=None)
    peer.on_close(lambda reason: told.append((clock.now(), reason)))
    clock.advance(100.0)
    server.last.drop()
    clock.settle()
    assert [(at, reason.code) for at, reason in told] == [(100.0, 1006)]


def read_slowly(clock, wire: Wire, step_bytes: int, step: float) -> None:
    """Take so many bytes of whatever comes after each `step` seconds, until there is nothing more."""
    while True:
        clock.sleep(step)
        left = step_bytes
        while left:
            data = wire.sock.recv(min(left, 65_536))
            if not data:
                raise Gone
            left -= len(data)


@pytest.mark.slow
@seed("B: A send that holds our pings up for ten intervals does not kill a healthy peer")
@seed("B: its own pings keep arriving and keep our counter at zero")
@seed("B: still alive: we keep hearing from them")
def test_a_remote_that_speaks_and_does_not_read(clock, raw_server, dial) -> None:
    """Our pings are stuck behind what it does not take, so it cannot answer them; its own pings save it."""
    gate = Event()

    def speaking(wire: Wire) -> None:
        wire.greet()
        n = 0
        while not gate.is_set():
            n += 1
            wire.write("ping", nonce=str(n))
            clock.sleep(5.0)
        wire.serve()

    server = raw_server(speaking)
    told: list[CloseReason] = []
    peer = dial(server.url, hello=1, heartbeat=COUNTED, on_close=told.append)
    peer.notify("x" * 8_000_000)
    clock.advance(100.0)
    assert told == []
    assert peer.is_open
    assert peer.stats.queued_bytes > 0
    gate.set()
    clock.advance(10.0)
    assert told == []
    assert peer.request("still here", timeout=5.0) == "still here"


@pytest.mark.slow
@seed("B: A remote that stopped reading is declared dead even while a huge send is stuck")
@seed("B: A send that is stuck because the remote stopped reading does not stop the heartbeat")
@seed("B: it is still declared dead on time")
@pytest.mark.parametrize("frozen", ["dialer", "acceptor"])
def test_a_remote_that_stopped_reading(clock, raw_server, green_server, raw_client, dial, frozen) -> None:
    told: list[tuple[float, type]] = []
    peer: Peer
    if frozen == "acceptor":
        server = raw_server(lambda wire: None)
        peer = dial(server.url, heartbeat=COUNTED)
    else:
        green = green_server(lambda payload, stream: None, heartbeat=COUNTED)
        client = raw_client(green.url)
        peer = green.peer
        clock.settle()
        client.stop_reading()
    peer.on_close(lambda reason: told.append((clock.now(), type(peer.close_cause))))
    began = clock.now()
    stream = peer.open("bulk")

    def send() -> None:
        for _ in range(20):
            stream.send("x" * 1_000_000)

    sending = outcome(send)
    clock.advance(19.75)
    assert not sending.dead
    assert told == []
    clock.advance(0.25)
    assert told == [(began + 20.0, HeartbeatTimeoutError)]
    assert isinstance(sending.value, ConnectionLost)
    assert peer.stats.queued_bytes == 0


@pytest.mark.slow
@seed("B: our ping waits in the queue behind any big message already being sent")
@seed('B: Why "any frame" and not "only pongs"?')
def test_a_ping_waits_behind_one_fragment_at_most(clock, raw_server, dial) -> None:
    """Here a message goes out in pieces that pings overtake, so even a remote that says nothing by itself lives on."""
    read: list[str] = []

    def slow(wire: Wire) -> None:
        wire.greet()
        while True:
            frame = wire.read()
            read.append(frame["type"])
            wire.answer(frame)
            clock.sleep(1.0)

    server = raw_server(slow, receive_buffer_bytes=65_536)
    told: list[CloseReason] = []
    peer = dial(server.url, hello=1, heartbeat=CountingHeartbeat(interval=2.0, max_missed=1), on_close=told.append)
    peer.notify("x" * 4_000_000)
    clock.advance(60.0)
    assert told == []
    assert peer.is_open
    assert read.count("ping") > 10


@seed("B: If a single frame takes longer than the death time to arrive")
def test_a_frame_that_takes_longer_than_the_death_time(clock, raw_server, dial) -> None:
    """The document warns that this kills; here each part of a frame counts as a sign of life."""
    server = raw_server(mute)
    told: list[CloseReason] = []
    got: list[Any] = []
    peer = dial(
        server.url,
        hello=1,
        heartbeat=COUNTED,
        on_close=told.append,
        on_stream=lambda payload, stream: got.append(payload),
    )
    text = b'{"type":"open","stream":2,"payload":"' + b"y" * 950 + b'","end":true}'
    frame = b"\x81\x7e" + len(text).to_bytes(2, "big") + text
    for start in range(0, len(frame), 50):
        server.last.sock.sendall(frame[start : start + 50])
        clock.advance(3.0)
    assert clock.now() > 20.0
    assert told == []
    assert peer.is_open
    assert got == ["y" * 950]
