"""Our own server: deadlines on heads, hand-over of sockets, and an end."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import ssl
import time
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import gevent
import pytest
from gevent import socket
from gevent.event import Event
from gevent.pool import Pool

from muxws_green.api import WSGIApp
from muxws_green.errors import StreamTimeout, UpgradeRefused
from muxws_green.transports.acceptor import refuse, upgrade
from muxws_green.transports.server import Server, is_wsgi
from muxws_green.transports.upgradable import upgradable
from tests.hosts.apps import CODEC, MAX_MESSAGE_BYTES, echo, plain
from tests.hosts.client import Answer, ClientEnd, exchange, head, secure
from tests.transports.raw import PATIENCE, TEXT, authority, frame, server_context

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"

#: A deadline for heads that comes soon, and one that never does in a test.
SOON, LATE = 0.2, 30.0


class Site:
    """A running server with clients that are closed in the end."""

    def __init__(self, application: Any = plain, **options: Any) -> None:
        self.log = io.StringIO()
        self.errors = io.StringIO()
        self.server = Server(("127.0.0.1", 0), application, log=self.log, error_log=self.errors, **options)
        self.server.start()
        self.sockets: list[Any] = []

    def connect(self) -> Any:
        sock = socket.create_connection(("127.0.0.1", self.server.server_port), timeout=PATIENCE)
        self.sockets.append(sock)
        return sock

    def get(self, sock: Any = None) -> Answer:
        return exchange(sock or self.connect(), GET)

    def open(self) -> ClientEnd:
        answer = exchange(self.connect(), head())
        assert answer.status == 101
        return answer.end

    def end(self) -> None:
        self.server.stop(timeout=0)
        for sock in self.sockets:
            sock.close()


@pytest.fixture
def site() -> Iterator[Callable[..., Site]]:
    with contextlib.ExitStack() as stack:

        def make(*args: Any, **options: Any) -> Site:
            made = Site(*args, **options)
            stack.callback(made.end)
            return made

        yield make


def until(condition: Callable[[], object]) -> bool:
    """Wait until something holds."""
    with gevent.Timeout(PATIENCE):
        while not condition():
            gevent.sleep(0.001)
    return True


def seconds_to_eof(sock: Any) -> float:
    begun = time.monotonic()
    with contextlib.suppress(ConnectionResetError):
        while sock.recv(65_536):
            pass
    return time.monotonic() - begun


# Heads


@pytest.mark.case("C27")
@pytest.mark.slow
def test_half_a_head_is_not_waited_for_while_others_are_served(site):
    here = site(head_timeout=SOON)
    slow = here.connect()
    slow.sendall(GET[:10])

    def dribble():
        with contextlib.suppress(OSError):
            for byte in GET[10:-1] * 50:
                slow.sendall(bytes((byte,)))
                gevent.sleep(0.02)

    dribbling = gevent.spawn(dribble)
    assert here.get().status == 200
    assert seconds_to_eof(slow) < SOON + 1
    dribbling.kill()
    assert here.errors.getvalue() == ""
    # What came of it was never taken for a request.
    assert here.log.getvalue().count("\n") == 1


@pytest.mark.parametrize("lines", [b"A: 1\r\n" * 500, (b"A: " + b"x" * 8_000 + b"\r\n") * 50])
def test_a_head_is_bounded(site, lines):
    here = site()
    sock = here.connect()
    answer = exchange(sock, GET[:-2] + lines + b"\r\n")
    assert 400 <= answer.status < 500
    with contextlib.suppress(ConnectionResetError):
        answer.end.rest()
    assert here.get().status == 200
    assert "Traceback" not in here.errors.getvalue()


@pytest.mark.parametrize("part", [b"", b"GET", b"GET / HTTP/1.1\r\n", GET[:-2]])
def test_wherever_the_head_stops(site, part):
    here = site(head_timeout=0.05)
    sock = here.connect()
    sock.sendall(part)
    assert seconds_to_eof(sock) < 1
    assert here.errors.getvalue() == here.log.getvalue() == ""


def test_a_connection_that_is_kept_has_as_long_for_its_next_request(site):
    here = site(head_timeout=SOON)
    sock = here.connect()
    for _ in range(3):
        assert here.get(sock).body() == b"an ordinary answer"
    assert SOON / 2 < seconds_to_eof(sock) < SOON + 1


@pytest.mark.parametrize("never", [0, None, LATE])
def test_there_may_be_no_deadline(site, never):
    here = site(head_timeout=never)
    sock = here.connect()
    sock.sendall(GET[:10])
    with pytest.raises(TimeoutError), contextlib.closing(sock):
        sock.settimeout(0.1)
        sock.recv(1)


def test_the_deadline_is_for_the_head_and_not_for_the_application(site):
    def application(environ, start_response):
        gevent.sleep(0.15)
        start_response("200 OK", [("Content-Length", "2")])
        return [b"ok"]

    assert site(application, head_timeout=0.05).get().status == 200


@pytest.mark.parametrize("wrong", [-1, float("nan"), "1"])
def test_a_deadline_is_a_duration(wrong):
    with pytest.raises(ValueError, match="head_timeout"):
        Server(("127.0.0.1", 0), plain, head_timeout=wrong)


def stdlib_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority().issue_cert("localhost").configure_cert(context)
    return context


@pytest.mark.parametrize("make_context", [server_context, stdlib_context])
def test_a_client_that_never_begins_tls_holds_up_nobody(site, make_context):
    here = site(head_timeout=SOON, ssl_context=make_context())
    silent = here.connect()
    other = secure(here.connect())
    here.sockets.append(other)
    other.settimeout(PATIENCE)
    assert here.get(other).status == 200
    upgraded = secure(here.connect())
    here.sockets.append(upgraded)
    answer = exchange(upgraded, head() + frame(TEXT, b"early", masked=True))
    assert answer.end.frame().payload == b"early"
    assert seconds_to_eof(silent) < SOON + 1


def test_what_is_no_tls_is_dropped_without_a_word(site, capsys):
    here = site(ssl_context=server_context())
    sock = here.connect()
    sock.sendall(GET)
    seconds_to_eof(sock)
    assert until(lambda: not here.server._connections)
    assert here.errors.getvalue() == here.log.getvalue() == capsys.readouterr().err == ""


def test_tls_may_be_told_by_files(site, tmp_path):
    certificate = authority().issue_cert("localhost")
    certificate.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "pem"))
    here = site(certfile=str(tmp_path / "pem"))
    sock = secure(here.connect())
    here.sockets.append(sock)
    assert here.get(sock).status == 200


# Hand-over


def detaching(served: list[Any]) -> Any:
    """An application that lets its request end at once."""

    def application(environ: dict[str, Any], start_response: Any) -> Any:
        if environ["PATH_INFO"] != "/ws":
            return plain(environ, start_response)
        upgraded = upgrade(environ, start_response, codec_name=CODEC, max_message_bytes=MAX_MESSAGE_BYTES)
        echoing = gevent.spawn(echo, upgraded)
        detached = upgraded.detach()
        served.append((detached, echoing, weakref.ref(gevent.getcurrent())))
        if not detached:
            echoing.join()
        return upgraded.finish()

    return application


@pytest.mark.parametrize("context", [None, server_context])
def test_a_socket_outlives_its_request(site, context):
    served: list[Any] = []
    here = site(detaching(served), **({"ssl_context": context()} if context else {}))
    sock = secure(here.connect()) if context else here.connect()
    here.sockets.append(sock)
    end = exchange(sock, head() + frame(TEXT, b"early", masked=True)).end
    assert end.frame().payload == b"early"
    ((detached, echoing, request),) = served
    assert detached
    assert until(lambda: not here.server._connections)
    gc.collect()
    assert request() is None
    assert '"GET /ws HTTP/1.1" 101' in here.log.getvalue()
    end.send(TEXT, b"x" * 100_000)
    assert len(end.frame().payload) == 100_000
    sock.close()
    echoing.join(PATIENCE)
    assert here.errors.getvalue() == ""


def test_a_pool_keeps_counting_connections(site):
    served: list[Any] = []
    pool = Pool(2)
    here = site(detaching(served), spawn=pool)
    end = exchange(here.connect(), head()).end
    assert served[0][0] is False
    assert pool.free_count() == 1
    end.sock.close()


@pytest.mark.case("C16")
def test_nothing_of_a_connection_stays(site):
    requests: list[weakref.ref[Any]] = []

    class Environ(dict):
        """A dict that can be watched."""

    def application(environ, start_response):
        own = Environ(environ)
        upgraded = upgrade(own, start_response, codec_name=CODEC, max_message_bytes=MAX_MESSAGE_BYTES)
        requests.extend(map(weakref.ref, (own, upgraded, upgraded.transport, environ["wsgi.input"])))
        echo(upgraded)
        return upgraded.finish()

    here = site(application)
    for _ in range(50):
        end = here.open()
        end.sock.close()
    here.sockets.clear()
    assert until(lambda: not here.server._connections)
    gc.collect()
    assert len(requests) == 200
    assert [ref() for ref in requests if ref() is not None] == []


# The end


def handle(payload: Any, stream: Any) -> None:
    """Answer at once, or when told to."""
    if payload is not None:
        release.wait()
    stream.reply("done")


release = Event()


@pytest.fixture(autouse=True)
def _released() -> Iterator[None]:
    release.clear()
    yield
    release.set()


def open_stream(end: ClientEnd, payload: Any, number: int = 1) -> None:
    end.send(TEXT, json.dumps({"type": "open", "stream": number, "payload": payload, "end": True}).encode())


def received(end: ClientEnd) -> Any:
    message = end.frame()
    return message.close_code if message.opcode == 8 else json.loads(message.payload)


@pytest.mark.case("C19")
def test_a_drain_lets_streams_finish_and_closes_with_1001(site):
    here = site(WSGIApp(handle, heartbeat=None))
    idle = [here.open() for _ in range(20)]
    busy = here.open()
    open_stream(busy, "wait")
    assert until(lambda: any(peer.streams for peer in here.server.peers))
    draining = gevent.spawn(here.server.drain, LATE)
    for end in [*idle, busy]:
        assert received(end)["type"] == "goaway"
    for end in idle:
        assert received(end) == 1001
        end.sock.close()
    assert not draining.ready()
    release.set()
    assert received(busy)["payload"] == "done"
    assert received(busy) == 1001
    busy.sock.close()
    draining.get(timeout=PATIENCE)
    assert here.server.peers == []
    assert not here.server.started
    assert here.errors.getvalue() == ""


def test_what_does_not_finish_is_cut_off(site):
    here = site(WSGIApp(handle, heartbeat=None))
    end = here.open()
    open_stream(end, "wait")
    assert until(lambda: any(peer.streams for peer in here.server.peers))
    begun = time.monotonic()
    draining = gevent.spawn(here.server.drain, SOON)
    assert received(end)["type"] == "goaway"
    while (last := received(end)) != 1001:
        assert last["type"] in ("reset", "data")
    end.sock.close()
    draining.get(timeout=PATIENCE)
    assert SOON * 0.9 < time.monotonic() - begun < SOON + 2


def test_a_drain_ends_what_waits_and_lets_requests_finish(site):
    def application(environ, start_response):
        if environ["PATH_INFO"] == "/slow":
            release.wait()
        return plain(environ, start_response)

    here = site(application, head_timeout=None)
    kept, half, silent, slow = (here.connect() for _ in range(4))
    assert here.get(kept).status == 200
    half.sendall(GET[:20])
    slow.sendall(GET.replace(b"/", b"/slow", 1))
    assert until(lambda: len(here.server._connections) == 4 and len(here.server._waiting) == 3)
    draining = gevent.spawn(here.server.drain, LATE)
    for sock in (kept, half, silent):
        assert seconds_to_eof(sock) < 1
    assert not draining.ready()
    release.set()
    assert exchange(slow, b"").status == 200
    draining.get(timeout=1)
    with pytest.raises(ConnectionRefusedError):
        here.connect()
    assert here.errors.getvalue() == ""
    # Half a request is no request.
    assert here.log.getvalue().count("\n") == 2


def test_a_request_that_does_not_finish_is_killed(site):
    killed = Event()

    def application(environ, start_response):
        try:
            gevent.sleep(LATE)
        except gevent.GreenletExit:
            killed.set()
            raise
        raise AssertionError("not reached")

    here = site(application)
    here.connect().sendall(GET)
    assert until(lambda: here.server._connections and not here.server._waiting)
    here.server.drain(0)
    assert killed.is_set()
    assert not here.server._connections


def test_a_request_may_order_the_drain_and_be_answered(site):
    def application(environ, start_response):
        environ["muxws_green.server"].drain(LATE)
        return plain(environ, start_response)

    here = site(application)
    assert here.get().body() == b"an ordinary answer"


def test_no_peer_is_taken_while_draining(site):
    def application(environ, start_response):
        if environ["PATH_INFO"] == "/slow":
            release.wait()
        try:
            upgraded = upgrade(environ, start_response, codec_name=CODEC, max_message_bytes=MAX_MESSAGE_BYTES)
        except UpgradeRefused as error:
            return refuse(error, environ, start_response)
        echo(upgraded)
        return upgraded.finish()

    here = site(application)
    late = here.connect()
    late.sendall(head(path="/slow"))
    assert until(lambda: here.server._connections and not here.server._waiting)
    draining = gevent.spawn(here.server.drain, LATE)
    assert until(lambda: here.server.draining)
    release.set()
    assert exchange(late, b"").status == 503
    draining.get(timeout=1)


@pytest.mark.parametrize("end_it", [Server.stop, partial(Server.drain, timeout=5.0)])
def test_serve_forever_returns_when_all_is_over(site, end_it):
    here = site(WSGIApp(handle, heartbeat=None))
    serving = gevent.spawn(here.server.serve_forever)
    end = here.open()
    open_stream(end, "wait")
    assert until(lambda: any(peer.streams for peer in here.server.peers))
    ending = gevent.spawn(end_it, here.server)
    assert received(end)["type"] == "goaway"
    assert not serving.ready()
    release.set()
    assert received(end)["payload"] == "done"
    assert received(end) == 1001
    end.sock.close()
    gevent.joinall([serving, ending], timeout=PATIENCE, raise_error=True)
    assert serving.successful()
    assert ending.successful()


def test_stopping_twice_is_stopping_once(site):
    here = site()
    for end_it in (here.server.stop, here.server.drain, here.server.stop):
        end_it()
    second = gevent.spawn(here.server.drain, LATE)
    second.get(timeout=1)


def test_stop_during_a_drain_waits_no_longer_than_it_was_told(site):
    here = site(WSGIApp(handle, heartbeat=None))
    end = here.open()
    open_stream(end, "wait")
    assert until(lambda: any(peer.streams for peer in here.server.peers))
    draining = gevent.spawn(here.server.drain, LATE)
    assert received(end)["type"] == "goaway"
    begun = time.monotonic()
    here.server.stop(timeout=0.05)
    assert time.monotonic() - begun < 1
    assert not draining.ready()
    release.set()
    assert received(end)["payload"] == "done"
    end.sock.close()
    draining.get(timeout=PATIENCE)


def test_a_server_that_was_never_started_can_be_stopped():
    server = Server(("127.0.0.1", 0), plain)
    server.stop()
    assert server.draining
    assert server.closed


def test_a_connection_that_nobody_can_be_found_for_is_closed(site, expected_hub_errors):
    def spawn(*args: Any) -> None:
        raise RuntimeError("too many")

    here = site(spawn=spawn)
    with pytest.raises(ConnectionError):
        assert here.connect().recv(1) == b""
        raise ConnectionResetError
    assert str(expected_hub_errors[0].error) == "too many"


def test_a_peer_that_is_closed_as_it_is_accepted_ends_its_request(site):
    here = site(WSGIApp(handle, heartbeat=None, on_connect=lambda peer: peer.close(drain=0.0)))
    end = here.open()
    assert received(end)["type"] == "goaway"
    assert received(end) == 1000
    end.sock.close()
    assert until(lambda: not here.server.peers)
    assert here.errors.getvalue() == ""


def test_it_starts_again(site):
    here = site(WSGIApp(handle, heartbeat=None))
    here.server.stop()
    here.server.start()
    end = here.open()
    open_stream(end, None)
    assert received(end)["payload"] == "done"


def test_a_full_pool_does_not_reopen_a_draining_listener(site):
    here = site(WSGIApp(handle, heartbeat=None), spawn=2)
    busy, idle = here.open(), here.open()
    open_stream(busy, "wait")
    assert until(lambda: any(peer.streams for peer in here.server.peers))
    here.connect()
    draining = gevent.spawn(here.server.drain, LATE)
    for end in (busy, idle):
        assert received(end)["type"] == "goaway"
    assert received(idle) == 1001
    idle.sock.close()
    assert until(lambda: here.server.pool.free_count() == 1)
    gevent.idle()
    assert len(here.server._connections) == 1
    release.set()
    assert received(busy)["payload"] == "done"
    assert received(busy) == 1001
    busy.sock.close()
    draining.get(timeout=PATIENCE)
    assert not here.server.started


@pytest.mark.case("C15")
def test_every_way_to_vanish_frees_a_place(site):
    here = site(WSGIApp(handle, ping_interval=0.1, ping_timeout=0.1), spawn=Pool(2))

    def close_politely(end):
        end.send(8, b"\x03\xe8")
        end.rest()

    def reset(end):
        end.reset()

    def fin(end):
        end.sock.close()

    def be_silent(end):
        # Until it is declared dead.
        end.rest()

    for number in range(20):
        (close_politely, reset, fin, be_silent)[number % 4](here.open())
    end = here.open()
    open_stream(end, None)
    while received(end)["type"] != "data":
        pass
    assert here.errors.getvalue() == ""


def test_a_unix_listener(site, tmp_path):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "s"))
    listener.listen()
    log = io.StringIO()
    server = Server(listener, WSGIApp(handle, heartbeat=None), log=log)
    server.start()
    try:
        ends = []
        for _ in range(20):
            sock = socket.socket(socket.AF_UNIX)
            sock.settimeout(PATIENCE)
            sock.connect(str(tmp_path / "s"))
            ends.append(exchange(sock, head()).end)
        for end in ends[::-1]:
            open_stream(end, None)
            assert received(end)["payload"] == "done"
            end.sock.close()
    finally:
        server.stop()


# What it is given


def test_applications_and_handlers_are_told_apart_by_the_names_of_their_parameters():
    class App:
        def __call__(self, environ, start_response):
            raise AssertionError

        def method(self, payload, stream):
            raise AssertionError

    def odd(env, sr):
        raise AssertionError

    assert is_wsgi(App())
    assert is_wsgi(plain)
    assert is_wsgi(odd)
    assert is_wsgi(upgradable(plain))
    assert is_wsgi(WSGIApp(handle))
    assert not is_wsgi(handle)
    assert not is_wsgi(App().method)
    assert not is_wsgi(lambda payload, stream: None)
    for unclear in (lambda *args: None, lambda one, *rest: None, lambda: None):
        with pytest.raises(TypeError, match="say which"):
            is_wsgi(unclear)


def test_a_deadline_that_is_thrown_by_the_application_is_its_own(site):
    seen = []

    def application(environ, start_response):
        try:
            with gevent.Timeout(0.01):
                gevent.sleep(LATE)
        except gevent.Timeout as timeout:
            seen.append(timeout)
        return plain(environ, start_response)

    assert site(application, head_timeout=SOON).get().status == 200
    assert len(seen) == 1
    assert StreamTimeout is not None
