"""C26: a bad handshake is refused with a status of 4xx and a body, and nothing is written to standard error."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cases.green import SERVERS, green
from tests.hosts.client import exchange, head

pytestmark = pytest.mark.case("C26")

BAD: list[tuple[int, bytes]] = [
    (400, head({"Sec-WebSocket-Key": "!!!"})),
    (400, head({"Sec-WebSocket-Key": ""})),
    (400, head({"Sec-WebSocket-Key": None})),
    # 15 and 17 bytes.
    (400, head({"Sec-WebSocket-Key": "MDEyMzQ1Njc4OWFiY2Rl"})),
    (400, head({"Sec-WebSocket-Key": "MDEyMzQ1Njc4OWFiY2RlZmc="})),
    (400, head({"Sec-WebSocket-Key": "\xe9\xff\xfe"})),
    (400, head({"Sec-WebSocket-Key": "MDEyMzQ1Njc4OWFiY2RlZg"})),
    (400, head({"Sec-WebSocket-Key": "x" * 5_000})),
    (400, head(lines=["Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="])),
    (426, head({"Sec-WebSocket-Version": "12"})),
    (426, head({"Sec-WebSocket-Version": "8"})),
    (426, head({"Sec-WebSocket-Version": "014"})),
    (400, head({"Sec-WebSocket-Version": None})),
    (426, head({"Sec-WebSocket-Version": ""})),
    (400, head(version="HTTP/1.0")),
    (405, head(method="POST")),
    (405, head(method="PUT")),
    (400, head({"Content-Length": "5"}) + b"hello"),
    (400, head({"Host": None})),
    (400, head({"Host": "a.example/b"})),
    (400, head({"Host": "a.example, b.example"})),
    (400, head({"Sec-WebSocket-Protocol": "\xe9"})),
    (426, head({"Upgrade": None})),
]


@pytest.mark.parametrize("kind", SERVERS)
def test_each_is_refused(kind: str, capfd: pytest.CaptureFixture[str]) -> None:
    with green(kind=kind) as site:
        for status, data in BAD:
            answer = exchange(site.connect(), data)
            assert 400 <= answer.status < 500
            assert (data, answer.status) == (data, status)
            assert answer.body().strip()
            if b"Sec-WebSocket-Version: 8" in data or b"Sec-WebSocket-Version: 12" in data:
                assert answer.headers["sec-websocket-version"] == "13"
            answer.end.sock.close()
        assert site.handled == site.peers == []
        # And a good one is still taken.
        site.open()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("kind", SERVERS)
def test_a_refused_head_request_has_no_body(kind: str) -> None:
    with green(kind=kind) as site:
        answer = exchange(site.connect(), head(method="HEAD"))
        assert answer.status == 405
        assert answer.end.rest() == b""


@pytest.mark.parametrize("kind", SERVERS)
def test_too_many_peers_are_told_to_come_again(kind: str) -> None:
    with green(kind=kind, max_peers=2) as site:
        ends = [site.open(), site.open()]
        refused = site.ask()
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        ends[0].sock.close()
        answer: Any = refused
        while answer.status == 503:
            answer = site.ask()
        assert answer.status == 101
