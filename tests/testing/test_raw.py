"""Raw ends against each other, over TCP, TLS and Unix sockets: both roles say and hear what they are told to."""

from __future__ import annotations

import math
import socket
from collections.abc import Callable, Iterator

import gevent
import pytest
from gevent import socket as gevent_socket

from muxws_green import ABSENT, Frame, ProtocolError
from muxws_green.codecs import MsgpackCodec
from muxws_green.testing import FakeClock, Gone, Opcode, RawClient, RawConnection, RawEnd, RawServer, WireFrame, settle
from muxws_green.testing.raw_server import accept_value
from muxws_green.testing.wire import MASK, encode_frame
from tests.transports.raw import client_context, server_context


@pytest.fixture(autouse=True)
def _bounded():
    with gevent.Timeout(20, ref=False):
        yield


@pytest.fixture(params=["tcp", "tls", "unix"])
def server(request, tmp_path) -> Iterator[RawServer]:
    with RawServer(
        listen=str(tmp_path / "s") if request.param == "unix" else None,
        ssl_context=server_context() if request.param == "tls" else None,
    ) as server:
        yield server


@pytest.fixture
def tcp() -> Iterator[RawServer]:
    with RawServer() as server:
        yield server


def connected(server: RawServer, **options) -> tuple[RawClient, RawConnection]:
    client = RawClient(server.url, **options)
    return client, server.accept()


@pytest.fixture
def both(server) -> Iterator[tuple[RawEnd, RawEnd]]:
    client, connection = connected(server)
    with client:
        yield client, connection


@pytest.fixture(params=["the client", "the server"])
def ends(request, tcp) -> Iterator[tuple[RawEnd, RawEnd]]:
    """One end and the other, in both ways."""
    client, connection = connected(tcp)
    with client:
        yield (client, connection) if request.param == "the client" else (connection, client)


def sent(act: Callable[[RawEnd], None], *, client: bool) -> bytes:
    """The bytes that an end writes."""
    near, far = gevent_socket.socketpair()
    with RawEnd(near, client=client) as end, far:
        act(end)
        end.shut_write()
        return b"".join(iter(lambda: far.recv(65_536), b""))


# Saying and hearing


def test_frames_pass_both_ways_and_only_the_clients_are_masked(both):
    client, connection = both
    client.send_frame(Opcode.TEXT, b"there")
    connection.send_frame(Opcode.BINARY, b"back")
    assert connection.read_frame() == WireFrame(Opcode.TEXT, b"there", True)
    assert client.read_frame() == WireFrame(Opcode.BINARY, b"back", False)


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536, 3_000_000])
def test_frames_of_every_length_pass(both, size):
    client, connection = both
    sending = gevent.spawn(client.send_frame, Opcode.BINARY, bytes(size))
    assert connection.read_frame() == WireFrame(Opcode.BINARY, bytes(size), True)
    sending.get()


@pytest.mark.parametrize("client", [True, False])
def test_an_illegal_frame_is_sent_as_it_is_asked_for(client):
    data = sent(lambda end: end.send_frame(11, b"x", fin=False, rsv=5, masked=not client, announce=200), client=client)
    assert data == encode_frame(11, b"x", masked=not client, fin=False, rsv=5, announce=200)


def test_part_of_a_frame_is_sent_and_the_rest_later(ends):
    near, far = ends
    whole = encode_frame(Opcode.TEXT, b"in two parts", masked=near.client)
    near.send_frame(Opcode.TEXT, b"in two parts", stop_after=5)
    with pytest.raises(TimeoutError, match=r"no frame came within 0\.01 seconds"):
        far.read_frame(0.01)
    near.send_bytes(whole[5:])
    assert far.read_frame().payload == b"in two parts"


def test_close_frames_with_any_code(ends):
    near, far = ends
    near.send_close(1002, "bad")
    near.send_close(None)
    near.send_close(4)
    assert [far.read_frame().payload for _ in range(3)] == [b"\x03\xeabad", b"", b"\0\4"]


def test_muxws_frames_pass_in_both_directions(both):
    for near, far in (both, both[::-1]):
        near.send(Frame("open", 1, payload={"é": 1}, headers={"a": 1}, end=True))
        assert far.receive() == Frame("open", 1, payload={"é": 1}, headers={"a": 1}, end=True)
        near.send(Frame("data", 1))
        assert far.receive().payload is ABSENT


def test_a_mapping_goes_out_with_whatever_is_wrong_with_it(ends):
    near, far = ends
    near.send({"type": "data", "stream": "seven", "more": None})
    assert far.read_frame().payload == b'{"type":"data","stream":"seven","more":null}'
    near.send({"stream": 1})
    with pytest.raises(ProtocolError):
        far.receive()


def test_binary_codecs_make_binary_messages(tcp):
    with RawServer(codec=MsgpackCodec()) as server, RawClient(server.url, codec=MsgpackCodec()) as client:
        connection = server.accept()
        assert connection.offered == ["muxws.v1.msgpack"]
        client.send(Frame("data", 1, payload=b"\0"))
        assert connection.receive() == Frame("data", 1, payload=b"\0")
        client.send({"type": "ping", "nonce": 7})
        frame = connection.read_frame()
        assert (frame.opcode, frame.payload) == (Opcode.BINARY, b"\x82\xa4type\xa4ping\xa5nonce\x07")


def test_what_was_heard_is_kept_with_its_time():
    with FakeClock() as clock, RawServer(clock=clock) as server, RawClient(server.url) as client:
        connection = server.accept()
        client.send(Frame("ping", nonce="1"))
        connection.receive()
        clock.sleep(2.5)
        client.send(Frame("ping", nonce="2"))
        connection.expect("ping")
        assert connection.heard == [(0.0, Frame("ping", nonce="1")), (2.5, Frame("ping", nonce="2"))]


def test_fragments_of_a_message_are_joined_and_pings_passed_over(ends):
    near, far = ends
    near.send_frame(Opcode.TEXT, b'{"type":', fin=False)
    near.send_frame(Opcode.PING, b"between")
    near.send_frame(Opcode.CONTINUATION, b'"pong"}')
    near.send_frame(Opcode.PONG)
    near.send(Frame("ping"))
    assert far.receive() == Frame("pong")
    assert far.receive() == Frame("ping")


def test_a_message_that_begins_in_the_middle_is_none(ends):
    near, far = ends
    near.send_frame(Opcode.CONTINUATION, b'{"type":"ping"}')
    with pytest.raises(ProtocolError):
        far.receive()


def test_a_timeout_that_was_on_the_socket_bounds_nothing():
    near, far = gevent_socket.socketpair()
    near.settimeout(0.0)
    with RawEnd(near, client=True) as end, far:
        gevent.spawn(far.sendall, encode_frame(Opcode.PING, masked=False))
        assert end.read_frame().opcode == Opcode.PING


# Expecting


def test_what_is_expected_is_returned(ends):
    near, far = ends
    near.send(Frame("reset", 3, code=2, payload={"type": "ValueError"}))
    frame = far.expect("reset", stream=3, code=2, payload={"type": "ValueError"}, timeout=5.0)
    assert frame == Frame("reset", 3, code=2, payload={"type": "ValueError"})


@pytest.mark.parametrize(
    "wrong", [{"type": "open"}, {"stream": 5}, {"payload": None}, {"end": True}, {"payload": ABSENT}, {"headers": {}}]
)
def test_another_frame_is_shown_beside_what_was_expected(ends, wrong):
    near, far = ends
    near.send(Frame("data", 1, payload=[1]))
    wanted = {"type": "data", **wrong}
    with pytest.raises(AssertionError) as caught:
        far.expect(**wanted)
    assert all(repr(value) in str(caught.value) for value in wanted.values())
    assert "payload=[1]" in str(caught.value)


def test_types_can_be_passed_over(ends):
    near, far = ends
    for frame in (Frame("ping"), Frame("pong"), Frame("data", 1)):
        near.send(frame)
    assert far.expect("data", skip=("ping", "pong")) == Frame("data", 1)
    near.send(Frame("ping"))
    assert far.expect("ping", skip=("ping",)) == Frame("ping")


def test_a_frame_has_no_field_of_that_name(ends):
    near, far = ends
    near.send(Frame("ping"))
    with pytest.raises(AttributeError, match="steam"):
        far.expect("ping", steam=1)


def test_a_close_frame_where_a_frame_was_expected(ends):
    near, far = ends
    near.send_close(1011, "broken")
    with pytest.raises(Gone, match="closed with 1011 'broken'") as caught:
        far.expect("data")
    assert (caught.value.code, caught.value.was_reset) == (1011, False)
    assert caught.value.close == WireFrame(Opcode.CLOSE, b"\x03\xf3broken", near.client)


def test_close_frames_are_expected(ends):
    near, far = ends
    near.send(Frame("goaway", code=3, last_stream=0))
    near.send_close(1002, "why")
    assert far.expect_close(1002, skip=("goaway",)).close_reason == "why"
    near.send_close(None)
    assert far.expect_close(1005).payload == b""
    near.send_close(1000)
    assert far.expect_close().close_code == 1000


def test_no_close_frame_or_another_code(ends):
    near, far = ends
    near.send(Frame("goaway", code=0, last_stream=0))
    with pytest.raises(AssertionError, match=r"expected a close frame, and Frame.*goaway"):
        far.expect_close()
    near.send_close(1001)
    with pytest.raises(AssertionError, match=r"expected a close frame with 1000, and .* 1001"):
        far.expect_close(1000)
    near.shut_write()
    with pytest.raises(Gone, match="without a close frame") as caught:
        far.expect_close()
    assert caught.value.code == 1006


def test_the_end_is_expected(both):
    client, connection = both
    connection.close()
    assert client.expect_end() is False
    with pytest.raises(Gone):
        client.read_frame()
    with pytest.raises(Gone):
        client.fill()


def test_a_reset_is_told_from_an_end(ends):
    near, far = ends
    near.reset()
    with pytest.raises(Gone, match="reset the connection") as caught:
        far.receive()
    assert caught.value.was_reset
    assert far.expect_end() is True


def test_bytes_before_the_end(ends):
    near, far = ends
    near.send_bytes(b"\x81")
    near.shut_write()
    with pytest.raises(AssertionError, match=r"1 bytes came: b'\\x81'"):
        far.expect_end()


def test_the_rest_is_what_was_not_decoded(ends):
    near, far = ends
    near.send(Frame("ping"))
    near.send_bytes(b"\x81 half a frame")
    near.shut_write()
    far.receive()
    assert far.read_rest() == b"\x81 half a frame"
    assert far.read_rest() == b""


def test_silence_is_expected_in_time_of_the_clock():
    with FakeClock() as clock, RawServer() as server, RawClient(server.url, clock=clock, timeout=1000) as client:
        connection = server.accept()
        client.expect_silence(600.0)
        assert clock.now() == 600.0
        clock.call_later(5.0, lambda: connection.send_bytes(b"\x81"))
        with pytest.raises(AssertionError, match=r"10 seconds of silence, and this came: b'\\x81'"):
            client.expect_silence(10)
        assert clock.now() == 605.0
        with pytest.raises(AssertionError, match="this came"):
            client.expect_silence(10)
        assert clock.now() == 605.0


def test_an_end_is_no_silence(ends):
    near, far = ends
    near.close()
    with pytest.raises(AssertionError, match="ended the connection"):
        far.expect_silence(5.0)


# Waiting


WAITS = {
    "read_frame": lambda end, seconds: end.read_frame(seconds),
    "receive": lambda end, seconds: end.receive(seconds),
    "expect": lambda end, seconds: end.expect("data", timeout=seconds),
    "expect_close": lambda end, seconds: end.expect_close(timeout=seconds),
    "expect_end": lambda end, seconds: end.expect_end(seconds),
    "read_rest": lambda end, seconds: end.read_rest(seconds),
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_every_wait_is_bounded_by_the_clock_that_the_end_was_given(wait):
    with FakeClock() as clock, RawServer() as server, RawClient(server.url, clock=clock, timeout=30.0) as client:
        server.accept()
        with pytest.raises(TimeoutError, match=r"within 30\.0 seconds"):
            wait(client, None)
        assert clock.now() == 30.0
        with pytest.raises(TimeoutError, match="within 45 seconds"):
            wait(client, 45)
        assert clock.now() == 75.0


def test_filling_and_accepting_are_bounded_too():
    with FakeClock() as clock, RawServer(clock=clock, timeout=20.0) as server:
        with pytest.raises(TimeoutError, match="no connection"):
            server.accept()
        assert clock.now() == 20.0
        with pytest.raises(TimeoutError, match="no connection"):
            server.accept(1.0)
        with RawClient(server.url) as client:
            connection = server.accept()
            with pytest.raises(TimeoutError, match="nothing came"):
                connection.fill()
            assert clock.now() == 41.0
            client.close()


def test_a_wait_that_timed_out_has_lost_nothing(ends):
    near, far = ends
    whole = encode_frame(Opcode.TEXT, b'{"type":"ping"}', masked=near.client)
    for byte in whole[:-1]:
        near.send_bytes(bytes([byte]))
        with pytest.raises(TimeoutError):
            far.receive(0.0001)
    near.send_bytes(whole[-1:])
    assert far.receive() == Frame("ping")


def test_sending_is_bounded_and_fails_where_nobody_is():
    with RawServer() as server, RawClient(server.url, timeout=0.05) as client:
        connection = server.accept()
        with pytest.raises(TimeoutError, match="did not take"):
            client.send_bytes(bytes(30_000_000))
        connection.reset()
        with pytest.raises(Gone):
            client.send_bytes(bytes(30_000_000))


def test_a_slow_reader_takes_as_much_as_it_wants(ends):
    near, far = ends
    near.send(Frame("ping"))
    settle()
    assert [far.fill(5), far.fill(5)] == [5, 5]
    assert far.receive() == Frame("ping")


def test_a_small_receive_buffer_makes_the_other_end_wait():
    with (
        RawServer(receive_buffer_bytes=4096) as server,
        RawClient(server.url, timeout=math.inf, receive_buffer_bytes=4096) as client,
    ):
        connection = server.accept()
        for near in (client, connection):
            near.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            sending = gevent.spawn(near.send_bytes, bytes(100_000))
            settle()
            assert not sending.ready()
            sending.kill()


# The handshake


def test_both_sides_of_a_good_handshake(server):
    client, connection = connected(server, headers={"X-Token": "7"}, protocols=["muxws.v1.json", "bearer.x"])
    with client:
        assert connection.request_line == "GET / HTTP/1.1"
        assert connection.header("x-token") == "7"
        assert connection.header("x-other") is None
        assert connection.offered == ["muxws.v1.json", "bearer.x"]
        assert client.answer_head.status == 101
        assert client.answer_head.header("SEC-WEBSOCKET-PROTOCOL") == "muxws.v1.json"
        assert client.answer_head.header("x") is None


def test_the_accept_value_is_that_of_the_rfc():
    assert accept_value("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


def test_the_request_can_be_anything():
    with RawServer(upgrade=False) as server, RawClient(server.url + "x?y", upgrade=False, protocols=[]) as client:
        connection = server.accept()
        client.send_request(
            {"Upgrade": None, "Host": "other"}, method="POST", version="HTTP/1.0", lines=["broken"], behind=b"frames"
        )
        connection.read_request()
        connection.read_request()
        assert connection.request_line == "POST /x?y HTTP/1.0"
        assert dict(connection.request_headers) == {
            "Host": "other",
            "Connection": "Upgrade",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
            "broken": "",
        }
        client.shut_write()
        assert connection.read_rest() == b"frames"


def test_the_answer_can_be_anything():
    with RawServer(upgrade=False) as server, RawClient(server.url, upgrade=False) as client:
        connection = server.accept()
        client.send_request()
        frame = encode_frame(Opcode.TEXT, b'{"type":"ping"}', masked=False)
        connection.upgrade("muxws.v9.x", changes={"Upgrade": None, "X-More": "1"}, status="101 Odd", behind=frame)
        answer = client.read_answer()
        assert (answer.status, answer.header("Upgrade"), answer.header("X-More")) == (101, None, "1")
        assert answer.header("Sec-WebSocket-Protocol") == "muxws.v9.x"
        assert client.receive() == Frame("ping")


def test_no_subprotocol_is_selected_where_none_is_wanted():
    with RawServer(upgrade=False) as server, RawClient(server.url, upgrade=False) as client:
        connection = server.accept()
        client.send_request()
        connection.upgrade(None)
        assert client.read_answer().header("Sec-WebSocket-Protocol") is None


def test_a_refusal_is_an_error_of_the_client_that_wants_an_upgrade():
    def refuse(connection: RawConnection) -> None:
        connection.respond("403 Forbidden", [("Content-Length", "2")], b"no")

    with RawServer(refuse, upgrade=False) as server:
        with pytest.raises(AssertionError, match="403"):
            RawClient(server.url)
        with RawClient(server.url, upgrade=False) as client:
            client.send_request()
            assert client.read_answer() == client.answer_head == (403, [("Content-Length", "2")])
            server.connections[1].close()
            assert client.read_rest() == b"no"


@pytest.mark.parametrize("nonsense", [b"SSH-2.0 hello\r\n\r\n", b"HTTP/1.1 yes\r\n\r\n"])
def test_nonsense_is_no_answer(nonsense):
    with (
        RawServer(lambda connection: connection.send_bytes(nonsense), upgrade=False) as server,
        pytest.raises(AssertionError, match="does not begin with"),
    ):
        RawClient(server.url)


def test_an_endless_head_is_given_up():
    with (
        RawServer(lambda connection: connection.send_bytes(bytes(2_000_000)), upgrade=False) as server,
        pytest.raises(AssertionError, match="no HTTP head"),
    ):
        RawClient(server.url)


def test_nobody_to_connect_to(tcp):
    tcp.refuse()
    with pytest.raises(ConnectionRefusedError):
        RawClient(tcp.url)


def test_a_server_that_never_answers():
    with FakeClock() as clock, RawServer(upgrade=False) as server:
        with pytest.raises(TimeoutError, match="no whole HTTP head"):
            RawClient(server.url, clock=clock, timeout=7.0)
        assert clock.now() == 7.0
        # It has hung up behind its request.
        assert server.accept().read_rest().startswith(b"GET / HTTP/1.1\r\n")


def test_tls_that_is_checked_and_tls_that_is_not():
    with RawServer(ssl_context=server_context("example.org")) as server:
        with RawClient(server.url):
            server.accept()
        with pytest.raises(OSError, match="certificate verify failed"):
            RawClient(server.url, ssl_context=client_context())
        settle()
        assert server.failed_handshakes == 1
        assert len(server.connections) == 1


# The server


def test_the_next_script_is_for_the_next_connection_and_the_last_for_all_that_follow():
    def say(number: int) -> Callable[[RawConnection], None]:
        return lambda connection: connection.send(Frame("ping", nonce=str(number)))

    with RawServer(say(1), say(2)) as server:
        said = []
        for _ in range(4):
            with RawClient(server.url) as client:
                said.append(client.receive().nonce)
        assert said == ["1", "2", "2", "2"]
        assert len(server.connections) == 4


def test_a_connection_whose_script_is_over_is_the_tests():
    with RawServer(lambda connection: connection.expect("ping")) as server, RawClient(server.url) as client:
        client.send(Frame("ping"))
        settle()
        (connection,) = server.connections
        connection.send(Frame("pong"))
        assert client.receive() == Frame("pong")


def test_a_script_whose_client_goes_ends_in_peace():
    with RawServer(RawEnd.serve) as server:
        RawClient(server.url).close()
        RawClient(server.url).reset()
        client = RawClient(server.url)
        client.send_close(1000)
        client.read_rest()
        client.close()
        RawClient(server.url, upgrade=False).close()
        settle()
        assert server.errors == []
        assert len(server.connections) == 4


def test_an_error_of_a_script_is_raised_when_the_server_is_closed():
    def wrong(connection: RawConnection) -> None:
        connection.expect("open")

    server = RawServer(wrong)
    for _ in range(2):
        with RawClient(server.url) as client:
            client.send(Frame("ping"))
            client.read_rest()
    with pytest.raises(AssertionError, match="expected type='open'") as caught:
        server.close()
    assert len(caught.value.__notes__) == 1
    server.close()


def test_a_timeout_of_a_script_is_an_error_too():
    def slow(connection: RawConnection) -> None:
        with gevent.Timeout(0.001):
            connection.receive()

    with pytest.raises(gevent.Timeout), RawServer(slow) as server, RawClient(server.url) as client:
        client.expect_end()


def test_an_error_of_a_script_is_a_note_to_an_error_of_the_test():
    def wrong(connection: RawConnection) -> None:
        raise ValueError("in the script")

    with pytest.raises(KeyError) as caught, RawServer(wrong) as server, RawClient(server.url) as client:
        client.expect_end()
        raise KeyError("in the test")
    assert caught.value.__notes__ == ["and in a script of the raw server: ValueError('in the script')"]


def test_refusing_and_admitting():
    with RawServer() as server:
        client, connection = connected(server)
        server.refuse()
        with pytest.raises(ConnectionRefusedError):
            RawClient(server.url)
        server.admit()
        RawClient(server.url).close()
        client.send(Frame("ping"))
        assert connection.receive() == Frame("ping")
        client.close()


def test_gaps_and_times_are_those_of_the_clock():
    with FakeClock() as clock, RawServer(clock=clock) as server:
        for pause in (1.0, 2.0, 4.0):
            RawClient(server.url).close()
            clock.sleep(pause)
        assert [connection.opened_at for connection in server.connections] == [0.0, 1.0, 3.0]
        assert server.gaps == [1.0, 2.0]


def test_where_it_listens(tmp_path):
    with RawServer(listen=("::1", 0)) as server:
        assert server.address == ("::1", server.port)
        assert server.url == f"ws://[::1]:{server.port}/"
        RawClient(server.url).close()
    with RawServer(listen=str(tmp_path / "s")) as server, pytest.raises(AttributeError, match="no port"):
        _ = server.port


@pytest.mark.leaks
def test_closing_ends_scripts_and_closes_connections():
    started = []
    gevent.Greenlet.add_spawn_callback(started.append)
    try:
        server = RawServer(lambda connection: connection.read_frame(math.inf))
        with RawClient(server.url) as client:
            settle()
            server.close()
            client.expect_end()
    finally:
        gevent.Greenlet.remove_spawn_callback(started.append)
    assert len(started) == 2
    assert all(greenlet.dead for greenlet in started)


@pytest.mark.leaks
def test_closing_ends_a_handshake_of_tls():
    with (
        RawServer(ssl_context=server_context()) as server,
        gevent_socket.create_connection(("127.0.0.1", server.port)) as sock,
    ):
        settle()
        server.close()
        assert sock.recv(1) == b""
    assert (server.connections, server.failed_handshakes) == ([], 0)


@pytest.mark.leaks
def test_a_server_that_cannot_listen_leaves_nothing():
    with pytest.raises(TypeError):
        RawServer(receive_buffer_bytes="many")


def test_a_listener_that_breaks_says_so(expected_hub_errors):
    with RawServer() as server:
        settle()
        server._listener._socket.close()
        settle()
    assert isinstance(expected_hub_errors[0].error, OSError)


def test_ending_what_has_ended_is_no_error(ends):
    near, far = ends
    near.reset()
    settle()
    far.shut_write()
    far.close()
    far.shut_write()
    far.reset()
    far.close()


# Manners


def test_greeting_takes_the_hello_and_acknowledges_it(tcp):
    client, connection = connected(tcp)
    client.send(Frame("open", 1, payload="hello", end=True))
    assert connection.greet().payload == "hello"
    client.expect("data", stream=1, end=True, payload=ABSENT)
    client.send(Frame("open", 3, payload="no hello"))
    with pytest.raises(AssertionError, match="end=True"):
        connection.greet()
    client.close()


def test_a_polite_server_answers_calls_and_pings_and_nothing_else():
    with RawServer(RawEnd.serve) as server, RawClient(server.url) as client:
        client.send(Frame("open", 1, payload="stays open"))
        client.send(Frame("data", 1, payload="x", end=True))
        client.send(Frame("ping", nonce="n"))
        client.send(Frame("open", 3, payload=[1], end=True))
        client.send(Frame("open", 5, end=True))
        client.expect("pong", nonce="n")
        client.expect("data", stream=3, payload=[1], end=True)
        client.expect("data", stream=5, payload=ABSENT, end=True)


def test_the_mask_is_the_same_each_time():
    assert sent(lambda end: end.send_frame(Opcode.PING), client=True) == b"\x89\x80" + MASK
