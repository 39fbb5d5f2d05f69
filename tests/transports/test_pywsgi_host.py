"""The 101 under pywsgi: written in place of a handler that nobody has changed, and by one that somebody has."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from types import SimpleNamespace
from typing import Any

import pytest
from gevent import socket
from gevent.event import AsyncResult
from gevent.pywsgi import WSGIHandler, WSGIServer

from muxws_green import Server, WSGIApp, connect
from muxws_green.transports.hosts.pywsgi import _answer_for, take_buffered
from muxws_green.websocket import UpgradeAnswer
from tests.hosts.client import exchange, head
from tests.shared import ROOT

ANSWER = UpgradeAnswer(101, "Switching Protocols", [("Upgrade", "websocket"), ("X", "é")], b"")
HEAD = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nX: é\r\n\r\n".encode("latin-1")


class Log:
    """An access log, of which the first line can be waited for."""

    def __init__(self) -> None:
        self._first: AsyncResult[str] = AsyncResult()

    def write(self, line: str) -> None:
        if not self._first.ready():
            self._first.set(line)

    def line(self) -> str:
        return str(self._first.get(timeout=10))


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def serve(log: Log) -> Iterator[Callable[..., WSGIServer]]:
    servers: list[WSGIServer] = []

    def serve(kind: type[WSGIServer] = WSGIServer, app: Any = None, **options: Any) -> WSGIServer:
        app = app or WSGIApp(lambda payload, stream: stream.reply(payload))
        options["log"] = log
        server = kind(("127.0.0.1", 0), app, **options)
        server.start()
        servers.append(server)
        return server

    yield serve
    for server in servers:
        server.stop()


def talk(server: WSGIServer) -> None:
    """One connection, from its first to its last word."""
    with connect(f"ws://127.0.0.1:{server.server_port}/place") as peer:
        assert peer.request("hello") == "hello"


def test_it_is_in_the_access_log(serve: Callable[..., WSGIServer], log: Log) -> None:
    server = serve()
    answer = exchange(socket.create_connection(("127.0.0.1", server.server_port)), head())
    assert answer.status == 101
    answer.end.sock.close()
    request, _, rest = log.line().partition('" ')
    assert request.endswith('"GET /ws HTTP/1.1')
    assert rest.split()[0] == "101"
    assert int(rest.split()[1]) > 100


def test_what_the_handler_keeps_of_the_request_goes(serve: Callable[..., WSGIServer]) -> None:
    seen: list[Any] = []
    app = WSGIApp(lambda payload, stream: stream.reply(payload))

    def application(environ: dict[str, Any], start_response: Any) -> Any:
        seen.extend([environ["HTTP_HOST"], start_response.__self__])
        return app(environ, start_response)

    server = serve(app=application)
    with connect(f"ws://127.0.0.1:{server.server_port}/") as peer:
        assert peer.request(1) == 1
        host, handler = seen
        assert host == f"127.0.0.1:{server.server_port}"
        assert not handler.headers.keys()
        assert (handler.code, handler.status) == (101, b"101 Switching Protocols")


class Telling(WSGIHandler):
    """Logs what the client said, and adds to the answer."""

    def format_request(self) -> str:
        return json.dumps([self.headers.get("Sec-WebSocket-Version"), super().format_request()])

    def start_response(self, status: str, headers: Any, exc_info: Any = None) -> Any:
        return super().start_response(status, [*headers, ("X-Served-By", "me")], exc_info)


def test_a_handler_of_the_applications_answers_by_itself(serve: Callable[..., WSGIServer], log: Log) -> None:
    server = serve(handler_class=Telling)
    answer = exchange(socket.create_connection(("127.0.0.1", server.server_port)), head())
    assert (answer.status, answer.headers["x-served-by"]) == (101, "me")
    answer.end.sock.close()
    version, line = json.loads(log.line())
    assert version == "13"
    assert '" 101 ' in line


@pytest.mark.parametrize("kind", [WSGIServer, Server])
@pytest.mark.parametrize("name", ["start_response", "format_request", "log_request", "write"])
def test_so_does_one_that_an_instrument_was_put_into(
    serve: Callable[..., WSGIServer], log: Log, monkeypatch: pytest.MonkeyPatch, kind: type[WSGIServer], name: str
) -> None:
    original = getattr(WSGIHandler, name)
    told: list[str | None] = []

    @wraps(original)
    def instrument(self: Any, *arguments: Any) -> Any:
        told.append(self.headers.get("Sec-WebSocket-Version"))
        return original(self, *arguments)

    monkeypatch.setattr(WSGIHandler, name, instrument)
    server = serve(kind=kind)
    answer = exchange(socket.create_connection(("127.0.0.1", server.server_port)), head())
    assert answer.status == 101
    assert "date" in answer.headers
    answer.end.sock.close()
    assert '" 101 ' in log.line()
    assert told == ["13"]


def test_what_was_patched_before_is_noticed() -> None:
    source = """
import gevent.pywsgi
from functools import wraps
original = gevent.pywsgi.WSGIHandler.format_request
gevent.pywsgi.WSGIHandler.format_request = wraps(original)(lambda self: original(self))
from muxws_green.transports.hosts import pywsgi
assert not pywsgi._METHODS_ARE_PYWSGIS
"""
    subprocess.run([sys.executable, "-c", source], check=True, timeout=60, cwd=ROOT)


@pytest.mark.parametrize("kind", [WSGIServer, Server])
def test_nothing_is_counted_that_did_not_leave(
    serve: Callable[..., WSGIServer], log: Log, monkeypatch: pytest.MonkeyPatch, kind: type[WSGIServer]
) -> None:
    app = WSGIApp(lambda payload, stream: stream.reply(payload))

    def application(environ: dict[str, Any], start_response: Any) -> Any:
        # The client has gone meanwhile.
        environ["wsgi.input"].raw._sock.shutdown(socket.SHUT_WR)
        return app(environ, start_response)

    server = serve(kind=kind, app=application)
    with socket.create_connection(("127.0.0.1", server.server_port)) as client:
        client.sendall(head())
        assert client.recv(1_000) == b""
    assert '" 101 - ' in log.line()


def test_a_socket_that_takes_a_little_gets_the_rest_too() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        taking = SimpleNamespace(send=lambda data: ours.send(data[:7]), sendall=ours.sendall)
        handler = SimpleNamespace(socket=taking, response_length=0)
        _answer_for(handler, ANSWER)
        assert theirs.recv(1_000) == HEAD
        assert handler.response_length == len(HEAD)


def test_so_does_the_request(serve: Callable[..., WSGIServer], monkeypatch: pytest.MonkeyPatch) -> None:
    class Reluctant(socket.socket):
        def send(self, data: Any, *arguments: Any) -> int:
            return super().send(data[:7], *arguments)

    monkeypatch.setattr(socket, "socket", Reluctant)
    talk(serve())


class Bare(io.RawIOBase):
    """A socket's reader that cannot be told not to read."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._sock.recv_into(buffer)


@pytest.mark.parametrize("kind", ["its own", "another"])
def test_taking_what_is_buffered(kind: str) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        rfile: Any = ours.makefile("rb") if kind == "its own" else io.BufferedReader(Bare(ours))
        assert take_buffered(rfile, ours) == b""
        theirs.sendall(b"line\nbehind it")
        assert rfile.readline() == b"line\n"
        assert take_buffered(rfile, ours) == b"behind it"
        assert ours.gettimeout() is None
        # And it reads on as before.
        theirs.sendall(b"another\n")
        assert rfile.readline() == b"another\n"
        rfile.close()
