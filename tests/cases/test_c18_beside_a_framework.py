"""C18: mounted as plain WSGI ahead of a framework, a peer is answered once, and nobody else notices."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask

from tests.cases.green import SERVERS, ask_stream, green, heard, until
from tests.hosts.client import exchange
from tests.transports.raw import CLOSE, PATIENCE, TEXT, close_frame

pytestmark = pytest.mark.case("C18")

GET = b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n"


def flask_app() -> Any:
    app = Flask("beside")

    @app.route("/")
    def index() -> str:
        return "an ordinary answer"

    return app


def router(mounted: Any) -> Any:
    """`/ws` is a peer's; everything else is the framework's."""
    framework = flask_app()

    def application(environ: dict[str, Any], start_response: Any) -> Any:
        if environ["PATH_INFO"] == "/ws":
            return mounted(environ, start_response)
        return framework(environ, start_response)

    return application


def statuses(log: str) -> list[str]:
    return [line.split('" ')[1].split()[0] for line in log.splitlines()]


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("how", ["close", "fin", "violation"])
def test_the_access_log_tells_of_one_answer(kind: str, how: str) -> None:
    with green(kind=kind, wrap=router) as site:
        kept = [site.connect() for _ in range(3)]
        for sock in kept:
            assert exchange(sock, GET % b"/").body() == b"an ordinary answer"
        end = site.open()
        for number in (1, 3, 5):
            # The second message is where others have failed.
            ask_stream(end, number, number)
            assert heard(end)["payload"] == number
            for sock in kept:
                assert exchange(sock, GET % b"/").body() == b"an ordinary answer"
        if how == "close":
            end.sock.sendall(close_frame(1000, masked=True) + GET % b"/")
            assert end.frame().opcode == CLOSE
            assert end.rest() == b""
        elif how == "violation":
            end.send(TEXT, b"no json")
            assert heard(end)["type"] == "goaway"
            assert heard(end)[:2] == b"\x03\xea"
        end.sock.close()
        until(lambda: site.closes)
        for sock in kept:
            assert exchange(sock, GET % b"/").body() == b"an ordinary answer"
            assert exchange(sock, GET % b"/missing").status == 404
        seen = until(lambda: "101" in (seen := statuses(site.log.getvalue())) and seen)
        assert sorted(seen) == ["101", *["200"] * 15, *["404"] * 3]


@pytest.mark.parametrize("kind", SERVERS)
def test_requests_are_answered_while_many_peers_come_and_go(kind: str) -> None:
    with green(kind=kind, wrap=router) as site:
        kept = site.connect()
        kept.settimeout(PATIENCE)
        for _ in range(20):
            end = site.open()
            ask_stream(end, 1, "x")
            assert heard(end)["payload"] == "x"
            end.reset()
            assert exchange(kept, GET % b"/").body() == b"an ordinary answer"
        until(lambda: len(site.closes) == 20)
        assert set(statuses(site.log.getvalue())) == {"101", "200"}
