"""C16: after a connection nothing of it is left in memory."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest

from tests.cases.green import SERVERS, ask_stream, green, heard, opening, resident_bytes, until
from tests.hosts.client import ClientEnd, exchange, head
from tests.hosts.process import serving
from tests.transports.raw import TEXT, close_frame

pytestmark = [pytest.mark.case("C16"), pytest.mark.slow]

MAX_GROWTH_BYTES = 5 * 1024 * 1024


def leave(end: ClientEnd, number: int, hanging: Any) -> None:
    """In one of three ways, one of them in the midst of a stream."""
    if number % 3 == 0:
        end.sock.sendall(close_frame(1000, masked=True))
        end.rest()
    elif number % 3 == 1:
        end.send(TEXT, opening(3, hanging, end=False))
    end.sock.close()


@pytest.mark.leaks
@pytest.mark.parametrize("kind", SERVERS)
def test_no_object_of_five_hundred_connections_is_left(kind: str) -> None:
    seen: list[weakref.ref[Any]] = []

    def handler(payload: Any, stream: Any) -> None:
        seen.append(weakref.ref(stream))
        if payload == "hang":
            stream.receive()
        stream.reply(payload)

    with green(handler, kind=kind, ping_interval=20.0) as site:
        for number in range(500):
            end = site.open()
            link: Any = site.peers[-1]._link
            seen.extend(map(weakref.ref, (site.peers[-1], link, link.transport, link.transport._sock)))
            del link
            ask_stream(end, 1, "hello")
            assert heard(end)["payload"] == "hello"
            leave(end, number, "hang")
            site.close_sockets()
        until(lambda: len(site.closes) == len(site.peers) and not site.app.peers)
        site.peers.clear()
        site.closes.clear()
        gc.collect()
        assert [ref() for ref in seen if ref() is not None] == []
        assert len(seen) >= 500 * 5


@pytest.mark.host
@pytest.mark.parametrize("host", ["pywsgi", "server"])
def test_a_server_does_not_grow(host: str, tmp_path: Path) -> None:
    with serving(host, tmp_path, "peers") as server:

        def visit(count: int) -> None:
            for number in range(count):
                answer = exchange(server.connect(), head())
                ask_stream(answer.end, 1, 0)
                assert heard(answer.end)["payload"] == "done"
                leave(answer.end, number, 60)
            server.close_clients()

        visit(50)
        before = resident_bytes(server.process.pid)
        visit(500)
        assert resident_bytes(server.process.pid) - before < MAX_GROWTH_BYTES
        assert server.errors() == ""
