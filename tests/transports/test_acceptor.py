"""The acceptor by itself: what it says, to whom, and what it leaves in its host's hands."""

from __future__ import annotations

import contextlib
import gc
import io
import logging
import socket as stdlib_socket
import ssl
import struct
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from wsgiref.handlers import SimpleHandler

import gevent
import pytest
from gevent import socket
from gevent.event import Event
from gevent.pywsgi import WSGIServer
from hypothesis import given
from hypothesis import strategies as st

from muxws_green.errors import ConnectionClosed, OriginRefused, TransportUnsupportedError, UpgradeRefused
from muxws_green.protocol.origin import compile_policy
from muxws_green.runtime import roster
from muxws_green.transports.acceptor import (
    Upgraded,
    _answer_at_first_sight,
    _answer_at_length,
    refuse,
    upgrade,
)
from muxws_green.transports.hosts import find_host
from muxws_green.transports.hosts import geventwebsocket as gevent_websocket
from muxws_green.transports.hosts.gunicorn import GunicornHost
from tests.hosts.apps import CODEC, MAX_MESSAGE_BYTES, echo
from tests.hosts.client import HANDSHAKE, Answer, exchange, head
from tests.transports.raw import PATIENCE, TEXT, frame

GOOD = {
    "REQUEST_METHOD": "GET",
    "SERVER_PROTOCOL": "HTTP/1.1",
    "SCRIPT_NAME": "",
    "PATH_INFO": "/ws",
    **{"HTTP_" + name.upper().replace("-", "_"): value for name, value in HANDSHAKE.items()},
}


def take(environ: Any, start_response: Any = None, **options: Any) -> Upgraded:
    return upgrade(environ, start_response, codec_name=CODEC, max_message_bytes=MAX_MESSAGE_BYTES, **options)


def unused(*args: Any) -> Any:
    raise AssertionError(f"called with {args}")


@pytest.fixture
def ask() -> Iterator[Callable[..., Answer]]:
    """Ask an application under a plain pywsgi server; what it has on its conscience is in `ask.errors`."""
    with contextlib.ExitStack() as stack:
        errors = io.StringIO()

        def ask(application: Any, data: bytes) -> Answer:
            server = WSGIServer(("127.0.0.1", 0), application, log=None, error_log=errors)
            server.start()
            stack.callback(server.stop, timeout=0)
            sock = socket.create_connection(("127.0.0.1", server.server_port), timeout=PATIENCE)
            stack.callback(sock.close)
            return exchange(sock, data)

        yield ask
        assert errors.getvalue() == ""


# Refusals


def refused(environ: dict[str, Any], **options: Any) -> UpgradeRefused:
    with pytest.raises(UpgradeRefused) as caught:
        take(environ, unused, **options)
    return caught.value


@pytest.mark.parametrize(
    "status,changes",
    [
        (405, {"REQUEST_METHOD": "POST"}),
        (400, {"SERVER_PROTOCOL": "HTTP/1.0"}),
        (426, {"HTTP_UPGRADE": "h2c"}),
        (426, {"HTTP_CONNECTION": "keep-alive"}),
        (426, {"HTTP_SEC_WEBSOCKET_VERSION": "12"}),
        (400, {"HTTP_SEC_WEBSOCKET_KEY": "!!!"}),
        (400, {"HTTP_SEC_WEBSOCKET_KEY": HANDSHAKE["Sec-WebSocket-Key"] + "," + HANDSHAKE["Sec-WebSocket-Key"]}),
        (400, {"HTTP_SEC_WEBSOCKET_PROTOCOL": "muxws.v1.msgpack"}),
        (400, {"HTTP_HOST": "localhost,localhost"}),
        (400, {"HTTP_HOST": "local host"}),
        (400, {"HTTP_HOST": "http://localhost"}),
        (400, {"HTTP_HOST": ""}),
        (400, {"CONTENT_LENGTH": "1"}),
        (400, {"HTTP_TRANSFER_ENCODING": "chunked"}),
    ],
)
def test_a_refusal_is_raised_before_the_host_is_touched(status, changes):
    error = refused({**GOOD, **changes})
    assert error.status == status
    assert error.reason
    assert "\n" not in error.reason


@pytest.mark.parametrize("length", ["0", ""])
def test_an_empty_body_is_none(length):
    assert unsupported({**GOOD, "CONTENT_LENGTH": length})


def test_origins_come_first_for_a_request_for_an_upgrade():
    policy = compile_policy(["https://app.example"])
    error = refused({**GOOD, "HTTP_ORIGIN": "https://evil.example", "HTTP_HOST": "a,b"}, origins=policy)
    assert isinstance(error, OriginRefused)
    assert (error.status, error.origin) == (403, "https://evil.example")
    assert refused({**GOOD, "HTTP_ORIGIN": "a,b"}, origins=policy).origin == "a, b"
    assert refused(GOOD, origins=policy).origin is None
    assert refused({key: value for key, value in GOOD.items() if key != "HTTP_UPGRADE"}, origins=policy).status == 426


def test_a_forwarded_host_reaches_the_policy():
    seen = []

    class Policy:
        def allows(self, *headers):
            seen.append(headers)
            return False

    environ = {**GOOD, "HTTP_ORIGIN": "https://a.example", "HTTP_X_FORWARDED_HOST": "a.example, inner"}
    refused(environ, origins=compile_policy(Policy()))
    assert seen == [("https://a.example", "localhost", "a.example, inner")]


def test_what_a_policy_raises_comes_out():
    with pytest.raises(ZeroDivisionError):
        take({**GOOD, "HTTP_ORIGIN": "https://a.example"}, unused, origins=compile_policy(lambda origin: 1 / 0))


def test_a_refused_codec_is_logged_without_the_other_entries(caplog):
    offer = "bearer.s3cret, muxws.v1.msgpack"
    with caplog.at_level(logging.INFO, "muxws"):
        error = refused({**GOOD, "HTTP_SEC_WEBSOCKET_PROTOCOL": offer})
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("muxws.codec", "ERROR")
    for needed in ("muxws.v1.json", "MUXWS_CODEC", "'muxws.v1.msgpack'"):
        assert needed in record.getMessage()
    assert "s3cret" not in record.getMessage() + str(error)


def test_an_offer_of_nothing_is_logged_too(caplog):
    refused({key: value for key, value in GOOD.items() if key != "HTTP_SEC_WEBSOCKET_PROTOCOL"})
    assert "MUXWS_CODEC" in caplog.text


def test_a_refused_origin_is_logged_and_cut(caplog):
    with caplog.at_level(logging.INFO, "muxws.origin"):
        refused({**GOOD, "HTTP_ORIGIN": "https://" + "e" * 5000}, origins=compile_policy([]))
    assert len(caplog.text) < 500


def test_a_process_that_is_going_away_takes_nobody():
    roster.drain_all(0)
    try:
        assert refused(GOOD).status == 503
    finally:
        roster.reopen()
    assert not isinstance(unsupported(GOOD), UpgradeRefused)


def unsupported(environ: Any, start_response: Any = unused) -> TransportUnsupportedError:
    with pytest.raises(TransportUnsupportedError) as caught:
        take(environ, start_response)
    return caught.value


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
def test_a_refusal_as_an_answer(method):
    said = []
    error = UpgradeRefused(503, "too many", headers=[("Retry-After", "1")])
    body = refuse(error, {**GOOD, "REQUEST_METHOD": method}, lambda *args: said.append(args))
    assert body == ([] if method == "HEAD" else [b"too many\n"])
    assert said == [
        (
            "503 Service Unavailable",
            [
                ("Content-Type", "text/plain; charset=utf-8"),
                ("Content-Length", "9"),
                ("Connection", "close"),
                ("Retry-After", "1"),
            ],
        )
    ]


def test_a_status_of_the_applications_own_invention():
    said = []
    refuse(UpgradeRefused(499, "nö"), GOOD, lambda *args: said.append(args))
    assert said[0][0] == "499 Refused"
    assert ("Content-Length", "4") in said[0][1]


def test_a_view_answers_a_refusal_as_it_likes_and_the_connection_is_not_kept(ask):
    def application(environ, start_response):
        with pytest.raises(UpgradeRefused):
            take(environ, start_response)
        start_response("418 I'm a teapot", [("Content-Length", "0")])
        return []

    answer = ask(application, head({"Sec-WebSocket-Protocol": "x"}) + frame(TEXT, b"hasty", masked=True))
    assert answer.status == 418
    assert answer.end.rest() == b""


#: What stands in the environ of a good request, of an odd one and of a broken one; None: nothing.
ODD: dict[str, list[str | None]] = {
    "REQUEST_METHOD": ["GET", "POST"],
    "SERVER_PROTOCOL": ["HTTP/1.1", "HTTP/1.0"],
    "HTTP_HOST": ["localhost", "[::1]:80", " localhost\t", "a,b", "local host", "http://a", "", None],
    "HTTP_UPGRADE": ["websocket", "WebSocket", " websocket", "websocket,websocket", "h2c", "", None],
    "HTTP_CONNECTION": ["Upgrade", "keep-alive, Upgrade", ",Upgrade", "close", "upgr\xe4de", "", None],
    "HTTP_SEC_WEBSOCKET_KEY": [HANDSHAKE["Sec-WebSocket-Key"], "!!!", "a,b", "", None],
    "HTTP_SEC_WEBSOCKET_VERSION": ["13", "13,13", "8", " 13", None],
    "HTTP_SEC_WEBSOCKET_PROTOCOL": ["muxws.v1.json", "a, muxws.v1.json", "muxws.v1.msgpack", "a;b", "", None],
    "CONTENT_LENGTH": [None, "", "0", "1", " "],
    "HTTP_CONTENT_LENGTH": [None, "", "0", "1"],
    "HTTP_TRANSFER_ENCODING": [None, "", "chunked"],
    "HTTP_X_FORWARDED_FOR": [None, "a, b"],
}


@given(
    st.sets(st.sampled_from(sorted(ODD)), max_size=4).flatmap(
        lambda names: st.fixed_dictionaries({name: st.sampled_from(ODD[name]) for name in sorted(names)})
    ),
    st.booleans(),
)
def test_what_is_answered_at_first_sight_is_what_is_answered_at_length(changes, agrees):
    environ = {key: value for key, value in {**GOOD, **changes}.items() if value is not None}
    asked: list[list[str]] = []

    def select(offered: list[str]) -> str | None:
        asked.append(list(offered))
        return offered[0] if agrees and offered else None

    at_first_sight = _answer_at_first_sight(environ, select)
    if at_first_sight is None:
        assert asked == []
        return
    assert at_first_sight == _answer_at_length(environ, select)
    assert asked[0] == asked[1]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"HTTP_HOST": "[::1]:8000", "HTTP_CONNECTION": "keep-alive, Upgrade", "HTTP_COOKIE": "a=b"},
        {"CONTENT_LENGTH": "", "HTTP_SEC_WEBSOCKET_EXTENSIONS": "permessage-deflate", "HTTP_ORIGIN": "null"},
    ],
)
def test_what_clients_send_is_answered_at_first_sight(changes):
    answer = _answer_at_first_sight({**GOOD, **changes}, lambda offered: offered[0])
    assert answer is not None
    assert answer.status == 101


@pytest.mark.parametrize(
    "changes",
    [
        {"REQUEST_METHOD": "POST"},
        {"SERVER_PROTOCOL": "HTTP/1.0"},
        {"HTTP_HOST": "a,b"},
        {"CONTENT_LENGTH": "0"},
        {"HTTP_CONTENT_LENGTH": ""},
        {"HTTP_TRANSFER_ENCODING": ""},
        {"HTTP_UPGRADE": "h2c"},
    ],
)
def test_what_may_be_wrong_is_answered_at_length(changes):
    assert _answer_at_first_sight({**GOOD, **changes}, unused) is None


# Hosts that do not give their socket away


def test_a_server_that_is_none_of_gevents():
    handler = SimpleHandler(io.BytesIO(), io.BytesIO(), io.StringIO(), {})
    environ = {**GOOD, "wsgi.input": io.BytesIO()}
    text = str(unsupported(environ, handler.start_response))
    for name in ("gevent.pywsgi", "muxws_green.Server", "gunicorn with -k gevent", "gevent-websocket"):
        assert name in text


def test_a_worker_of_gunicorn_that_blocks():
    ours, theirs = stdlib_socket.socketpair()
    with ours, theirs:
        body = SimpleNamespace(reader=SimpleNamespace(unreader=SimpleNamespace(buf=io.BytesIO())))
        text = str(unsupported({**GOOD, "gunicorn.socket": ours, "wsgi.input": body}))
        assert "block every greenlet" in text
        assert "-k gevent" in text


def test_tls_of_the_standard_library():
    ours, theirs = stdlib_socket.socketpair()
    with theirs:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with context.wrap_socket(ours, server_side=True, do_handshake_on_connect=False) as wrapped:
            handler = SimpleNamespace(connection_upgraded=False, socket=wrapped, rfile=io.BufferedReader(io.BytesIO()))

            class Bound:
                """A callable whose `__self__` is the handler."""

                __self__ = handler
                __call__ = staticmethod(unused)

            assert "gevent.ssl.SSLContext" in str(unsupported(GOOD, Bound()))


def test_without_start_response_the_middleware_is_needed():
    assert "upgradable()" in str(unsupported(GOOD, None))


@pytest.mark.parametrize("nothing", ["a str", object(), 5])
def test_what_is_neither_an_environ_nor_a_websocket(nothing):
    assert "gevent-websocket" in str(unsupported(nothing))


def test_a_websocket_is_taken_over_once():
    handler = SimpleNamespace(rfile=None, response_headers=[])
    assert "taken over before" in str(unsupported(SimpleNamespace(handler=handler, closed=True)))


def test_an_answer_that_has_begun_cannot_become_an_upgrade(ask):
    def application(environ, start_response):
        start_response("200 OK", [("Content-Length", "2")])(b"o")
        assert "begun" in str(unsupported(environ, start_response))
        return [b"k"]

    answer = ask(application, head())
    assert (answer.status, answer.body()) == (200, b"ok")


def test_the_classes_for_gevent_websocket_come_into_being_when_asked_for():
    assert gevent_websocket.GreenWebSocketHandler is gevent_websocket.GreenWebSocketHandler
    with pytest.raises(AttributeError):
        _ = gevent_websocket.SomethingElse


# What becomes of the socket


def test_small_messages_leave_at_once(ask):
    options = []

    def application(environ, start_response):
        upgraded = take(environ, start_response)
        sock = upgraded.transport._sock
        options.append((sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY), sock.gettimeout()))
        upgraded.transport.abort()
        return upgraded.finish()

    assert ask(application, head()).status == 101
    assert options == [(1, None)]


@pytest.mark.parametrize("hidden", [False, True])
def test_what_nobody_has_read_is_not_taken_for_a_request(ask, hidden):
    """Bytes that lie in the kernel when the connection ends; also where the host's handler cannot be found."""
    sent = Event()
    requests = []

    def application(environ, start_response):
        requests.append(environ["PATH_INFO"])
        if environ["PATH_INFO"] != "/ws":
            start_response("200 OK", [("Content-Length", "0")])
            return []
        upgraded = take(environ, (lambda *args: start_response(*args)) if hidden else start_response)
        sent.wait()
        upgraded.transport.abort()
        return upgraded.finish()

    answer = ask(application, head())
    answer.end.sock.sendall(head(path="/unread") * 20)
    sent.set()
    with contextlib.suppress(ConnectionResetError):
        assert answer.end.rest() == b""
    assert requests == ["/ws"]


@pytest.mark.parametrize("hidden", [False, True])
def test_plain_pywsgi_does_not_let_go_of_its_socket(ask, hidden):
    def application(environ, start_response):
        upgraded = take(environ, (lambda *args: start_response(*args)) if hidden else start_response)
        assert upgraded.detach() is False
        upgraded.transport.abort()
        return upgraded.finish()

    assert ask(application, head()).end.rest() == b""


def test_ending_the_transport_closes_the_descriptor_at_once(ask):
    numbers = []

    def application(environ, start_response):
        upgraded = take(environ, start_response)
        numbers.append(upgraded.transport._sock.fileno())
        upgraded.transport.abort()
        numbers.append(upgraded.transport._sock.fileno())
        return upgraded.finish()

    answer = ask(application, head())
    assert answer.end.rest() == b""
    assert numbers[0] > 0
    assert numbers[1] == -1


def test_an_application_that_does_not_finish_still_ends_the_connection(ask):
    def application(environ, start_response):
        take(environ, start_response)
        return []

    answer = ask(application, head() + head(path="/again"))
    assert answer.status == 101
    assert answer.end.rest() == b""


def test_finish_gives_an_equal_body_each_time_and_keeps_nothing(ask):
    seen: list[Any] = []

    def application(environ, start_response):
        upgraded = take(environ, start_response)
        echo(upgraded)
        body = upgraded.finish()
        assert upgraded.finish() == body
        # A peer keeps it for as long as somebody keeps the peer.
        seen.extend((upgraded.finish, weakref.ref(environ["wsgi.input"])))
        return body

    answer = ask(application, head())
    answer.end.sock.close()
    with gevent.Timeout(PATIENCE):
        while len(seen) < 2:
            gevent.sleep(0.001)
    gevent.sleep(0)
    gc.collect()
    assert seen[1]() is None


def test_a_client_that_has_gone_meanwhile_is_no_error():
    """A RST between the request and its answer: the head cannot be sent, and the first read tells."""
    ours, theirs = socket.socketpair()
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    theirs.close()
    response = SimpleNamespace(headers_sent=False)

    class Writer:
        """The bound method of a response that cannot be written."""

        __self__ = response

        def __call__(self, data: bytes) -> None:
            raise BrokenPipeError

    unreader = SimpleNamespace(buf=io.BytesIO(b"left"), sock=ours)
    body = SimpleNamespace(reader=SimpleNamespace(unreader=unreader))
    with ours:
        upgraded = take({**GOOD, "gunicorn.socket": ours, "wsgi.input": body}, lambda status, headers: Writer())
        # Otherwise gunicorn would send the head again when the application returns.
        assert response.headers_sent is True
        assert unreader.buf.getvalue() == b""
        assert unreader.sock.recv(100) == b""
        assert upgraded.finish() == []


def test_the_writer_of_a_middleware_is_left_alone():
    """As above, where what writes is not the response of gunicorn's."""
    ours, theirs = socket.socketpair()
    theirs.close()

    def write(data: bytes) -> None:
        raise BrokenPipeError

    body = SimpleNamespace(reader=SimpleNamespace(unreader=SimpleNamespace(buf=io.BytesIO(), sock=ours)))
    with ours:
        upgraded = take({**GOOD, "gunicorn.socket": ours, "wsgi.input": body}, lambda status, headers: write)
        with pytest.raises(ConnectionClosed):
            upgraded.transport.receive()
        assert upgraded.finish() == []


def test_a_client_of_pywsgi_that_has_gone_meanwhile_is_no_error():
    errors, asked, gone, ended = io.StringIO(), Event(), Event(), Event()

    def application(environ, start_response):
        asked.set()
        gone.wait(PATIENCE)
        upgraded = take(environ, start_response)
        with pytest.raises(ConnectionClosed) as raised:
            upgraded.transport.receive()
        assert raised.value.code == 1006
        upgraded.transport.abort()
        ended.set()
        return upgraded.finish()

    server = WSGIServer(("127.0.0.1", 0), application, log=None, error_log=errors)
    server.start()
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=PATIENCE) as client:
        client.sendall(head())
        assert asked.wait(PATIENCE)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    gone.set()
    assert ended.wait(PATIENCE)
    gevent.sleep(0)
    server.stop(timeout=0)
    assert errors.getvalue() == ""


def test_a_host_is_found_by_what_it_offers():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        body = SimpleNamespace(reader=SimpleNamespace(unreader=SimpleNamespace(buf=io.BytesIO())))
        environ = {**GOOD, "gunicorn.socket": ours, "wsgi.input": body, "SERVER_SOFTWARE": "something/1"}
        assert isinstance(find_host(environ, unused), GunicornHost)
        # The name alone means nothing.
        with pytest.raises(TransportUnsupportedError):
            find_host({**GOOD, "SERVER_SOFTWARE": "gunicorn/27", "wsgi.input": io.BytesIO()}, unused)
