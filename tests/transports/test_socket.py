"""The socket transport from both roles over TCP, TLS and Unix sockets, against an end without code of ours."""

from __future__ import annotations

import gc
import socket
import sys
import weakref
from collections.abc import Iterator

import gevent
import pytest
from gevent.socket import socket as GeventSocket  # noqa: N812
from zope.interface.verify import verifyObject

from muxws_green.errors import ConnectionClosed
from muxws_green.interfaces import ITransport
from muxws_green.testing.clock import settle
from muxws_green.transports import socket as transport_module
from muxws_green.transports import tuning
from muxws_green.transports.socket import READ_BYTES, SocketTransport
from muxws_green.transports.tuning import (
    RECEIVE_BUFFER_BYTES,
    SEND_BUFFER_BYTES,
    SHORT_PATH_SECONDS,
    UNSENT_LIMIT_BYTES,
    bound_backlog,
    tune,
    unacknowledged_bytes,
)
from tests.transports.raw import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PAIRS,
    PATIENCE,
    PING,
    PONG,
    TEXT,
    RawEnd,
    RawFrame,
    close_frame,
    frame,
    split_frames,
    tcp_pair,
    unix_pair,
)

MAX_MESSAGE_BYTES = 131_072
MEGABYTE = 1_000_000
linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how much is unacknowledged")


class Ends:
    """A transport and the raw end that it talks to."""

    def __init__(self, kind: str, role: str, leftover: bytes = b"") -> None:
        near, far = PAIRS[kind]()
        client = role == "client"
        if not client:
            near, far = far, near
        self.kind = kind
        self.masked = client
        self.transport = SocketTransport(near, client=client, max_message_bytes=MAX_MESSAGE_BYTES, leftover=leftover)
        self.raw = RawEnd(far, client=not client)
        self.wakes = 0
        self.transport.attach(self.wake)

    def wake(self) -> None:
        self.wakes += 1

    def receive(self):
        with gevent.Timeout(PATIENCE):
            return self.transport.receive()

    def ended(self) -> ConnectionClosed:
        with pytest.raises(ConnectionClosed) as caught:
            self.receive()
        return caught.value

    def refused(self, messages: list[bytes]) -> ConnectionClosed:
        with pytest.raises(ConnectionClosed) as caught, gevent.Timeout(PATIENCE):
            self.transport.send(messages, True)
        return caught.value

    def stuck_writer(self) -> gevent.Greenlet:
        """A greenlet inside `send` that cannot go on, since the raw end does not read."""
        writer = gevent.spawn(self.refused, [bytes(MEGABYTE)] * 12)
        settle()
        assert not writer.ready()
        return writer

    def finish(self) -> None:
        self.transport.abort()
        self.raw.sock.close()


def fill(sock: GeventSocket) -> int:
    """Write zeros behind the transport's back until the kernel takes no more; how many it has taken."""
    sock.settimeout(0.0)
    taken = 0
    try:
        while sent := sock.send(bytes(16_384)):
            taken += sent
    except BlockingIOError:
        pass
    sock.settimeout(None)
    return taken


@pytest.fixture(params=["client", "server"])
def role(request) -> str:
    return request.param


@pytest.fixture(params=list(PAIRS))
def ends(request, role) -> Iterator[Ends]:
    ends = Ends(request.param, role)
    yield ends
    ends.finish()


def test_it_is_a_transport(ends):
    assert verifyObject(ITransport, ends.transport)


def test_messages_keep_their_kind_order_and_masking(ends):
    ends.transport.send(["é".encode(), b"two"], False)
    ends.transport.send([b"\xff\x00"], True)
    assert ends.raw.frames(3) == [
        RawFrame(TEXT, "é".encode(), ends.masked),
        RawFrame(TEXT, b"two", ends.masked),
        RawFrame(BINARY, b"\xff\x00", ends.masked),
    ]
    ends.raw.send(TEXT, "ü".encode())
    assert ends.receive() == ["ü"]
    ends.raw.send(BINARY, b"\x00")
    assert ends.receive() == [b"\x00"]


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536, MAX_MESSAGE_BYTES])
def test_messages_of_every_length_pass_both_ways(ends, size):
    message = b"x" * size
    writer = gevent.spawn(ends.transport.send, [message], True)
    assert ends.raw.frames(1) == [RawFrame(BINARY, message, ends.masked)]
    writer.get(timeout=PATIENCE)
    writer = gevent.spawn(ends.raw.send, BINARY, message)
    assert ends.receive() == [message]
    writer.get(timeout=PATIENCE)


def test_all_messages_of_one_read_are_returned_together(ends):
    ends.raw.sock.sendall(b"".join(frame(TEXT, b"%d" % n, masked=ends.raw.client) for n in range(100)))
    assert ends.receive() == [str(n) for n in range(100)]


def test_a_batch_leaves_in_one_system_call(role):
    class Counting(GeventSocket):
        calls = 0

        def send(self, *args, **options):
            type(self).calls += 1
            return super().send(*args, **options)

    near, far = unix_pair()
    transport = SocketTransport(
        Counting(near.family, near.type, near.proto, near.detach()),
        client=role == "client",
        max_message_bytes=MAX_MESSAGE_BYTES,
    )
    raw = RawEnd(far, client=role == "server")
    raw.send(PING, b"p")
    raw.send(TEXT, b"m")
    assert transport.receive() == ["m"]
    transport.send([b"1", b"2", b"3"], False)
    assert Counting.calls == 1
    assert [sent.opcode for sent in raw.frames(4)] == [PONG, TEXT, TEXT, TEXT]
    transport.abort()
    raw.sock.close()


@pytest.mark.parametrize("kind", list(PAIRS))
def test_what_was_left_of_the_handshake_is_received_first(kind, role):
    masked = role == "server"
    second = frame(TEXT, b"second", masked=masked)
    ends = Ends(kind, role, frame(TEXT, b"first", masked=masked) + second[:3])
    assert ends.receive() == ["first"]
    ends.raw.sock.sendall(second[3:])
    assert ends.receive() == ["second"]
    ends.finish()


def test_a_close_frame_left_of_the_handshake_is_seen(role):
    ends = Ends("unix", role, close_frame(1001, masked=role == "server"))
    assert ends.ended().code == 1001
    ends.finish()


@pytest.mark.case("C12")
def test_a_frame_in_pieces_survives_deadlines_of_the_reader(ends):
    whole = frame(TEXT, b"x" * 3000, masked=ends.raw.client)
    for piece in (whole[:1], whole[1:3], whole[3:1500]):
        ends.raw.sock.sendall(piece)
        with pytest.raises(gevent.Timeout), gevent.Timeout(0.001):
            ends.transport.receive()
    ends.raw.sock.sendall(whole[1500:])
    assert ends.receive() == ["x" * 3000]


@pytest.mark.case("C12")
def test_a_timeout_that_was_on_the_socket_does_not_cut_the_reader(role):
    near, far = unix_pair()
    near.settimeout(0.0)
    transport = SocketTransport(near, client=role == "client", max_message_bytes=MAX_MESSAGE_BYTES)
    reader = gevent.spawn(transport.receive)
    settle()
    RawEnd(far, client=role == "server").send(TEXT, b"late")
    assert reader.get(timeout=PATIENCE) == ["late"]
    transport.abort()
    far.close()


def test_a_message_in_fragments_with_a_ping_between_arrives_whole(ends):
    ends.raw.send(TEXT, b"a", fin=False)
    ends.raw.send(PING, b"now")
    ends.raw.send(CONTINUATION, b"b")
    assert ends.receive() == ["ab"]
    ends.transport.send([], False)
    assert ends.raw.frames(1) == [RawFrame(PONG, b"now", ends.masked)]


def test_a_ping_asks_for_the_writer_and_the_latest_is_answered_before_messages(ends):
    ends.raw.send(PING, b"old")
    ends.raw.send(PING, b"new")
    ends.raw.send(TEXT, b"m")
    assert ends.receive() == ["m"]
    assert ends.wakes >= 1
    ends.transport.send([b"after"], False)
    ends.transport.send([], False)
    frames = ends.raw.frames(2)
    assert [(sent.opcode, sent.payload) for sent in frames if sent.payload != b"old"] == [
        (PONG, b"new"),
        (TEXT, b"after"),
    ]
    assert all(sent.masked is ends.masked for sent in frames)


@pytest.mark.case("C01")
def test_the_remotes_close_frame_is_reported_and_answered_with_its_code(ends):
    ends.raw.sock.sendall(
        frame(TEXT, b"last", masked=ends.raw.client) + close_frame(1001, "bye", masked=ends.raw.client)
    )
    assert ends.receive() == ["last"]
    error = ends.ended()
    assert (error.code, error.reason, error.was_clean) == (1001, "bye", False)
    assert ends.wakes == 1
    assert ends.ended().code == 1001
    assert ends.refused([b"too late"]).code == 1001
    (answer,) = ends.raw.frames(1)
    assert (answer.opcode, answer.close_code, answer.masked) == (CLOSE, 1001, ends.masked)
    ends.transport.send([], False)
    ends.transport.close(1000, "")
    ends.transport.abort(1000)
    assert ends.raw.rest() == b""


def test_a_close_with_1000_is_clean(ends):
    ends.raw.sock.sendall(close_frame(1000, "done", masked=ends.raw.client))
    assert ends.ended().was_clean


@pytest.mark.case("C02")
def test_an_empty_close_is_1005_and_answered_empty(ends):
    ends.raw.send(CLOSE)
    assert ends.ended().code == 1005
    ends.transport.send([], False)
    assert ends.raw.frames(1) == [RawFrame(CLOSE, b"", ends.masked)]


def test_abort_writes_the_answer_that_is_still_due(ends):
    ends.raw.sock.sendall(close_frame(1001, "bye", masked=ends.raw.client))
    assert ends.ended().code == 1001
    ends.transport.abort()
    assert ends.raw.frames(1)[0].close_code == 1001
    assert ends.raw.rest() == b""
    assert ends.ended().code == 1001


@pytest.mark.case("C07")
def test_a_frame_masked_on_the_wrong_side_is_a_violation(ends):
    good = frame(TEXT, b"good", masked=ends.raw.client)
    ends.raw.sock.sendall(good + frame(TEXT, b"bad", masked=not ends.raw.client) + good)
    assert ends.receive() == ["good"]
    assert ends.ended().code == 1002
    assert ends.ended().code == 1002
    assert ends.wakes == 1
    ends.transport.close(1002, "mask")
    (sent,) = ends.raw.frames(1)
    assert (sent.opcode, sent.close_code, sent.payload[2:]) == (CLOSE, 1002, b"mask")


@pytest.mark.case("C08")
def test_a_message_that_is_announced_too_long_is_not_waited_for(ends):
    whole = frame(BINARY, bytes(MAX_MESSAGE_BYTES + 1), masked=ends.raw.client)
    ends.raw.sock.sendall(whole[:14])
    assert ends.ended().code == 1009


def test_text_that_is_not_utf_8_is_a_violation(ends):
    ends.raw.send(TEXT, b"\xff")
    assert ends.ended().code == 1007


def test_end_of_file_without_a_close_frame_is_1006(ends):
    half = frame(TEXT, b"never whole", masked=ends.raw.client)[:-1]
    ends.raw.sock.sendall(frame(TEXT, b"whole", masked=ends.raw.client) + half)
    assert ends.receive() == ["whole"]
    ends.raw.sock.close()
    error = ends.ended()
    assert (error.code, error.was_clean) == (1006, False)
    assert ends.ended().code == 1006


@pytest.mark.parametrize("kind", ["tcp", "tls"])
def test_a_reset_is_1006_for_reader_and_writer(kind, role):
    ends = Ends(kind, role)
    reader = gevent.spawn(ends.ended)
    settle()
    ends.raw.reset()
    assert reader.get(timeout=PATIENCE).code == 1006
    assert ends.refused([b"x"]).code == 1006
    ends.finish()


@pytest.mark.case("C54")
def test_a_remote_that_goes_away_wakes_a_waiting_writer(ends):
    writer = ends.stuck_writer()
    ends.raw.sock.close()
    assert writer.get(timeout=PATIENCE).code == 1006
    assert ends.refused([b"again"]).code == 1006


def test_close_sends_one_close_frame_and_reading_goes_on(ends):
    ends.transport.send([b"before"], False)
    ends.transport.close(1001, "é" * 100)
    ends.transport.close(1000, "again")
    before, close = ends.raw.frames(2)
    assert before.payload == b"before"
    assert (close.close_code, close.payload[2:].decode()) == (1001, "é" * 61)
    ends.raw.send(PING, b"p")
    ends.raw.send(TEXT, b"still read")
    assert ends.receive() == ["still read"]
    ends.transport.send([], False)
    assert ends.refused([b"data"]).code == 1006
    ends.raw.sock.sendall(close_frame(1001, "ok", masked=ends.raw.client))
    assert ends.ended().reason == "ok"
    ends.transport.abort(1000)
    assert ends.raw.rest() == b""


def test_close_after_the_remotes_close_is_the_answer_to_it(ends):
    ends.raw.sock.sendall(close_frame(1001, masked=ends.raw.client))
    assert ends.ended().code == 1001
    ends.transport.close(1000, "mine")
    assert ends.raw.frames(1)[0].close_code == 1001
    ends.transport.abort()
    assert ends.raw.rest() == b""


@pytest.mark.parametrize("code", [1005, 1006, 1015, 999])
def test_codes_that_must_not_be_on_the_wire_are_refused(ends, code):
    with pytest.raises(ValueError, match=str(code)):
        ends.transport.close(code, "")
    ends.transport.send([b"as if nothing had happened"], True)
    with pytest.raises(ValueError, match=str(code)):
        ends.transport.abort(code)
    assert [sent.opcode for sent in ends.raw.frames(1)] == [BINARY]
    assert ends.raw.rest() == b""


@pytest.mark.case("C08")
def test_a_close_frame_arrives_although_the_remotes_bytes_were_not_all_read(ends):
    """Closing a socket that has unread bytes resets it."""
    too_long = frame(BINARY, bytes(MAX_MESSAGE_BYTES + 1), masked=ends.raw.client)
    flooder = gevent.spawn(ends.raw.sock.sendall, too_long + bytes(50_000))
    assert ends.ended().code == 1009
    settle()
    ends.transport.close(1009, "")
    ends.transport.abort()
    flooder.get(timeout=PATIENCE)
    settle()
    assert ends.raw.frames(1)[0].close_code == 1009
    assert ends.raw.sock.recv(1) == b""


@pytest.mark.leaks
@pytest.mark.parametrize("kind", list(PAIRS))
def test_abort_sends_a_close_frame_where_it_can_and_closes_the_descriptor(kind, role):
    ends = Ends(kind, role)
    ends.transport.abort(1000)
    assert [sent.close_code for sent in ends.raw.frames(1)] == [1000]
    assert ends.raw.rest() == b""
    ends.transport.abort(1001)
    assert ends.ended().code == 1006
    assert ends.refused([b"x"]).code == 1006
    ends.transport.close(1000, "the close frame has been sent")
    assert ends.transport.unacknowledged() is None
    ends.raw.sock.close()


def test_abort_without_a_code_sends_nothing(ends):
    ends.transport.abort()
    assert ends.raw.rest() == b""
    with pytest.raises(ConnectionClosed):
        ends.transport.close(1000, "")


def test_abort_wakes_a_waiting_reader_and_a_waiting_writer(ends):
    reader = gevent.spawn(ends.ended)
    writer = ends.stuck_writer()
    ends.transport.abort(1000)
    assert reader.get(timeout=PATIENCE).code == 1006
    assert writer.get(timeout=PATIENCE).code == 1006


def test_abort_never_waits_for_room(ends):
    # Filled behind the transport's back, so that it believes itself at a frame boundary.
    fill(ends.transport._sock)
    switches = []
    other = gevent.spawn(switches.append, 1)
    ends.transport.abort(1000)
    assert switches == []
    other.get(timeout=PATIENCE)
    data = ends.raw.rest()
    assert not data.strip(b"\0")


@pytest.mark.case("C13")
def test_abort_in_the_turn_in_which_the_socket_becomes_ready_ends_the_reader(ends):
    """The reader is woken as usual, and finds a socket that is closed."""
    reader = gevent.spawn(ends.ended)
    settle()
    ends.raw.send(TEXT, b"too late")
    abort_in_the_next_turn(ends.transport)
    assert reader.get(timeout=PATIENCE).code == 1006


@pytest.mark.case("C13")
def test_abort_in_the_turn_in_which_the_socket_becomes_ready_ends_the_writer(ends):
    writer = ends.stuck_writer()
    ends.raw.sock.settimeout(0.0)
    with pytest.raises(OSError, match=r"unavailable|complete"):
        while True:
            ends.raw.sock.recv(65_536)
    abort_in_the_next_turn(ends.transport)
    assert writer.get(timeout=PATIENCE).code == 1006


def abort_in_the_next_turn(transport: SocketTransport) -> None:
    """Abort from a greenlet that the loop wakes, for another socket, before it wakes those that wait on this one."""
    near, far = unix_pair()

    def abort() -> None:
        near.recv(1)
        transport.abort(1000)

    aborting = gevent.spawn(abort)
    gevent.sleep(0)
    # The loop begins with what became ready last.
    far.sendall(b"x")
    aborting.get(timeout=PATIENCE)
    near.close()
    far.close()


def test_abort_of_a_tls_socket_that_its_owner_has_shut_down(role):
    ends = Ends("tls", role)
    ends.transport._sock.shutdown(socket.SHUT_RDWR)
    ends.transport.abort()
    assert ends.ended().code == 1006
    assert ends.raw.rest() == b""
    ends.raw.sock.close()


@pytest.mark.parametrize("call", ["receive", "send"])
def test_what_a_socket_raises_beside_its_own_errors_comes_out(role, call):
    class Broken(GeventSocket):
        def recv(self, *args):
            raise LookupError

        def send(self, *args):
            raise LookupError

    near, far = unix_pair()
    transport = SocketTransport(
        Broken(near.family, near.type, near.proto, near.detach()), client=role == "client", max_message_bytes=100
    )
    far.sendall(b"x")
    with pytest.raises(LookupError):
        transport.receive() if call == "receive" else transport.send([b"x"], True)
    transport.abort()
    far.close()


def test_abort_ends_tls_as_its_rules_want(role):
    ends = Ends("tls", role)
    ends.raw.sock.suppress_ragged_eofs = False
    ends.transport.abort(1000)
    assert ends.raw.frames(1)[0].close_code == 1000
    assert ends.raw.sock.recv(1) == b""
    ends.finish()


@pytest.mark.case("C11")
def test_nothing_follows_a_write_that_was_cut_short(ends):
    message = bytes(range(1, 256)) * 20_000
    writer = gevent.spawn(ends.transport.send, [b"whole", message], True)
    settle()
    assert not writer.ready()
    writer.kill(timeout=PATIENCE)
    assert ends.refused([b"next"]).code == 1006
    reader = gevent.spawn(ends.raw.rest)
    settle()
    # There is room now, and still no close frame may go into the middle of the message.
    ends.transport.abort(1000)
    frames, cut = split_frames(reader.get(timeout=PATIENCE))
    assert [sent.payload for sent in frames] == [b"whole"]
    pretended = bytes([cut[0], cut[1] & 0x80 | 127]) + (len(cut) - (14 if ends.masked else 10)).to_bytes(8, "big")
    (beginning,) = split_frames(pretended + cut[10:])[0]
    assert 0 < len(beginning.payload) < len(message)
    assert message.startswith(beginning.payload)
    with pytest.raises(ConnectionClosed):
        ends.transport.close(1000, "")


def test_the_callers_own_timeout_comes_out_of_a_wait_as_itself(ends):
    with pytest.raises(gevent.Timeout) as caught, gevent.Timeout(0.001) as mine:
        ends.transport.receive()
    assert caught.value is mine
    with pytest.raises(gevent.Timeout) as caught, gevent.Timeout(0.01) as mine:
        ends.transport.send([bytes(MEGABYTE)] * 12, True)
    assert caught.value is mine


@pytest.mark.case("C59")
def test_reading_goes_on_while_a_write_is_stuck(ends):
    writer = ends.stuck_writer()
    for number in range(3):
        ends.raw.send(TEXT, b"%d" % number)
        assert ends.receive() == [str(number)]
    assert not writer.ready()
    ends.transport.abort()
    writer.get(timeout=PATIENCE)


@pytest.mark.parametrize("read_bytes", [16_384, READ_BYTES])
def test_a_remote_that_always_has_more_does_not_keep_the_hub_to_itself(role, read_bytes, monkeypatch):
    """No read here ever waits, and some give less than was asked for."""
    monkeypatch.setattr("muxws_green.transports.socket.wait_to_read", lambda sock, turns: None)
    one = frame(BINARY, bytes(1024), masked=role == "server")

    class Flood(GeventSocket):
        stream = b""

        def recv(self, *args):
            self.stream += one * (read_bytes // len(one) + 1)
            data, self.stream = self.stream[:read_bytes], self.stream[read_bytes:]
            return data

    near, far = unix_pair()
    flood = Flood(near.family, near.type, near.proto, near.detach())
    transport = SocketTransport(flood, client=role == "client", max_message_bytes=MAX_MESSAGE_BYTES)
    turns = []

    def count_turns() -> None:
        for _ in range(1000):
            turns.append(1)
            gevent.sleep(0)

    counter = gevent.spawn(count_turns)
    received = sum(len(transport.receive()) for _ in range(40))
    counter.kill()
    assert len(turns) >= received * 1024 // READ_BYTES - 1
    transport.abort()
    far.close()


@linux
def test_what_the_remote_has_not_taken_is_unacknowledged(ends):
    ends.transport.send([b"x"], False)
    ends.raw.frames(1)
    settle()
    assert ends.transport.unacknowledged() == 0
    writer = gevent.spawn(ends.transport.send, [bytes(MEGABYTE)] * 12, True)
    settle()
    held = ends.transport.unacknowledged()
    assert held > 6 * MEGABYTE
    assert unacknowledged_bytes(ends.transport._sock) < 2 * MEGABYTE
    ends.raw.frames(3)
    settle()
    assert ends.transport.unacknowledged() < held - MEGABYTE
    ends.raw.frames(9)
    writer.get(timeout=PATIENCE)
    settle()
    assert ends.transport.unacknowledged() == 0


def test_where_the_kernel_cannot_tell_nothing_is_claimed(monkeypatch, ends):
    monkeypatch.setattr("muxws_green.transports.socket.unacknowledged_bytes", lambda sock: None)
    assert ends.transport.unacknowledged() is None


@pytest.mark.parametrize("kind", ["tcp", "tls"])
def test_tcp_sockets_send_at_once_and_keep_little_unsent(kind, role):
    ends = Ends(kind, role)
    sock = ends.transport._sock
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == UNSENT_LIMIT_BYTES
    untouched, far = PAIRS["tcp"]()
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == untouched.getsockopt(
        socket.SOL_SOCKET, socket.SO_SNDBUF
    )
    for other in (untouched, far):
        other.close()
    ends.finish()


@linux
@pytest.mark.parametrize("path", ["short", "long", "unknown"])
@pytest.mark.parametrize("chosen", [None, 4_096])
def test_on_a_short_path_the_kernel_keeps_little_that_was_not_read(monkeypatch, path, chosen):
    near, far = tcp_pair()
    if path != "short":
        monkeypatch.setattr(tuning, "round_trip_seconds", lambda sock: 0.05 if path == "long" else None)
    if chosen is not None:
        near.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, chosen)
    before = near.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    bound_backlog(near)
    after = near.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    assert after == (2 * RECEIVE_BUFFER_BYTES if path == "short" and chosen is None else before)
    near.close()
    far.close()


@linux
@pytest.mark.parametrize("kind", ["tcp", "tls"])
def test_the_backlog_of_a_remote_is_bounded_once_it_has_sent_a_lot(kind, monkeypatch):
    monkeypatch.setattr(transport_module, "BACKLOG_AFTER_BYTES", 1_000)
    ends = Ends(kind, "client")
    sock = ends.transport._sock

    def backlog() -> int:
        return sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)

    before = backlog()
    ends.raw.sock.sendall(frame(BINARY, bytes(500), masked=False))
    assert ends.receive() == [bytes(500)]
    assert backlog() == before
    ends.raw.sock.sendall(frame(BINARY, bytes(5_000), masked=False))
    assert ends.receive() == [bytes(5_000)]
    assert backlog() == 2 * RECEIVE_BUFFER_BYTES
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, before)
    chosen = backlog()
    ends.raw.sock.sendall(frame(BINARY, bytes(5_000), masked=False))
    assert ends.receive() == [bytes(5_000)]
    assert backlog() == chosen
    ends.finish()


def test_what_is_no_tcp_socket_has_no_backlog_to_bound():
    near, far = unix_pair()
    before = near.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    bound_backlog(near)
    assert near.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == before
    near.close()
    far.close()


@linux
def test_what_is_no_tcp_socket_has_no_round_trip():
    near, far = unix_pair()
    assert tuning.round_trip_seconds(near) is None
    near.close()
    far.close()
    near, far = tcp_pair()
    assert 0 <= tuning.round_trip_seconds(near) < SHORT_PATH_SECONDS
    near.close()
    far.close()


def test_unix_sockets_and_systems_without_a_limit_get_a_small_buffer(monkeypatch):
    monkeypatch.setattr(tuning, "_TCP_NOTSENT_LOWAT", None)
    for pair in (tcp_pair, unix_pair):
        near, far = pair()
        tune(near)
        size = near.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        assert size in (SEND_BUFFER_BYTES, 2 * SEND_BUFFER_BYTES)
        near.close()
        far.close()


def test_tuning_a_socket_that_is_gone_is_no_error():
    near, far = tcp_pair()
    near.close()
    tune(near)
    bound_backlog(near)
    far.close()


def test_a_slow_remote_leaves_little_in_the_kernel(ends):
    # Untuned TCP takes 2.5 to 4.2 MB here; the remote's receive buffer is a part of what is left.
    assert fill(ends.transport._sock) < MEGABYTE


@pytest.mark.case("C16")
def test_nothing_keeps_a_transport_alive_that_was_aborted(role):
    ends = Ends("tcp", role)
    reader = gevent.spawn(ends.ended)
    settle()
    ends.transport.abort(1000)
    reader.get(timeout=PATIENCE)
    gone = weakref.ref(ends.transport)
    ends.raw.sock.close()
    del reader, ends
    settle()
    gc.collect()
    assert gone() is None


def test_what_is_sent_at_once_to_a_remote_that_is_gone_is_refused(ends):
    ends.raw.sock.close()
    settle()
    with pytest.raises(ConnectionClosed), gevent.Timeout(PATIENCE):
        # The first write after a FIN is still taken; it is answered with a reset. TLS writes it later.
        for _ in range(100):
            ends.transport.send_at_once([b"x"], False)
            ends.transport.send([], False)
            settle()
    with pytest.raises(ConnectionClosed):
        ends.transport.send_at_once([b"y"], False)
    assert ends.refused([b"z"])


def fill_at_once(ends) -> int:
    """Send at once until something is left to the writer; how many messages that were."""
    count = 0
    while not ends.wakes and count < 10_000:
        ends.transport.send_at_once([bytes(10_007)], True)
        count += 1
    assert ends.wakes
    return count


def test_nothing_is_said_behind_a_frame_of_which_only_a_part_has_left_at_once(ends):
    fill_at_once(ends)
    ends.transport.abort(1000)
    whole, _ = split_frames(ends.raw.rest())
    assert whole or ends.kind == "tls"
    assert all(each.opcode == BINARY for each in whole if ends.kind != "tls")


def test_a_write_of_the_rest_that_is_cut_short_is_the_last_one(ends):
    fill_at_once(ends)
    ends.transport.send_at_once([bytes(MEGABYTE)] * 12, True)
    writer = gevent.spawn(ends.transport.send, [], True)
    settle()
    assert not writer.ready()
    writer.kill()
    with pytest.raises(ConnectionClosed):
        ends.transport.send_at_once([b"x"], False)
    assert ends.refused([b"y"])


def test_a_close_frame_follows_what_was_left_over(ends):
    count = fill_at_once(ends)
    closing = gevent.spawn(ends.transport.close, 1000, "")
    frames = ends.raw.frames(count + 1)
    closing.get(timeout=PATIENCE)
    assert [len(each.payload) for each in frames[:-1]] == [10_007] * count
    assert frames[-1].opcode == CLOSE


def test_two_greenlets_cannot_read(ends):
    first = gevent.spawn(ends.ended)
    settle()
    with pytest.raises(Exception, match="another greenlet"):
        ends.transport.receive()
    ends.transport.abort()
    first.get(timeout=PATIENCE)


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_a_switch_from_elsewhere_is_no_sign_that_there_is_something_to_read(kind, role):
    ends = Ends(kind, role)
    failed: list[BaseException] = []

    def read() -> None:
        try:
            ends.transport.receive()
        except Exception as error:
            failed.append(error)

    reader = gevent.spawn(read)
    settle()
    gevent.get_hub().loop.run_callback(reader.switch, "intruder")
    reader.join(PATIENCE)
    assert isinstance(failed[0], gevent.exceptions.InvalidSwitchError)
    ends.finish()
