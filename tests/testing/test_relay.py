"""Each fault of the relay, seen by the two programs that it stands between, which are plain sockets here."""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Iterator

import gevent
import pytest
from gevent import socket as gevent_socket
from gevent.socket import socket as GeventSocket  # noqa: N812

from muxws_green.runtime.clock import default_clock
from muxws_green.testing import FakeClock, Relay, settle
from muxws_green.testing.flow import _Parcel
from muxws_green.testing.relay import CAPACITY_BYTES, RelayedConnection
from muxws_green.transports.network import connect_unix
from muxws_green.transports.socket import READ_BYTES

MEGABYTE = 1_000_000


@pytest.fixture(autouse=True)
def _bounded():
    # Not counted by the loop, so that it does not look like something that is waited for.
    with gevent.Timeout(20, ref=False):
        yield


@pytest.fixture
def clock() -> Iterator[FakeClock]:
    with FakeClock() as clock:
        yield clock


def listener(kind: str, folder) -> GeventSocket:
    if kind == "unix":
        sock = gevent_socket.socket(socket.AF_UNIX)
        sock.bind(str(folder / "server"))
    else:
        sock = gevent_socket.socket()
        sock.bind(("127.0.0.1", 0))
    sock.listen(16)
    return sock


class Place:
    """A server's listener, and a relay before it."""

    def __init__(self, kind: str, folder, **options) -> None:
        self.server = listener(kind, folder)
        self.greenlets: list[gevent.Greenlet] = []
        gevent.Greenlet.add_spawn_callback(self._note)
        self.relay = Relay(self.server.getsockname(), **options)
        self.sockets: list[GeventSocket] = []

    def dial(self) -> GeventSocket:
        """A client's socket, connected to the relay."""
        address = self.relay.address
        if isinstance(address, str):
            sock = connect_unix(address, default_clock)
        else:
            sock = gevent_socket.socket()
            try:
                sock.connect(address)
            except BaseException:
                sock.close()
                raise
        self.sockets.append(sock)
        return sock

    def pair(self) -> tuple[GeventSocket, GeventSocket]:
        """A client's socket and the server's end of the same connection."""
        client = self.dial()
        server, _ = self.server.accept()
        self.sockets.append(server)
        settle()
        return client, server

    def all_over(self) -> bool:
        """Whether nothing of any connection is left, though the relay goes on."""
        settle()
        busy = [greenlet for greenlet in self.greenlets if not greenlet.dead and greenlet.name.startswith("relay ")]
        return not busy and self.relay.live == [] and self.relay.both.held_bytes == 0

    def close(self) -> None:
        self.relay.close()
        for sock in (self.server, *self.sockets):
            sock.close()
        assert self.all_over()
        gevent.Greenlet.remove_spawn_callback(self._note)

    def _note(self, greenlet: gevent.Greenlet) -> None:
        self.greenlets.append(greenlet)


@pytest.fixture(params=["tcp", "unix"])
def kind(request) -> str:
    return request.param


@pytest.fixture
def place(kind, tmp_path) -> Iterator[Place]:
    place = Place(kind, tmp_path)
    yield place
    place.close()


@pytest.fixture
def tcp(tmp_path) -> Iterator[Place]:
    place = Place("tcp", tmp_path)
    yield place
    place.close()


@pytest.fixture
def timed(clock, tmp_path) -> Iterator[Place]:
    place = Place("tcp", tmp_path, clock=clock)
    yield place
    place.close()


def read(sock: GeventSocket, count: int) -> bytes:
    """Exactly so many bytes, or what there was until the end."""
    data = bytearray()
    while len(data) < count and (more := sock.recv(count - len(data))):
        data += more
    return bytes(data)


def rest(sock: GeventSocket) -> bytes:
    """Everything up to an orderly end."""
    return b"".join(iter(lambda: sock.recv(READ_BYTES), b""))


def is_quiet(sock: GeventSocket) -> bool:
    """Whether there is nothing to read now, and no end either."""
    settle()
    sock.settimeout(0.0)
    try:
        sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    finally:
        sock.settimeout(None)
    return False


def assert_reset(sock: GeventSocket) -> None:
    with pytest.raises(ConnectionResetError):
        rest(sock)


def start_sending(sock: GeventSocket, data: bytes) -> gevent.Greenlet:
    """A greenlet that sends and returns what has ended it, if anything has."""

    def send() -> OSError | None:
        try:
            sock.sendall(data)
        except OSError as error:
            return error
        return None

    sender = gevent.spawn(send)
    settle()
    return sender


# What a relay does when nothing is asked of it


def test_bytes_pass_unchanged_and_are_counted(place):
    client, server = place.pair()
    there, back = os.urandom(300_000), os.urandom(5)
    sender = gevent.spawn(client.sendall, there)
    assert read(server, len(there)) == there
    sender.get()
    server.sendall(back)
    assert read(client, 5) == back
    (one,) = place.relay.connections
    for faults in (place.relay, one):
        assert faults.to_server.received_bytes == faults.to_server.delivered_bytes == 300_000
        assert faults.to_client.received_bytes == faults.to_client.delivered_bytes == 5
        assert faults.both.delivered_bytes == 300_005
        assert faults.both.held_bytes == 0


def test_an_end_of_file_passes_and_the_other_direction_goes_on(place):
    client, server = place.pair()
    client.sendall(b"last")
    client.shutdown(socket.SHUT_WR)
    assert rest(server) == b"last"
    server.sendall(b"answer")
    assert read(client, 6) == b"answer"
    assert place.relay.live == place.relay.connections
    server.close()
    assert rest(client) == b""
    assert place.all_over()
    assert place.relay.connections[0].over.is_set()


@pytest.mark.parametrize("vanishing", ["client", "server"])
def test_a_reset_passes_as_a_reset_behind_what_was_sent_before(tcp, vanishing):
    client, server = tcp.pair()
    one, other = (client, server) if vanishing == "client" else (server, client)
    one.sendall(b"last")
    settle()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    one.close()
    assert read(other, 4) == b"last"
    assert_reset(other)
    assert tcp.all_over()


def test_a_receiver_that_vanishes_is_noticed_by_a_sender_that_does_not_read(tcp):
    client, server = tcp.pair()
    sender = start_sending(client, bytes(20 * MEGABYTE))
    assert not sender.ready()
    server.close()
    assert isinstance(sender.get(), ConnectionError)
    client.close()
    assert tcp.all_over()


def test_a_receiver_that_has_said_its_last_word_and_then_vanishes_resets_the_sender(tcp):
    client, server = tcp.pair()
    server.shutdown(socket.SHUT_WR)
    assert rest(client) == b""
    sender = start_sending(client, bytes(20 * MEGABYTE))
    server.close()
    assert isinstance(sender.get(), ConnectionError)


def test_what_the_receiver_said_before_it_vanished_reaches_the_sender(tcp):
    client, server = tcp.pair()
    tcp.relay.to_client.stall()
    server.sendall(b"enough")
    start_sending(client, bytes(20 * MEGABYTE))
    server.close()
    settle()
    tcp.relay.to_client.resume()
    assert read(client, 6) == b"enough"
    assert_reset(client)


def test_a_server_that_is_not_there_resets_the_client(kind, tmp_path):
    place = Place(kind, tmp_path)
    place.server.close()
    if kind == "unix":
        assert rest(place.dial()) == b""
    else:
        with pytest.raises(ConnectionResetError):
            rest(place.dial())
    assert place.relay.connections[0].over.is_set()
    place.close()


def test_every_connection_is_recorded_with_its_time(timed, clock):
    for _ in range(3):
        timed.pair()
        clock.sleep(2.5)
    assert [one.opened_at for one in timed.relay.connections] == [0.0, 2.5, 5.0]
    assert timed.relay.gaps == [2.5, 2.5]


def test_its_greenlets_are_named_after_what_they_do(place):
    place.pair()
    assert sorted(greenlet.name for greenlet in place.greenlets if not greenlet.dead) == [
        f"accepting at {place.relay.address}",
        "relay reads connection 1 to client",
        "relay reads connection 1 to server",
        "relay writes connection 1 to client",
        "relay writes connection 1 to server",
    ]


# Delay and throttle


def test_a_delay_is_exact_and_has_a_direction(timed, clock):
    client, server = timed.pair()
    timed.relay.to_server.delay(0.25)
    client.sendall(b"there")
    assert read(server, 5) == b"there"
    assert clock.now() == 0.25
    server.sendall(b"back")
    assert read(client, 4) == b"back"
    assert clock.now() == 0.25


def test_a_delay_keeps_the_distance_between_bytes(timed, clock):
    client, server = timed.pair()
    timed.relay.both.delay(10.0)
    times = []

    def note() -> None:
        while server.recv(1):
            times.append(clock.now())

    noting = gevent.spawn(note)
    for _ in range(3):
        client.sendall(b"x")
        clock.sleep(1.0)
    client.shutdown(socket.SHUT_WR)
    noting.join()
    assert times == [10.0, 11.0, 12.0]
    assert clock.now() == 13.0


def test_nothing_overtakes_what_was_delayed_before(timed, clock):
    client, server = timed.pair()
    timed.relay.to_server.delay(3.0)
    client.sendall(b"slow")
    settle()
    timed.relay.to_server.delay(0.0)
    client.sendall(b" quick")
    assert read(server, 10) == b"slow quick"
    assert clock.now() == 3.0


def test_what_is_delayed_is_held_up_to_the_capacity(clock, tmp_path):
    place = Place("tcp", tmp_path, clock=clock, capacity_bytes=1000)
    client, server = place.pair()
    place.relay.to_server.delay(1.0)
    with clock.held():
        sender = start_sending(client, bytes(2500))
        assert place.relay.to_server.received_bytes == place.relay.to_server.held_bytes == 1000
    assert read(server, 2500) == bytes(2500)
    assert sender.get() is None
    assert clock.now() == 3.0
    place.close()


@pytest.mark.parametrize("rate", [100, 7, 0.5, 12_345.6, 10**9])
def test_a_throttle_is_exact(timed, clock, rate):
    client, server = timed.pair()
    timed.relay.to_client.throttle(rate)
    server.sendall(bytes(100))
    assert read(client, 100) == bytes(100)
    assert clock.now() == pytest.approx(100 / rate)
    client.sendall(b"x")
    read(server, 1)
    assert clock.now() == pytest.approx(100 / rate)


def test_a_throttled_line_that_was_idle_has_saved_nothing_up(timed, clock):
    client, server = timed.pair()
    timed.relay.to_server.throttle(10)
    client.sendall(bytes(10))
    read(server, 10)
    clock.sleep(60.0)
    client.sendall(bytes(10))
    read(server, 10)
    assert clock.now() == pytest.approx(62.0)


def test_neither_has_one_on_which_everything_is_delayed(timed, clock):
    client, server = timed.pair()
    timed.relay.to_server.throttle(10)
    timed.relay.to_server.delay(10.0)
    with clock.held():
        client.sendall(bytes(10))
        settle()
    clock.sleep(5.0)
    client.sendall(bytes(10))
    read(server, 10)
    assert clock.now() == pytest.approx(11.0)
    read(server, 10)
    assert clock.now() == pytest.approx(16.0)


def test_a_throttle_that_is_lifted_lets_the_rest_pass_at_once(timed, clock):
    client, server = timed.pair()
    timed.relay.to_server.throttle(1)
    client.sendall(bytes(1000))
    read(server, 5)
    timed.relay.to_server.throttle(None)
    assert read(server, 995) == bytes(995)
    assert clock.now() == pytest.approx(5.0)
    assert clock.timers() == []


def test_a_throttle_that_is_changed_is_exact_from_then_on(timed, clock):
    client, server = timed.pair()
    timed.relay.to_server.throttle(1)
    client.sendall(bytes(100))
    clock.sleep(0.5)
    timed.relay.to_server.throttle(10)
    read(server, 100)
    assert clock.now() == pytest.approx(10.5)


def test_fake_time_waits_for_receivers_that_are_still_taking_bytes(timed, clock):
    timed.pair()
    watches = clock._stillness._watches
    assert [watch.pending() for watch in watches] == [0, 0]
    timed.relay.close()
    assert not watches


def test_a_throttle_makes_the_sender_wait(clock, tmp_path):
    # The kernel holds less for a Unix socket.
    place = Place("unix", tmp_path, clock=clock, capacity_bytes=10_000)
    client, server = place.pair()
    place.relay.to_server.throttle(MEGABYTE)
    receiver = gevent.spawn(rest, server)
    sender = start_sending(client, bytes(2 * MEGABYTE))
    assert sender.get() is None
    assert clock.now() > 1.0
    client.close()
    assert len(receiver.get()) == 2 * MEGABYTE
    assert clock.now() == pytest.approx(2.0)
    place.close()


# Drop, stall, half-close


def test_what_is_dropped_is_lost_and_nobody_notices(place):
    client, server = place.pair()
    place.relay.to_server.drop()
    client.sendall(bytes(3 * MEGABYTE))
    client.close()
    assert is_quiet(server)
    server.sendall(b"still there?")
    assert is_quiet(server)
    assert place.relay.to_server.received_bytes == 3 * MEGABYTE
    assert place.relay.to_server.delivered_bytes == 0


def test_a_drop_has_a_direction_and_an_end(place):
    client, server = place.pair()
    place.relay.to_server.drop()
    client.sendall(b"lost")
    server.sendall(b"heard")
    assert read(client, 5) == b"heard"
    settle()
    place.relay.to_server.restore()
    client.sendall(b"again")
    client.close()
    assert rest(server) == b"again"


def test_what_is_held_when_the_dropping_begins_is_lost_too(timed, clock):
    client, server = timed.pair()
    timed.relay.to_server.delay(1.0)
    client.sendall(b"lost")
    settle()
    timed.relay.to_server.drop()
    clock.sleep(2.0)
    timed.relay.to_server.restore()
    client.sendall(b"heard")
    assert read(server, 5) == b"heard"


def test_a_stall_is_felt_by_the_sender_and_loses_nothing(place):
    client, server = place.pair()
    place.relay.to_server.stall()
    data = os.urandom(20 * MEGABYTE)
    sender = start_sending(client, data)
    assert is_quiet(server)
    assert not sender.ready()
    assert place.relay.to_server.held_bytes <= READ_BYTES
    server.sendall(b"other way")
    assert read(client, 9) == b"other way"
    place.relay.to_server.resume()
    assert read(server, len(data)) == data
    assert sender.get() is None


def test_a_receiver_that_does_not_read_is_felt_by_the_sender(place):
    client, server = place.pair()
    sender = start_sending(client, bytes(20 * MEGABYTE))
    assert not sender.ready()
    assert place.relay.to_server.held_bytes == CAPACITY_BYTES
    assert read(server, 20 * MEGABYTE) == bytes(20 * MEGABYTE)
    assert sender.get() is None


def test_small_buffers_make_a_stall_felt_early(tmp_path):
    place = Place("tcp", tmp_path, socket_buffer_bytes=4096)
    client, _ = place.pair()
    place.relay.to_server.stall()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    assert not start_sending(client, bytes(100_000)).ready()
    place.close()


def test_a_stall_may_be_there_before_the_connection(place):
    place.relay.both.stall()
    client, server = place.pair()
    client.sendall(b"there")
    assert is_quiet(server)
    place.relay.both.resume()
    assert read(server, 5) == b"there"


def test_a_stall_hides_the_end_until_it_is_over(place):
    client, server = place.pair()
    place.relay.to_server.stall()
    client.close()
    assert is_quiet(server)
    place.relay.to_server.resume()
    assert rest(server) == b""


def test_a_half_close_ends_one_direction_only(place):
    client, server = place.pair()
    place.relay.to_client.half_close()
    assert rest(client) == b""
    server.sendall(b"unheard")
    client.sendall(b"heard")
    assert read(server, 5) == b"heard"
    settle()
    assert place.relay.to_client.received_bytes == 7
    assert place.relay.to_client.delivered_bytes == 0
    client.close()
    server.close()
    assert place.all_over()


# Cut and reset


@pytest.mark.parametrize("count", [0, 1, 999])
def test_a_cut_comes_after_exactly_so_many_bytes(place, count):
    client, server = place.pair()
    client.sendall(b"before")
    read(server, 6)
    place.relay.to_server.cut_after(count)
    client.sendall(bytes(1000))
    assert rest(server) == bytes(count)
    assert rest(client) == b""


def test_a_cut_in_one_direction_lets_any_number_pass_in_the_other(place):
    client, server = place.pair()
    place.relay.to_server.cut_after(10)
    server.sendall(bytes(1000))
    assert read(client, 1000) == bytes(1000)
    client.sendall(bytes(4))
    assert read(server, 4) == bytes(4)
    client.sendall(bytes(7))
    assert rest(server) == bytes(6)
    assert rest(client) == b""
    # Until both have closed, what they send is taken and thrown away.
    for sock in (client, server):
        sock.sendall(bytes(100_000))
        settle()
        sock.sendall(bytes(100_000))
    settle()
    client.close()
    settle()
    assert place.relay.live == place.relay.connections
    server.sendall(bytes(100_000))
    server.close()
    assert place.all_over()


def test_a_cut_counts_from_the_first_byte_of_each_later_connection(place):
    place.relay.to_client.cut_after(3)
    for _ in range(2):
        client, server = place.pair()
        server.sendall(b"frame")
        assert rest(client) == b"fra"


def test_a_cut_that_is_called_off_does_not_come(place):
    client, server = place.pair()
    place.relay.to_server.cut_after(3)
    place.relay.to_server.restore()
    client.sendall(b"whole")
    assert read(server, 5) == b"whole"


def test_a_cut_may_be_a_reset(tcp):
    client, server = tcp.pair()
    tcp.relay.to_server.cut_after(3, reset=True)
    client.sendall(b"frame")
    assert read(server, 3) == b"fra"
    assert_reset(server)
    assert_reset(client)
    assert tcp.all_over()


def test_a_reset_reaches_both_sides(tcp):
    client, server = tcp.pair()
    tcp.relay.both.stall()
    client.sendall(b"held")
    settle()
    tcp.relay.reset()
    tcp.relay.both.resume()
    assert_reset(client)
    assert_reset(server)
    assert tcp.all_over()
    client, server = tcp.pair()
    client.sendall(b"new")
    assert read(server, 3) == b"new"


def test_ending_what_has_ended_is_no_error(tcp):
    client, server = tcp.pair()
    (one,) = tcp.relay.connections
    one.both.stall()
    settle()
    for sock in (client, server):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        sock.close()
    settle()
    assert tcp.relay.live == [one]
    one.both.half_close()
    settle()
    for _ in range(2):
        one.cut()
        settle()
        one.reset()
        one.close()
    assert tcp.relay.live == []


def test_over_unix_sockets_a_reset_is_an_end(tmp_path):
    place = Place("unix", tmp_path)
    client, server = place.pair()
    place.relay.reset()
    assert rest(client) == rest(server) == b""
    place.close()


def test_a_cut_of_everything_is_an_end_of_file_whatever_is_unread(place):
    client, server = place.pair()
    place.relay.both.stall()
    client.sendall(bytes(1000))
    server.sendall(bytes(1000))
    settle()
    place.relay.cut()
    assert rest(client) == rest(server) == b""
    client.close()
    server.close()
    assert place.all_over()


def test_one_connection_is_cut_and_the_other_lives(place):
    first, second = place.pair(), place.pair()
    place.relay.connections[0].cut()
    assert rest(first[0]) == rest(first[1]) == b""
    second[0].sendall(b"alive")
    assert read(second[1], 5) == b"alive"


# New connections


def test_refused_is_refused_and_the_port_stays_the_same(place, kind):
    client, server = place.pair()
    address = place.relay.address
    for _ in range(3):
        place.relay.refuse()
        place.relay.refuse()
        for _ in range(2):
            with pytest.raises(ConnectionRefusedError):
                place.dial()
            settle()
        place.relay.admit()
        assert place.relay.address == address
        place.pair()
    client.sendall(b"was connected before")
    assert read(server, 20) == b"was connected before"


def test_nobody_else_gets_the_port_while_it_is_refused(tcp):
    tcp.relay.refuse()
    with gevent_socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(tcp.relay.address)


def test_who_waits_to_be_accepted_is_turned_away(tcp):
    sock = gevent_socket.socket()
    # In one turn, so that the relay has had none to accept it.
    sock.setblocking(False)
    with pytest.raises(BlockingIOError):
        sock.connect(tcp.relay.address)
    tcp.relay.refuse()
    sock.setblocking(True)
    assert_reset(sock)
    assert tcp.relay.connections == []
    sock.close()


def test_mute_accepts_takes_everything_and_says_nothing(place):
    place.relay.mute()
    client = place.dial()
    client.sendall(bytes(3 * MEGABYTE))
    assert is_quiet(client)
    assert is_quiet_listener(place.server)
    (one,) = place.relay.live
    assert one.to_server.received_bytes == 3 * MEGABYTE
    # There is no server that this could keep anything from.
    one.both.drop()
    client.close()
    assert place.all_over()
    place.relay.admit()
    client, server = place.pair()
    client.sendall(b"x")
    assert read(server, 1) == b"x"


def is_quiet_listener(server: GeventSocket) -> bool:
    """Whether nobody waits to be accepted."""
    settle()
    server.settimeout(0.0)
    try:
        server.accept()[0].close()
    except BlockingIOError:
        return True
    finally:
        server.settimeout(None)
    return False


def test_a_mute_connection_can_be_cut(place):
    place.relay.mute()
    client = place.dial()
    settle()
    place.relay.cut()
    assert rest(client) == b""


def test_hang_up_ends_each_new_connection_at_once(place):
    old = place.pair()
    place.relay.hang_up()
    client = place.dial()
    client.sendall(b"hello?")
    assert rest(client) == b""
    assert is_quiet_listener(place.server)
    old[0].sendall(b"x")
    assert read(old[1], 1) == b"x"


def test_hang_up_may_be_a_reset(tcp):
    tcp.relay.hang_up(reset=True)
    assert_reset(tcp.dial())


def test_after_refusing_mute_and_hang_up_listen_again(tcp):
    tcp.relay.refuse()
    tcp.relay.mute()
    assert is_quiet(tcp.dial())
    tcp.relay.refuse()
    tcp.relay.hang_up()
    assert rest(tcp.dial()) == b""


@pytest.mark.parametrize("how", [RelayedConnection.cut, RelayedConnection.reset, RelayedConnection.close])
def test_a_connection_that_is_still_being_made_can_be_ended(tmp_path, how):
    place = Place("unix", tmp_path)
    # A Unix listener whose queue is full keeps whoever connects waiting.
    place.server.listen(0)
    fillers = [connect_unix(str(tmp_path / "server"), default_clock)]
    client = place.dial()
    settle()
    (one,) = place.relay.live
    assert "relay dials for connection 1 to server" in [each.name for each in place.greenlets if not each.dead]
    how(one)
    assert rest(client) == b""
    client.close()
    settle()
    assert place.relay.live == []
    server, _ = place.server.accept()
    assert is_quiet_listener(place.server)
    for sock in (server, *fillers):
        sock.close()
    place.close()


def test_a_connection_to_the_server_that_comes_too_late_is_closed(tcp):
    client = tcp.dial()
    settle()
    (one,) = tcp.relay.live
    near, far = gevent_socket.socketpair()

    def connect() -> GeventSocket:
        one.close()
        return near

    one._connected = False
    one._start(connect)
    assert far.recv(1) == b""
    far.close()
    client.close()


def test_a_write_that_ends_after_the_connection_counts_for_nothing(tcp):
    tcp.pair()
    flow = tcp.relay.connections[0].to_server

    class Sink:
        def send(self, data: memoryview) -> int:
            flow.stop()
            return len(data)

    flow._queue.append(_Parcel(b"data", 0.0))
    flow._deliver(Sink(), 4)
    assert (flow.delivered, flow.held) == (0, 0)


# Whom a switch is for


def test_switches_of_the_relay_hold_for_connections_to_come(timed, clock):
    timed.relay.to_server.delay(1.5)
    client, server = timed.pair()
    client.sendall(b"x")
    read(server, 1)
    assert clock.now() == 1.5
    timed.relay.both.restore()
    client, server = timed.pair()
    client.sendall(b"x")
    read(server, 1)
    assert clock.now() == 1.5


def test_switches_of_a_connection_hold_for_it_alone(place):
    first, second = place.pair(), place.pair()
    place.relay.connections[0].both.stall()
    for client, server in (first, second):
        client.sendall(b"there")
        server.sendall(b"back")
    assert read(second[1], 5) == b"there"
    assert read(second[0], 4) == b"back"
    assert is_quiet(first[0])
    assert is_quiet(first[1])
    third = place.pair()
    third[0].sendall(b"x")
    assert read(third[1], 1) == b"x"


def test_switches_work_together(timed, clock):
    client, server = timed.pair()
    timed.relay.to_server.delay(2.0)
    timed.relay.to_server.throttle(10)
    timed.relay.to_server.cut_after(30)
    client.sendall(bytes(50))
    assert rest(server) == bytes(30)
    assert clock.now() == pytest.approx(5.0)


# Places


@pytest.mark.parametrize(
    "target,listens,shown",
    [
        ("ws://127.0.0.1:9/chat?room=1", None, "ws://127.0.0.1:{port}/chat?room=1"),
        ("ws://user:word@example.com:9/", None, "ws://user:word@127.0.0.1:{port}/"),
        ("wss://localhost:9/x", None, "wss://localhost:{port}/x"),
        ("ws+unix:///run/s:/x?y", None, "ws+unix://{path}:/x?y"),
        ("ws+unix:///run/s:/x", ("127.0.0.1", 0), "ws://localhost:{port}/x"),
        (("127.0.0.1", 9), None, "ws://127.0.0.1:{port}/"),
        (("::1", 9), ("::1", 0), "ws://[::1]:{port}/"),
        ("/run/s", None, "ws+unix://{path}:/"),
    ],
)
def test_its_url_is_that_of_the_target_with_its_own_place(target, listens, shown):
    with Relay(target, listen=listens) as relay:
        address = relay.address
        if isinstance(address, str):
            assert relay.url == shown.format(path=address)
        else:
            assert relay.url == shown.format(port=address[1])


def test_a_unix_path_may_be_chosen_and_is_removed(tmp_path):
    path = tmp_path / "relay"
    with Relay(("127.0.0.1", 9), listen=str(path)) as relay:
        assert relay.address == str(path)
        assert path.is_socket()
    assert not path.exists()


def test_a_file_that_is_there_already_is_not_touched(tmp_path):
    path = tmp_path / "taken"
    path.write_text("mine")
    with pytest.raises(OSError, match="in use"):
        Relay(("127.0.0.1", 9), listen=str(path))
    assert path.read_text() == "mine"


def test_a_directory_that_it_made_is_removed():
    with Relay("/run/s") as relay:
        folder = os.path.dirname(relay.address)
        assert os.listdir(folder) == ["s"]
    assert not os.path.exists(folder)


@pytest.mark.leaks
def test_closing_leaves_nothing(kind, tmp_path):
    place = Place(kind, tmp_path)
    started = []
    gevent.Greenlet.add_spawn_callback(started.append)
    try:
        place.pair()
        place.relay.both.stall()
        place.pair()[0].sendall(b"x")
        place.relay.mute()
        place.dial()
        settle()
    finally:
        gevent.Greenlet.remove_spawn_callback(started.append)
    assert len(started) >= 10
    place.relay.close()
    place.relay.close()
    settle()
    assert all(greenlet.dead for greenlet in started)
    place.close()


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
def test_what_is_no_delay(tcp, seconds):
    with pytest.raises(ValueError, match="finite"):
        tcp.relay.both.delay(seconds)


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf")])
def test_what_is_no_rate(tcp, rate):
    with pytest.raises(ValueError, match="above 0"):
        tcp.relay.both.throttle(rate)


def test_what_is_no_count(tcp):
    with pytest.raises(ValueError, match="negative"):
        tcp.relay.both.cut_after(-1)
    with pytest.raises(ValueError, match="at least 1"):
        Relay(("127.0.0.1", 9), capacity_bytes=0)


def test_it_works_in_real_time(tcp):
    client, server = tcp.pair()
    tcp.relay.to_server.delay(0.01)
    tcp.relay.to_server.throttle(10_000)
    for _ in itertools.repeat(None, 3):
        client.sendall(bytes(100))
        assert read(server, 100) == bytes(100)
