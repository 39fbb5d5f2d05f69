"""Dialling over real sockets against scripted servers: what is sent, what is made of each answer, what is left open.

Fake time passes only while nothing can happen, so a deadline of ten seconds takes milliseconds.
"""

from __future__ import annotations

import errno
import socket
import ssl
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import gevent
import pytest
from gevent import socket as gevent_socket
from gevent import ssl as gevent_ssl
from zope.interface.verify import verifyObject

from muxws_green.errors import CodecMismatch, HandshakeRefused, TransportUnsupportedError, TransportUrlError
from muxws_green.interfaces import IDialer
from muxws_green.runtime.clock import default_clock
from muxws_green.testing.clock import FakeClock, settle
from muxws_green.transports.deadline import Deadline
from muxws_green.transports.dialer import Dialer
from muxws_green.transports.network import _resolve, connect_tcp
from muxws_green.transports.proxy import HttpProxy, ProxyRefused, open_tunnel
from muxws_green.transports.socket import SocketTransport
from muxws_green.transports.urls import parse_url
from muxws_green.websocket import HandshakeError
from tests.transports.raw import (
    BINARY,
    PATIENCE,
    PING,
    PONG,
    TEXT,
    authority,
    client_context,
    frame,
    server_context,
    unix_pair,
)
from tests.transports.scripted import Connection, FullListener, Script, Scripted, Tunnel

pytestmark = pytest.mark.leaks

KINDS = ["tcp", "tls", "unix"]

full_queues = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a full queue refuses, or has no such size")


@pytest.fixture
def clock() -> Iterator[FakeClock]:
    with FakeClock() as clock:
        yield clock


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("ws", "wss", "http", "https", "all", "no"):
        monkeypatch.delenv(f"{kind}_proxy", raising=False)
        monkeypatch.delenv(f"{kind}_proxy".upper(), raising=False)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Scripted]]:
    """Start scripted servers; they stop with the test."""
    servers: list[Scripted] = []

    def start(*scripts: Script, kind: str = "tcp", context: gevent_ssl.SSLContext | None = None) -> Scripted:
        servers.append(Scripted(*scripts, kind=kind, folder=tmp_path, context=context))
        return servers[-1]

    yield start
    for server in servers:
        server.__exit__(None, None, None)


def dialer(url: str, **options: Any) -> Dialer:
    defaults: dict[str, Any] = {"subprotocols": ["muxws.v1.json"], "clock": default_clock, "max_message_bytes": 131_072}
    if url.startswith("wss:"):
        defaults["ssl_context"] = client_context()
    return Dialer(url, **(defaults | options))


def dial(url: str, **options: Any) -> SocketTransport:
    with gevent.Timeout(PATIENCE):
        return dialer(url, **options).dial()


def failure(kind: type[BaseException], url: str, **options: Any) -> Any:
    with pytest.raises(kind) as caught:
        dial(url, **options)
    assert type(caught.value) is kind
    return caught.value


def upgrade(connection: Connection) -> None:
    connection.upgrade()


def mute(connection: Connection) -> None:
    """Take everything, say nothing."""


def test_it_is_a_dialer():
    assert verifyObject(IDialer, dialer("ws://localhost/"))


# What a dial that succeeds sends and gives


@pytest.mark.parametrize("kind", KINDS)
def test_a_dial_gives_an_open_transport(serve, kind):
    server = serve(upgrade, kind=kind)
    transport = dial(server.url)
    raw = server.connections[0].raw
    raw.send(TEXT, b"hello")
    assert transport.receive() == ["hello"]
    transport.send([b"back"], True)
    (sent,) = raw.frames(1)
    assert (sent.opcode, sent.payload, sent.masked) == (BINARY, b"back", True)
    assert server.connections[0].request.startswith(b"GET /route HTTP/1.1\r\n")
    assert server.connections[0].header("Sec-WebSocket-Protocol") == "muxws.v1.json"
    assert server.connections[0].header("Sec-WebSocket-Extensions") is None
    transport.abort(1000)
    assert raw.frames(1)[0].close_code == 1000


def test_entries_headers_and_credentials_go_into_the_request(serve):
    server = serve(upgrade)
    transport = dial(
        f"ws://Aladdin:open%20sesame@localhost:{server.port}/ws?tenant=42",
        subprotocols=["muxws.v1.json", "bearer.abc"],
        headers=[("Cookie", "a=1"), ("X-Trace", "1"), ("X-Trace", "2")],
    )
    (connection,) = server.connections
    assert connection.request.startswith(b"GET /ws?tenant=42 HTTP/1.1\r\n")
    assert connection.header("Sec-WebSocket-Protocol") == "muxws.v1.json, bearer.abc"
    assert connection.header("Authorization") == "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="
    assert connection.header("Host") == f"localhost:{server.port}"
    assert connection.header("Cookie") == "a=1"
    assert b"X-Trace: 1\r\nX-Trace: 2\r\n" in connection.request
    transport.abort()


def test_a_mapping_of_headers_may_replace_host_and_authorization(serve):
    server = serve(upgrade)
    headers = {"Host": "app.example", "Authorization": "Bearer t"}
    dial(f"ws://u:p@127.0.0.1:{server.port}/", headers=headers).abort()
    assert server.connections[0].header("Host") == "app.example"
    assert server.connections[0].header("Authorization") == "Bearer t"
    assert server.connections[0].request.count(b"Authorization") == 1


def test_dialers_that_ask_for_the_same_share_the_request():
    first = dialer("ws://host.example/route")
    assert dialer("ws://host.example/route")._request is first._request
    assert dialer("ws://host.example/other")._request is not first._request
    assert dialer("ws://host.example/route", subprotocols=["muxws.v1.msgpack"])._request is not first._request


@pytest.mark.parametrize(
    "url, options",
    [
        ("ws://user:secret@host.example/", {}),
        ("ws://host.example/?token=secret", {}),
        ("ws://host.example/", {"subprotocols": ["muxws.v1.json", "bearer.secret"]}),
        ("ws://host.example/", {"headers": {"Cookie": "secret"}}),
        ("ws://host.example/", {"headers": iter([("Authorization", "secret")])}),
    ],
)
def test_a_request_that_may_hold_secrets_goes_with_its_dialer(url, options):
    dialer("ws://host.example/")
    request = weakref.ref(dialer(url, **options)._request)
    assert request() is None


def test_a_request_goes_out_as_its_own_dialer_was_told(serve):
    server = serve(*[upgrade] * 4)
    url = f"ws://127.0.0.1:{server.port}/ws"
    for options in ({}, {"headers": {"X-Trace": "1"}}, {}, {"headers": {"X-Trace": "2"}}):
        dial(url, **options).abort()
    assert [connection.header("X-Trace") for connection in server.connections] == [None, "1", None, "2"]


def test_each_dial_is_a_new_handshake_on_a_new_socket(serve):
    server = serve(upgrade)
    again = dialer(server.url)
    for _ in range(2):
        again.dial().abort()
    keys = {connection.header("Sec-WebSocket-Key") for connection in server.connections}
    assert len(keys) == 2


@pytest.mark.case("C49")
@pytest.mark.parametrize("kind", KINDS)
def test_frames_in_the_packet_of_the_answer_are_received(serve, kind):
    behind = (
        frame(PING, b"p", masked=False) + frame(TEXT, b"first", masked=False) + frame(TEXT, b"second", masked=False)
    )
    server = serve(lambda connection: connection.upgrade(behind=behind[:-3]), kind=kind)
    transport = dial(server.url)
    with gevent.Timeout(PATIENCE):
        assert transport.receive() == ["first"]
        server.connections[0].sock.sendall(behind[-3:])
        assert transport.receive() == ["second"]
    transport.send([], False)
    assert server.connections[0].raw.frames(1)[0][:2] == (PONG, b"p")
    transport.abort()


# Answers that are refusals


@pytest.mark.case("C40")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("status", [200, 204, 302, 401, 403, 404, 426, 500, 503])
def test_every_other_status_is_a_refusal_that_shows_it(serve, kind, status):
    head = f"HTTP/1.1 {status} Whatever\nLocation: ws://127.0.0.1:1/\nContent-Length: 1000000\nX-Reason: no"
    server = serve(lambda connection: connection.answer(head, "a body that is not all here"), kind=kind)
    error = failure(HandshakeRefused, server.url)
    assert error.status == status
    assert ("X-Reason", "no") in error.headers
    assert isinstance(error, OSError)
    # The error, and with its traceback the socket, is still held: what closed it was the dialer.
    assert server.all_ended()
    assert len(server.connections) == 1


def test_400_is_a_codec_mismatch(serve):
    server = serve(lambda connection: connection.answer("HTTP/1.1 400 Bad Request\nContent-Length: 0"))
    error = failure(CodecMismatch, server.url, subprotocols=["muxws.v1.json", "bearer.secret"])
    assert error.configured == "json"
    assert "json" in error.available
    assert "MUXWS_CODEC" in str(error)
    assert "secret" not in str(error)
    assert server.all_ended()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("selected", [None, "muxws.v1.msgpack", "MUXWS.V1.JSON", "bearer.secret", "muxws.v1.json, x"])
def test_a_101_with_another_subprotocol_is_closed_with_1008_and_a_mismatch(serve, kind, selected):
    server = serve(lambda connection: connection.upgrade(selected), kind=kind)
    error = failure(CodecMismatch, server.url, subprotocols=["muxws.v1.json", "bearer.secret"])
    assert "secret" not in str(error)
    assert ("no subprotocol" in str(error)) == (selected is None)
    (close,) = server.connections[0].raw.frames(1)
    assert (close.close_code, close.masked) == (1008, True)
    assert server.all_ended()


def bad_accept(connection: Connection) -> None:
    connection.answer(
        "HTTP/1.1 101 Switching Protocols\nUpgrade: websocket\nConnection: Upgrade\nSec-WebSocket-Accept: x\n"
        "Sec-WebSocket-Protocol: muxws.v1.json"
    )


def half_a_status_line(connection: Connection) -> None:
    connection.read_request()
    connection.sock.sendall(b"HTTP/1.1 10")
    connection.sock.shutdown(socket.SHUT_WR)


def goes_away(connection: Connection) -> None:
    connection.read_request()
    connection.sock.shutdown(socket.SHUT_WR)


def another_protocol(connection: Connection) -> None:
    connection.read_request()
    connection.sock.sendall(b"220 mail.example ESMTP\r\n")


def endless_head(connection: Connection) -> None:
    connection.read_request()
    connection.sock.sendall(b"HTTP/1.1 101 Switching Protocols\r\n" + b"X: y\r\n" * 20_000)


@pytest.mark.parametrize("script", [bad_accept, half_a_status_line, goes_away, another_protocol, endless_head])
def test_what_is_no_answer_is_an_error_of_the_network(serve, script):
    server = serve(script)
    error = failure(HandshakeError, server.url)
    assert isinstance(error, OSError)
    assert server.all_ended()


def test_a_reset_is_an_error_of_the_network(serve):
    server = serve(lambda connection: (connection.read_request(), connection.raw.reset()))
    failure(ConnectionResetError, server.url)


# The deadline


@pytest.mark.case("C36")
@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_never_answers_costs_the_deadline(clock, serve, kind):
    server = serve(mute, kind=kind)
    error = failure(TimeoutError, server.url, clock=clock, open_timeout=10.0)
    assert clock.now() == 10.0
    assert "within 10.0 seconds" in str(error)
    assert server.all_ended()
    assert clock.timers() == []


@pytest.mark.case("C36")
def test_a_server_that_dribbles_costs_the_deadline(clock, serve):
    def dribble(connection: Connection) -> None:
        connection.read_request()
        try:
            for byte in b"HTTP/1.1 101 Switching Protocols\r\nX: " + b"y" * 1000:
                clock.sleep(0.2)
                connection.sock.sendall(bytes([byte]))
        except OSError:
            pass

    server = serve(dribble)
    failure(TimeoutError, server.url, clock=clock, open_timeout=10.0)
    assert clock.now() == 10.0
    assert server.all_ended()


@pytest.mark.case("C36")
def test_half_a_status_line_costs_the_deadline(clock, serve):
    def half(connection: Connection) -> None:
        connection.read_request()
        connection.sock.sendall(b"HTTP/1.1 10")

    server = serve(half)
    failure(TimeoutError, server.url, clock=clock, open_timeout=3.0)
    assert clock.now() == 3.0
    assert server.all_ended()


def test_a_tls_handshake_that_is_not_answered_costs_the_deadline(clock, serve):
    server = serve(mute)
    failure(TimeoutError, server.url.replace("ws:", "wss:"), clock=clock)
    assert clock.now() == 10.0
    assert server.all_ended()


def test_a_proxy_that_is_mute_costs_the_deadline(clock, serve):
    proxy = serve(mute)
    failure(TimeoutError, "ws://host.example/", clock=clock, proxy=f"http://127.0.0.1:{proxy.port}")
    assert clock.now() == 10.0
    assert proxy.all_ended()


def test_a_resolver_that_does_not_answer_costs_the_deadline(monkeypatch, clock):
    monkeypatch.setattr(gevent_socket, "getaddrinfo", lambda *arguments: clock.sleep(3600.0))
    failure(TimeoutError, "ws://host.example/", clock=clock)
    assert clock.now() == 10.0


@full_queues
def test_a_connection_that_is_not_taken_costs_the_deadline(clock):
    listener = FullListener()
    failure(TimeoutError, f"ws://127.0.0.1:{listener.address[1]}/", clock=clock)
    assert clock.now() == 10.0
    listener.close()


@pytest.fixture
def default_timeout() -> Iterator[Callable[[float], None]]:
    before = socket.getdefaulttimeout()
    yield socket.setdefaulttimeout
    socket.setdefaulttimeout(before)


@full_queues
def test_the_default_timeout_of_sockets_is_not_a_deadline(clock, default_timeout):
    listener = FullListener()
    default_timeout(0.0)
    failure(TimeoutError, f"ws://127.0.0.1:{listener.address[1]}/", clock=clock)
    assert clock.now() == 10.0
    listener.close()


def test_an_address_that_nothing_leads_to_fails_at_once(clock):
    # The kernel says so in the call itself, and sends nothing.
    error = failure(OSError, "ws://255.255.255.255:9/", clock=clock)
    assert error.errno in (errno.ENETUNREACH, errno.EACCES)
    assert clock.now() == 0.0


def test_a_dialled_socket_has_no_timeout(clock, default_timeout):
    default_timeout(5.0)
    with gevent_socket.create_server(("127.0.0.1", 0)) as listener, Deadline(clock, 10.0, "late") as deadline:
        port = listener.getsockname()[1]
        with connect_tcp("127.0.0.1", port, clock, deadline) as sock, listener.accept()[0]:
            assert sock.gettimeout() is None


@full_queues
def test_a_unix_listener_that_takes_nobody_costs_the_deadline_and_no_spinning(tmp_path, clock):
    listener = FullListener(socket.AF_UNIX, str(tmp_path / "s"))
    failure(TimeoutError, f"ws+unix://{tmp_path}/s", clock=clock, open_timeout=1.0)
    assert clock.now() == 1.0
    listener.close()


@full_queues
def test_a_unix_listener_that_has_room_again_is_connected_to(tmp_path, clock):
    listener = FullListener(socket.AF_UNIX, str(tmp_path / "s"))

    def accept_late() -> Any:
        clock.sleep(0.4)
        for _ in range(listener.queued):
            listener.sock.accept()[0].close()
        sock = listener.sock.accept()[0]
        Connection(sock).upgrade()
        return sock

    server = gevent.spawn(accept_late)
    transport = dial(f"ws+unix://{tmp_path}/s", clock=clock)
    assert 0.4 <= clock.now() < 0.5
    transport.abort()
    server.get(timeout=PATIENCE).close()
    listener.close()


def test_without_a_deadline_the_callers_own_timeout_comes_out_as_itself(clock, serve):
    server = serve(mute)
    with pytest.raises(gevent.Timeout) as caught, gevent.Timeout(0.02) as mine:
        dialer(server.url, clock=clock, open_timeout=None).dial()
    assert caught.value is mine
    assert server.all_ended()


@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_closes_what_was_opened(serve, kind):
    server = serve(mute, kind=kind)
    outcome: list[BaseException] = []

    def attempt() -> None:
        try:
            dialer(server.url).dial()
        except BaseException as error:
            outcome.append(error)
            raise

    dialling = gevent.spawn(attempt)
    settle()
    thrown = gevent.GreenletExit("mine")
    dialling.kill(thrown, timeout=PATIENCE)
    assert outcome == [thrown]
    assert server.all_ended()


# Names and addresses


def addresses(*ports: int) -> list[Any]:
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in ports]


@pytest.fixture
def dead_port() -> Iterator[int]:
    """A port that refuses: bound, and not listened on."""
    with gevent_socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]


@pytest.mark.case("C39")
def test_a_dead_address_is_passed_over_and_names_are_resolved_on_each_dial(serve, monkeypatch, dead_port):
    first, second = serve(upgrade), serve(upgrade)
    asked: list[Any] = []
    answers = [addresses(dead_port, first.port), addresses(second.port)]

    def getaddrinfo(host: str, port: int, *rest: Any) -> Any:
        asked.append((host, port))
        return answers[len(asked) - 1]

    monkeypatch.setattr(gevent_socket, "getaddrinfo", getaddrinfo)
    again = dialer("ws://host.example:81/")
    again.dial().abort()
    assert (len(first.connections), len(second.connections)) == (1, 0)
    again.dial().abort()
    assert (len(first.connections), len(second.connections)) == (1, 1)
    assert asked == [("host.example", 81)] * 2
    assert first.connections[0].header("Host") == "host.example:81"


@full_queues
def test_an_address_that_does_not_answer_leaves_time_for_the_next(clock, serve, monkeypatch):
    silent = FullListener()
    server = serve(upgrade)
    found = addresses(silent.address[1], server.port)
    monkeypatch.setattr(gevent_socket, "getaddrinfo", lambda *arguments: found)
    dial("ws://host.example/", clock=clock, open_timeout=8.0).abort()
    assert clock.now() == 4.0
    silent.close()


def test_where_every_address_fails_the_last_failure_names_the_place(monkeypatch, dead_port):
    found = addresses(dead_port, dead_port)
    monkeypatch.setattr(gevent_socket, "getaddrinfo", lambda *arguments: found)
    error = failure(ConnectionRefusedError, "ws://u:secret@host.example:81/?secret")
    assert error.errno == errno.ECONNREFUSED
    assert "host.example (127.0.0.1) port 81" in str(error)
    assert len(error.__notes__) == 1
    assert "secret" not in str(error) + str(error.__notes__)


def test_an_unknown_name_is_the_resolvers_error_and_names_the_host(monkeypatch):
    def getaddrinfo(*arguments: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(gevent_socket, "getaddrinfo", getaddrinfo)
    error = failure(socket.gaierror, "ws://host.example/")
    assert "host.example" in error.__notes__[0]


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_an_address_is_not_given_to_the_resolver(monkeypatch, host, dead_port):
    def getaddrinfo(*arguments: Any) -> Any:
        raise AssertionError("the resolver was asked")

    monkeypatch.setattr(gevent_socket, "getaddrinfo", getaddrinfo)
    with pytest.raises(OSError, match=rf"port {dead_port}"):
        dial(f"ws://{host}:{dead_port}/")


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "203.0.113.255", "127.1", "0x7f.1", "127.0.0.01", "::1", "::ffff:192.0.2.1", "127.0.0.1\0x"]
)
def test_an_address_means_what_the_c_library_says(host):
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    assert list(_resolve(host, 81)) == socket.getaddrinfo(host, 81, 0, socket.SOCK_STREAM, 0, flags)


def test_a_missing_socket_file_is_named(tmp_path):
    error = failure(FileNotFoundError, f"ws+unix://{tmp_path}/nobody.sock:/?secret")
    assert "nobody.sock" in str(error)
    assert "secret" not in str(error)


# TLS


@pytest.mark.parametrize("kind", [gevent_ssl.SSLContext, ssl.SSLContext])
def test_every_kind_of_context_leaves_the_hub_to_others(serve, kind):
    """The server shares the hub: a client that blocked it would wait for ever, in the handshake or in `receive`."""
    names: list[str | None] = []
    context = gevent_ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority().issue_cert("localhost").configure_cert(context)
    context.sni_callback = lambda sock, name, context: names.append(name)
    server = serve(upgrade, kind="tls", context=context)
    transport = dial(server.url, ssl_context=client_context(kind))
    reader = gevent.spawn(transport.receive)
    settle()
    assert not reader.ready()
    server.connections[0].raw.send(TEXT, b"later")
    assert reader.get(timeout=PATIENCE) == ["later"]
    assert names == ["localhost"]
    transport.abort()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_the_certificate_must_be_for_the_host(serve, host):
    server = serve(upgrade, kind="tls", context=server_context("other.example"))
    error = failure(ssl.SSLCertVerificationError, f"wss://{host}:{server.port}/")
    assert isinstance(error, OSError)
    settle()
    assert (server.failed_handshakes, server.connections) == (1, [])


def test_an_address_may_be_in_the_certificate(serve):
    server = serve(upgrade, kind="tls")
    dial(f"wss://127.0.0.1:{server.port}/").abort()


def test_by_default_only_the_systems_authorities_are_trusted(serve):
    server = serve(upgrade, kind="tls")
    failure(ssl.SSLCertVerificationError, server.url, ssl_context=None)
    settle()
    assert server.failed_handshakes == 1


def test_a_client_certificate_is_shown(serve):
    context = gevent_ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    authority().issue_cert("localhost").configure_cert(context)
    authority().configure_trust(context)
    server = serve(upgrade, kind="tls", context=context)
    with pytest.raises(OSError, match=r"(?i)handshake|certificate|closed|reset"):
        dial(server.url)
    mine = client_context()
    authority().issue_cert("client@example.org").configure_cert(mine)
    dial(server.url, ssl_context=mine).abort()
    assert server.connections[0].sock.getpeercert() != {}


def test_a_server_without_tls_is_an_error_of_the_network(serve):
    def plain(connection: Connection) -> None:
        connection.sock.recv(4096)
        connection.sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    server = serve(plain)
    with pytest.raises(ssl.SSLError) as caught:
        dial(server.url.replace("ws:", "wss:"))
    assert isinstance(caught.value, OSError)
    assert server.all_ended()


# Proxies


def tunnel_to(server: Scripted) -> Script:
    def script(connection: Connection) -> None:
        connection.answer("HTTP/1.1 200 Connection established\nX-Proxy: yes")
        Tunnel(connection, server.port)

    return script


@pytest.mark.parametrize("kind", ["tcp", "tls"])
def test_a_proxy_is_asked_for_a_tunnel_and_everything_goes_through_it(serve, kind):
    server = serve(upgrade, kind=kind)
    proxy = serve(tunnel_to(server))
    transport = dial(
        f"{server.url}?token=secret",
        proxy=f"http://Aladdin:open%20sesame@localhost:{proxy.port}",
        headers={"Authorization": "Bearer secret"},
    )
    (connection,) = proxy.connections
    place = f"localhost:{server.port}"
    assert connection.request.split(b"\r\n\r\n")[0].decode().split("\r\n") == [
        f"CONNECT {place} HTTP/1.1",
        f"Host: {place}",
        "Proxy-Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==",
    ]
    assert server.connections[0].header("Authorization") == "Bearer secret"
    assert server.connections[0].header("Proxy-Authorization") is None
    server.connections[0].raw.send(TEXT, b"through")
    assert transport.receive() == ["through"]
    transport.abort()
    assert proxy.all_ended()


@pytest.mark.parametrize("status", [301, 400, 403, 407, 502])
def test_a_proxy_that_refuses_is_an_error_that_says_who(serve, status):
    head = f"HTTP/1.1 {status} No\nProxy-Authenticate: Basic realm=x"
    proxy = serve(lambda connection: connection.answer(head, "<html>"))
    error = failure(ProxyRefused, "wss://host.example/", proxy=f"http://u:secret@127.0.0.1:{proxy.port}")
    assert error.status == status
    assert error.headers == [("Proxy-Authenticate", "Basic realm=x")]
    assert "proxy" in str(error)
    assert "secret" not in str(error)
    assert isinstance(error, HandshakeRefused)
    assert proxy.all_ended()


@pytest.mark.parametrize("script", [half_a_status_line, goes_away, another_protocol, endless_head])
def test_a_proxy_that_does_not_speak_http_is_an_error_of_the_network(serve, script):
    proxy = serve(script)
    if script is another_protocol:
        proxy.scripts = [lambda connection: connection.answer("220 mail.example ESMTP")]
    if script is endless_head:
        proxy.scripts = [lambda connection: connection.answer("HTTP/1.1 200 OK\n" + "X: y\n" * 20_000)]
    error = failure(HandshakeError, "ws://host.example/", proxy=f"http://127.0.0.1:{proxy.port}")
    assert "proxy" in str(error)
    assert proxy.all_ended()


def test_nothing_behind_the_head_of_the_proxys_answer_is_read():
    near, far = unix_pair()
    near.settimeout(PATIENCE)
    target = parse_url("ws://host.example/")
    far.sendall(b"HTTP/1.1 200 OK\r\nX: y\r\n\r\nbehind")
    open_tunnel(near, HttpProxy("p", 1), target)
    assert near.recv(100) == b"behind"
    asking = gevent.spawn(open_tunnel, near, HttpProxy("p", 1), target)
    for piece in (b"HTTP/1.0 299 OK\r\nX: y", b"\r", b"\n", b"\r", b"\nbehind"):
        settle()
        far.sendall(piece)
    asking.get(timeout=PATIENCE)
    assert near.recv(100) == b"behind"
    near.close()
    far.close()


@pytest.mark.case("C57")
@pytest.mark.parametrize("proxy", [None, False])
def test_the_environment_is_ignored_unless_asked_for(serve, monkeypatch, proxy):
    for name in ("http_proxy", "https_proxy", "all_proxy", "ws_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    server = serve(upgrade)
    dial(server.url, proxy=proxy).abort()
    assert len(server.connections) == 1


def test_the_environment_is_used_when_asked_for(serve, monkeypatch):
    server = serve(upgrade)
    proxy = serve(tunnel_to(server))
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
    dial(server.url, proxy=True).abort()
    assert len(proxy.connections) == 1
    monkeypatch.setenv("no_proxy", "localhost")
    dial(server.url, proxy=True).abort()
    assert len(proxy.connections) == 1


# What the constructor refuses


@pytest.mark.parametrize(
    "url, options, error, message",
    [
        ("http://u:secret@host/", {}, TransportUrlError, "ws or wss"),
        ("wss+unix:///a.sock", {}, TransportUrlError, "wss.unix"),
        ("ws://host/", {"ssl_context": client_context()}, TransportUrlError, "wss"),
        ("ws+unix:///a.sock", {"ssl_context": client_context()}, TransportUrlError, "TLS"),
        ("wss://host/", {"ssl_context": ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)}, TransportUrlError, "TLS"),
        ("wss://.host/", {}, TransportUrlError, "host"),
        ("wss://host/", {"ssl_context": True}, TypeError, "SSLContext"),
        ("ws+unix:///a.sock", {"proxy": "http://p"}, TransportUrlError, "proxy"),
        ("ws://host/", {"proxy": "ftp://u:secret@p"}, TransportUrlError, "proxy"),
        ("ws://host/", {"proxy": "socks5://u:secret@p"}, TransportUnsupportedError, "socks5"),
        ("ws://host/", {"headers": {"X": "secret\r\nY: z"}}, ValueError, None),
        ("ws://host/", {"headers": {"X\n": "y"}}, ValueError, None),
        ("ws://host/", {"headers": {"Sec-WebSocket-Key": "x"}}, ValueError, None),
        ("ws://host/", {"headers": {"sec-websocket-protocol": "x"}}, ValueError, None),
        ("ws://host/", {"headers": {"Upgrade": "x"}}, ValueError, None),
        ("ws://host/", {"subprotocols": []}, ValueError, "subprotocols"),
        ("ws://host/", {"subprotocols": ["muxws.v1.json", "a b"]}, ValueError, None),
        ("ws://host/", {"open_timeout": 0}, ValueError, "open_timeout"),
        ("ws://host/", {"open_timeout": -1.0}, ValueError, "open_timeout"),
        ("ws://host/", {"open_timeout": float("nan")}, ValueError, "open_timeout"),
    ],
)
def test_options_that_cannot_work_are_refused_before_anything_is_opened(url, options, error, message):
    with pytest.raises(error, match=message) as caught:
        dialer(url, **options)
    assert "secret" not in str(caught.value)


def test_a_unix_url_with_the_environments_proxy_is_dialled_directly(serve, monkeypatch):
    monkeypatch.setenv("all_proxy", "http://127.0.0.1:1")
    server = serve(upgrade, kind="unix")
    dial(server.url, proxy=True).abort()


def test_a_place_on_this_machine_is_reached_without_a_turn_of_others():
    others: list[int] = []
    with closing(gevent_socket.create_server(("127.0.0.1", 0))) as listener:
        gevent.spawn(others.append, 1)
        with Deadline(default_clock, None, "") as deadline:
            sock = connect_tcp("127.0.0.1", listener.getsockname()[1], default_clock, deadline)
        assert others == []
        assert sock.gettimeout() is None
        sock.close()
