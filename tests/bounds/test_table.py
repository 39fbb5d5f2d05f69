"""The lines of the table of bounds, each reached from outside over a real socket; only the guilty one pays."""

from __future__ import annotations

import contextlib
import gc
import tracemalloc

import gevent
import pytest
from gevent.event import Event

from muxws_green import ResetCode, StreamRefused, StreamReset, connect
from muxws_green.errors import MuxwsError
from muxws_green.testing import FakeClock, Gone, RawClient, RawServer
from tests.serving import KINDS, PATIENCE, Served, client, until
from tests.transports.raw import client_context

CAP = 65_536


def test_what_is_sent_fits_65536_bytes_whatever_is_sent():
    with Served() as served, client(served) as raw:
        served.peer.open({"text": '"\\é€😀' * 100_000}, headers={"h": "x" * 60_000})
        stream, more, sizes = None, True, []
        while more:
            frame = raw.read_frame(PATIENCE)
            sizes.append(len(frame.payload))
            decoded = raw.codec.decode(frame.payload.decode())
            stream, more = stream or decoded.stream, decoded.more
        assert len(sizes) > 10
        assert max(sizes) <= CAP


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_over_the_cap_costs_its_stream(kind):
    with Served(lambda payload, stream: stream.reply(list(stream)), kind) as served, client(served) as raw:
        raw.send({"type": "open", "stream": 1, "payload": None})
        raw.send({"type": "open", "stream": 3, "payload": None})
        raw.send({"type": "data", "stream": 1, "payload": "x" * (CAP + 10)})
        raw.expect("reset", stream=1, code=ResetCode.PAYLOAD_TOO_LARGE)
        raw.send({"type": "open", "stream": 5, "payload": "x" * (CAP + 10), "end": True})
        raw.expect("reset", stream=5, code=ResetCode.PAYLOAD_TOO_LARGE)
        raw.send({"type": "data", "stream": 3, "payload": "on", "end": True})
        raw.expect("data", stream=3, payload=["on"], end=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["announced", "in pieces"])
def test_a_message_over_twice_the_cap_ends_its_connection_unread(kind, how):
    with Served(kind=kind) as served, client(served) as beside, client(served) as raw:
        if how == "announced":
            raw.send_frame(1, b"only this", announce=2**40, stop_after=20)
        else:
            raw.send_frame(1, b" " * CAP, fin=False)
            raw.send_frame(0, b" " * CAP, fin=False)
            raw.send_frame(0, b" ", announce=1, fin=False)
        raw.expect_close(1009, skip=("goaway",))
        beside.send({"type": "open", "stream": 1, "payload": 7, "end": True})
        beside.expect("data", stream=1, payload=7)


def send_fragments(raw, stream, count, *, last=False):
    for number in range(count):
        more = not (last and number == count - 1)
        piece = "'" * 50_000 if more else "'" * 49_999 + '"'
        raw.send({"type": "open", "stream": stream, "fragment": piece, "more": more, "end": not more})


def test_a_payload_over_its_limit_costs_its_stream_on_the_crossing_fragment():
    with Served(max_payload_bytes=120_000) as served, client(served) as raw:
        raw.send({"type": "open", "stream": 1, "fragment": '"', "more": True})
        raw.send({"type": "open", "stream": 3, "fragment": '"', "more": True})
        send_fragments(raw, 1, 2)
        send_fragments(raw, 3, 2, last=True)
        # It does not say that it is the last one, and is not waited for.
        send_fragments(raw, 1, 1)
        frames = [raw.receive(PATIENCE)]
        while frames[-1].type != "reset":
            frames.append(raw.receive(PATIENCE))
        resets = frames[-1:]
        assert [(frame.stream, frame.code) for frame in resets] == [(1, ResetCode.PAYLOAD_TOO_LARGE)]
        # What is still under way of it costs nothing, and the others are answered.
        send_fragments(raw, 1, 3)
        raw.send({"type": "open", "stream": 5, "payload": 7, "end": True})
        while frames[-1].stream != 5:
            frames.append(raw.receive(PATIENCE))
        assert frames[-1].payload == 7
        assert {frame.stream for frame in frames if frame.type == "data"} == {3, 5}
        assert served.peer._link.core._assembling_bytes == 0


def test_payloads_in_assembly_are_bounded_together_and_the_crossing_one_pays():
    with Served(lambda payload, stream: stream.reply(len(payload)), max_payload_bytes=120_000) as served:
        raw = client(served)
        for stream in (1, 3, 5, 7):
            raw.send({"type": "open", "stream": stream, "fragment": '"' + "1" * 49_999, "more": True})
        raw.send({"type": "open", "stream": 9, "fragment": '"' + "1" * 49_999, "more": True})
        raw.expect("reset", stream=9, code=ResetCode.PAYLOAD_TOO_LARGE)
        for stream in (1, 3, 5, 7):
            raw.send({"type": "open", "stream": stream, "fragment": '"', "more": False, "end": True})
            raw.expect("data", stream=stream, payload=49_999)
        raw.close()


def test_a_full_send_buffer_makes_senders_wait_each_for_its_own_lane_or_the_whole():
    with (
        Served(send_buffer_bytes=500_000) as served,
        client(served, receive_buffer_bytes=65_536) as raw,
        client(served) as other,
    ):
        stuck, free = served.peers
        sent = []

        def fill():
            stream = stuck.open()
            with contextlib.suppress(StreamReset):
                for number in range(1_000):
                    stream.send("x" * 100_000)
                    sent.append(number)

        def big():
            with contextlib.suppress(StreamReset):
                stuck.open("y" * 400_000)
                sent.append("big")

        waiting = [gevent.spawn(fill), gevent.spawn(fill), gevent.spawn(big)]
        until(lambda: len(sent) and stuck._link.outlet._big)
        # A small one uses the reserve, and is queued at once.
        with gevent.Timeout(PATIENCE):
            stuck.notify("small")
        assert len(sent) < 40
        assert stuck.stats.queued_bytes <= 500_000 + 125_000 + 65_536 + 400_000
        # Another connection does not know of it.
        free.notify("z" * 50_000)
        assert len(other.expect("open").payload) == 50_000
        raw.close()
        gevent.joinall(waiting, timeout=PATIENCE, raise_error=True)
        assert all(each.dead for each in waiting)


def test_a_stream_that_nobody_consumes_is_ended_after_one_pause_and_the_rest_goes_on():
    soft, timeout = 400_000, 10.0
    with FakeClock() as clock:
        consumers = []

        def handler(payload, stream):
            if payload == "hold":
                consumers.append(stream)
                stream.closed.wait()
            else:
                stream.reply(payload)

        options = {"receive_buffer_bytes": soft, "receive_pause_timeout": timeout, "clock": clock}
        with Served(handler, **options) as served, client(served) as raw, client(served) as other:
            guilty = served.peers[0]
            with clock.held():
                raw.send({"type": "open", "stream": 1, "payload": "hold"})
                for _ in range(12):
                    raw.send({"type": "data", "stream": 1, "payload": "x" * 50_000})
                raw.send({"type": "open", "stream": 3, "payload": "behind", "end": True})
                until(lambda: guilty._link.intake.paused)
                assert guilty.stats.held_bytes <= soft + 2 * CAP
                # Other connections wait not at all.
                other.send({"type": "open", "stream": 1, "payload": "beside", "end": True})
                other.expect("data", stream=1, payload="beside")
                assert clock.now() == 0.0
            frames = {frame.stream: frame for frame in (raw.receive(PATIENCE), raw.receive(PATIENCE))}
            assert clock.now() == timeout
            assert (frames[1].type, frames[1].code) == ("reset", ResetCode.CANCELLED)
            assert "connection of its own" in frames[1].reason
            assert frames[3].payload == "behind"
            # Once: what still comes for it is not counted any more, and holds up nobody.
            for _ in range(12):
                raw.send({"type": "data", "stream": 1, "payload": "x" * 50_000})
            raw.send({"type": "open", "stream": 5, "payload": "next", "end": True})
            raw.expect("data", stream=5, payload="next")
            assert clock.now() == timeout
            assert guilty.stats.held_bytes == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_consumer_that_calls_back_inside_its_loop_does_not_stop_its_connection(kind):
    rows = 60

    def handler(payload, stream):
        if payload == "export":
            for number in range(rows):
                stream.send([number, "x" * 20_000])
        else:
            stream.reply(payload)

    options = {} if kind != "tls" else {"ssl_context": client_context()}
    # The soft limit is passed several times over, the hard one (four times as much) is not.
    with (
        Served(handler, kind) as served,
        connect(served.url, heartbeat=None, receive_buffer_bytes=400_000, **options) as peer,
    ):
        got = [peer.request(number, timeout=PATIENCE) for number, _ in peer.open("export", end=True)]
        assert got == list(range(rows))


def test_live_streams_of_the_remote_are_limited_and_those_that_are_live_go_on():
    release = Event()

    def handler(payload, stream):
        assert release.wait(PATIENCE)
        stream.reply(payload)

    with Served(handler) as served, connect(served.url, heartbeat=None) as peer:
        live = [peer.open(number, end=True) for number in range(100)]
        over = [peer.open(number, end=True) for number in range(5)]
        for stream in over:
            with pytest.raises(StreamRefused, match="100"):
                stream.result(PATIENCE)
        release.set()
        assert [stream.result(PATIENCE) for stream in live] == list(range(100))
        assert peer.request("again", timeout=PATIENCE) == "again"


HEADS = {
    "a long line": b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"x" * 70_000 + b"\r\n\r\n",
    "many long lines": b"GET / HTTP/1.1\r\nHost: x\r\n" + (b"A: " + b"x" * 30_000 + b"\r\n") * 40,
    "many headers": b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: 1\r\n" * 500 + b"\r\n",
    "a long request line": b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n",
    "one header for ever": b"GET / HTTP/1.1\r\nA: " + b"x" * 2_000_000,
}


@pytest.mark.parametrize("head", HEADS)
def test_a_head_over_its_bounds_is_refused_without_being_kept(head, capfd):
    with Served() as served, client(served) as other, RawClient(served.url, upgrade=False) as raw:
        before = len(served.peers)
        with contextlib.suppress(Gone):
            raw.send_bytes(HEADS[head])
        with contextlib.suppress(Gone):
            assert raw.read_answer().status in (400, 414, 431)
        raw.read_rest(PATIENCE)
        assert len(served.peers) == before
        other.send({"type": "open", "stream": 1, "payload": 7, "end": True})
        other.expect("data", payload=7)
    assert "Traceback" not in capfd.readouterr().err


def test_a_head_that_never_ends_holds_its_place_for_as_long_as_the_server_says():
    with Served(head_timeout=0.1) as served, RawClient(served.url, upgrade=False) as raw:
        raw.send_bytes(b"GET / HTTP/1.1\r\n")
        raw.expect_end(PATIENCE)
        until(lambda: not served.server._connections)


ANSWERS = {
    "a long head": b"HTTP/1.1 101 Switching Protocols\r\nA: " + b"x" * 70_000,
    "a head for ever": b"HTTP/1.1 101 Switching Protocols\r\n" + b"A: b\r\n" * 20_000,
    "many headers": b"HTTP/1.1 101 Switching Protocols\r\n" + b"A: b\r\n" * 200 + b"\r\n",
    "no head": b"\x00" * 200_000,
    "a redirect": b"HTTP/1.1 302 Found\r\nLocation: ws://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
    "interim answers": b"HTTP/1.1 103 Early Hints\r\n\r\n" * 5_000,
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_dialer_is_not_fed_for_ever_either(answer):
    def script(raw):
        raw.read_request()
        raw.send_bytes(ANSWERS[answer])
        raw.read_rest(PATIENCE)

    with RawServer(script, upgrade=False) as server, pytest.raises((MuxwsError, OSError)):
        connect(server.url, heartbeat=None, open_timeout=PATIENCE)


def test_codes_of_resets_that_nobody_knows_are_counted_together():
    with Served(lambda payload, stream: stream.closed.wait()) as served, client(served) as raw:
        for number in range(50):
            raw.send({"type": "open", "stream": 2 * number + 1})
            raw.send({"type": "reset", "stream": 2 * number + 1, "code": 1_000 + number if number % 2 else -number - 1})
        raw.send({"type": "open", "stream": 101})
        raw.send({"type": "reset", "stream": 101, "code": ResetCode.CANCELLED})
        raw.send({"type": "ping", "nonce": "over"})
        raw.expect("pong", skip=("reset",))
        counted = served.peer.stats.resets
        assert set(counted) <= {-1, ResetCode.CANCELLED}
        assert counted[-1] + counted[ResetCode.CANCELLED] == served.peer.stats.streams_accepted


@pytest.mark.slow
def test_a_bulk_stream_into_a_slow_consumer_runs_in_bounded_memory_at_both_ends():
    """The two gigabytes that it stands for are a command (`python -m tests.soak.two_gigabytes`)."""
    rows, row = 1_000, "x" * 65_000
    soft = 1_000_000

    def handler(payload, stream):
        for _ in range(rows):
            stream.send(row)

    limits = {"send_buffer_bytes": soft, "receive_buffer_bytes": soft}
    with Served(handler, **limits) as served, connect(served.url, heartbeat=None, **limits) as peer:
        seen = 0
        stream = peer.open(end=True)
        gc.collect()
        tracemalloc.start()
        try:
            for number, text in enumerate(stream):
                seen += len(text)
                if number % 20 == 0:
                    # The sender has every turn that it wants between any two payloads.
                    for _ in range(20):
                        gevent.sleep(0)
                assert peer.stats.held_bytes <= soft + 3 * CAP
                assert served.peer.stats.queued_bytes <= 2 * soft
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert seen == rows * len(row)
        assert most < 8 * soft


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_an_echo_of_a_slow_reader_slows_its_sender_down(kind):
    """The consumer waits for room to send, which is no reason to read on to the hard limit and end its stream."""
    rows, soft = 400, 300_000

    def back(payload, stream):
        for row in stream:
            stream.send(row)

    limits = {"send_buffer_bytes": soft, "receive_buffer_bytes": soft}
    options = limits if kind != "tls" else {**limits, "ssl_context": client_context()}
    with Served(back, kind, **limits) as served, connect(served.url, heartbeat=None, **options) as peer:
        stream = peer.open()
        ahead = []

        def send():
            for number in range(rows):
                stream.send([number, "x" * 50_000])
                ahead.append(number)
            stream.end()

        sender = gevent.spawn(send)
        for number, (echoed, _) in enumerate(stream):
            assert echoed == number
            for _ in range(20):
                gevent.sleep(0)
            assert served.peer.stats.held_bytes <= 4 * soft
            # Four buffers of ours, and what two kernels hold.
            assert len(ahead) - number < 200
        sender.get(timeout=PATIENCE)
        assert number == rows - 1


def test_what_handlers_have_been_given_is_bounded_together(monkeypatch):
    """Each of a hundred handlers may be given a payload of the full size, which is too much for one connection."""
    monkeypatch.setattr("muxws_green.protocol.connection.HANDED_BYTES", 150_000)
    release, entered = Event(), []

    def handler(payload, stream):
        entered.append(stream.id)
        assert release.wait(PATIENCE)
        stream.reply(len(payload))

    with Served(handler, max_payload_bytes=150_000) as served, connect(served.url, heartbeat=None) as peer:
        big = []
        for number in range(2):
            big.append(peer.open("x" * (50_000 + 90_000 * number), end=True))
            until(lambda: len(entered) == len(big))
        for _ in range(2):
            with pytest.raises(StreamRefused, match="handlers at work"):
                peer.request("x" * 140_000, timeout=PATIENCE)
        small = peer.open("small", end=True)
        release.set()
        assert [stream.result(PATIENCE) for stream in (*big, small)] == [50_000, 140_000, 5]
        # They have ended, and there is room again; one alone may always be given what a payload may be.
        until(lambda: not served.peer._link.core._handed_bytes)
        assert peer.request("y" * 140_000, timeout=PATIENCE) == 140_000
