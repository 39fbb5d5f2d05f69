"""The middleware: of one request either the framework's answer or the 101 reaches the server."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from gevent import socket
from gevent.pywsgi import WSGIServer

from muxws_green.errors import TransportUnsupportedError
from muxws_green.transports.acceptor import upgrade
from muxws_green.transports.upgradable import DOOR_KEY, upgradable
from tests.hosts.apps import CODEC, MAX_MESSAGE_BYTES, echo
from tests.hosts.client import Answer, exchange, head
from tests.transports.raw import CLOSE, PATIENCE, TEXT, close_frame, frame

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


class Site:
    """Applications under a server of gevent's, and what that has logged."""

    def __init__(self) -> None:
        self.errors = io.StringIO()
        self.log = io.StringIO()
        self._ends: list[Callable[[], object]] = []

    def ask(self, application: Any, data: bytes) -> Answer:
        server = WSGIServer(("127.0.0.1", 0), application, log=self.log, error_log=self.errors)
        server.start()
        self._ends.append(lambda: server.stop(timeout=0))
        sock = socket.create_connection(("127.0.0.1", server.server_port), timeout=PATIENCE)
        self._ends.append(sock.close)
        return exchange(sock, data)

    def end(self) -> None:
        for end in self._ends:
            end()


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.end()
    assert made.errors.getvalue() == ""


def serve(environ: dict[str, Any]) -> Any:
    upgraded = upgrade(environ, codec_name=CODEC, max_message_bytes=MAX_MESSAGE_BYTES)
    echo(upgraded)
    return upgraded.finish()


def speaks(answer: Answer) -> bool:
    assert answer.status == 101
    answer.end.send(TEXT, b"hello")
    assert answer.end.frame().payload == b"hello"
    answer.end.sock.sendall(close_frame(1000, masked=True))
    assert answer.end.frame().opcode == CLOSE
    assert answer.end.rest() == b""
    return True


class Body:
    """A body that knows whether it has been closed."""

    def __init__(self, *data: bytes) -> None:
        self.data = data
        self.closed = 0

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.data)

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize("with_error", [False, True])
def test_what_the_framework_answers_afterwards_is_thrown_away(site, with_error):
    body = Body(b"page")

    def application(environ, start_response):
        serve(environ)
        write = start_response("500 Oh", [("X", "y")], *([(ValueError, ValueError(), None)] if with_error else []))
        write(b"written")
        return body

    assert speaks(site.ask(upgradable(application), head()))
    assert body.closed == 1
    assert '" 101 ' in site.log.getvalue()
    assert "500" not in site.log.getvalue()


def test_a_view_that_never_answers_at_all(site):
    assert speaks(site.ask(upgradable(lambda environ, start_response: serve(environ)), head()))


def test_a_view_that_forgets_to_finish(site):
    def application(environ, start_response):
        echo(upgrade(environ, codec_name=CODEC, max_message_bytes=MAX_MESSAGE_BYTES))
        start_response("200 OK", [])
        return [b"page"]

    assert speaks(site.ask(upgradable(application), head() + head() * 0))


def test_frameworks_take_what_finish_gives_for_an_empty_answer(site):
    seen = []

    def application(environ, start_response):
        seen.append(serve(environ))
        return seen

    assert speaks(site.ask(upgradable(application), head()))
    assert seen == [b""]


def test_an_application_that_runs_as_it_is_iterated(site):
    closed = []

    def application(environ, start_response):
        try:
            serve(environ)
            start_response("200 OK", [])
            yield b"page"
        finally:
            closed.append(True)

    assert speaks(site.ask(upgradable(application), head()))
    assert closed == [True]


def test_start_response_may_be_given_all_the_same(site):
    def application(environ, start_response):
        upgraded = upgrade(environ, start_response, codec_name=CODEC, max_message_bytes=MAX_MESSAGE_BYTES)
        echo(upgraded)
        return upgraded.finish()

    assert speaks(site.ask(upgradable(application), head()))


def test_a_middleware_in_between_that_has_headers_of_its_own(site):
    def application(environ, start_response):
        def start(status, headers, exc_info=None):
            return start_response(status, [*headers, ("X-Seen", "yes")])

        body = serve(environ)
        start("200 OK", [])
        return body

    answer = site.ask(upgradable(application), head())
    assert speaks(answer)
    assert "x-seen" not in answer.headers


def test_wrapping_twice_is_wrapping_once(site):
    def application(environ, start_response):
        serve(environ)
        start_response("200 OK", [])
        return [b"page"]

    assert speaks(site.ask(upgradable(upgradable(application)), head()))


def test_other_requests_pass_unchanged(site):
    body = Body(b"a", b"b")
    environs = []

    def application(environ, start_response):
        environs.append(environ)
        start_response("200 OK", [("X-Own", "1")])(b"written ")
        return body

    answer = site.ask(upgradable(application), GET)
    assert (answer.status, answer.headers["x-own"]) == (200, "1")
    answer.end.rest()
    assert body.closed == 1
    assert DOOR_KEY not in environs[0]


def test_the_very_body_of_other_requests_reaches_the_server():
    body = [b"x"]
    assert upgradable(lambda environ, start_response: body)({}, lambda *args: None) is body


def test_a_generator_that_upgrades_nothing_passes(site):
    def application(environ, start_response):
        start_response("200 OK", [("Content-Length", "2")])
        yield b"o"
        yield b"k"

    answer = site.ask(upgradable(application), GET)
    assert (answer.status, answer.body()) == (200, b"ok")


def test_an_upgrade_that_the_framework_refuses_by_itself_does_not_keep_the_connection(site):
    def application(environ, start_response):
        start_response("401 Unauthorized", [("Content-Length", "3")])
        return [b"who"]

    answer = site.ask(upgradable(application), head() + frame(TEXT, b"hasty", masked=True))
    assert (answer.status, answer.body()) == (401, b"who")
    assert answer.end.rest() == b""
    ordinary = GET.replace(b"Connection: close\r\n", b"")
    kept = site.ask(upgradable(application), ordinary)
    assert kept.body() == b"who"
    assert exchange(kept.end.sock, ordinary).status == 401


@pytest.mark.parametrize("late", [False, True])
def test_an_answer_that_has_begun_cannot_become_an_upgrade(site, late):
    def begun(environ, start_response):
        start_response("200 OK", [("Content-Length", "2")])
        with pytest.raises(TransportUnsupportedError, match="begun"):
            serve(environ)
        return [b"ok"]

    def later(environ, start_response):
        yield from begun(environ, start_response)

    answer = site.ask(upgradable(later if late else begun), head())
    assert (answer.status, answer.body()) == (200, b"ok")


def test_one_request_is_upgraded_once(site):
    def application(environ, start_response):
        body = serve(environ)
        with pytest.raises(TransportUnsupportedError, match="begun"):
            serve(environ)
        return [body]

    assert speaks(site.ask(upgradable(application), head()))


def test_the_framework_may_answer_with_an_error_of_its_own(site):
    def application(environ, start_response):
        start_response("200 OK", [("Content-Length", "2")])
        try:
            raise ValueError
        except ValueError:
            start_response("500 Oh", [("Content-Length", "2")], sys.exc_info())
        return [b"oh"]

    answer = site.ask(upgradable(application), GET)
    assert (answer.status, answer.body()) == (500, b"oh")


def test_an_exception_passes_and_the_door_is_gone():
    environ: dict[str, Any] = {}

    def application(environ, start_response):
        raise LookupError

    with pytest.raises(LookupError):
        upgradable(application)(environ, lambda *args: None)
    assert environ == {}


def test_an_exception_after_the_upgrade_is_logged_and_not_answered(expected_hub_errors):
    site = Site()

    def application(environ, start_response):
        serve(environ)
        raise LookupError("afterwards")

    assert speaks(site.ask(upgradable(application), head()))
    site.end()
    assert [type(error.error) for error in expected_hub_errors] == [LookupError]
    assert '" 101 ' in site.log.getvalue()
