"""C06: a page of another site cannot connect; it is refused with 403 before the upgrade and before any code of the
application's.
"""

from __future__ import annotations

from typing import Any

import pytest

from muxws_green import HandshakeRefused, OriginRefused, Reconnect, SameOrigin, accept, connect
from tests.cases.green import SERVERS, green
from tests.transports.raw import TEXT, frame

pytestmark = pytest.mark.case("C06")

on_both = pytest.mark.parametrize("kind", SERVERS)

OPEN = frame(TEXT, b'{"type":"open","stream":1,"payload":1}', masked=True)


def ask(site: Any, *origins: str, host: str = "localhost") -> int:
    """A handshake from a page of that origin, with a frame right behind it; its status."""
    answer = site.ask(host=host, lines=[f"Origin: {origin}" for origin in origins], behind=OPEN)
    if answer.status != 101:
        answer.body()
        # The frame behind a refused request reaches nobody.
        assert answer.end.rest() == b""
    return answer.status


@on_both
def test_only_the_pages_of_a_list(kind: str) -> None:
    with green(kind=kind, allowed_origins=["https://good.example", "http://other.example:8000"]) as site:
        for origin in (
            "http://evil.example",
            "http://good.example",
            "https://good.example:444",
            "https://good.example.evil.example",
            "https://evil.example/https://good.example",
            "https://good.example@evil.example",
            "https://xgood.example",
            "http://other.example",
            "null",
            "",
        ):
            assert (origin, ask(site, origin)) == (origin, 403)
        assert ask(site) == 403
        assert ask(site, "https://good.example", "https://good.example") == 403
        assert ask(site, "https://good.example, https://evil.example") == 403
        assert site.handled == site.peers == []
        for origin in ("https://good.example", "https://GOOD.example:443/", "http://other.example:8000"):
            assert (origin, ask(site, origin)) == (origin, 101)


@on_both
def test_only_pages_of_the_same_origin(kind: str) -> None:
    with green(kind=kind, allowed_origins=SameOrigin(also=["https://friend.example"])) as site:
        port = site.server.server_port
        here = f"127.0.0.1:{port}"
        for origin in (
            "http://evil.example",
            f"http://{here}.evil.example",
            f"http://127.0.0.1:{port + 1}",
            "http://127.0.0.1",
            "null",
        ):
            assert (origin, ask(site, origin, host=here)) == (origin, 403)
        assert ask(site, host=here) == 403
        assert site.handled == site.peers == []
        # TLS may end at a proxy, so the scheme does not matter.
        for origin in (f"http://{here}", f"https://{here}", "https://friend.example"):
            assert (origin, ask(site, origin, host=here)) == (origin, 101)


@on_both
def test_agents_have_no_origin_and_a_callable_may_let_them_in(kind: str) -> None:
    asked: list[str | None] = []

    def policy(origin: str | None) -> bool:
        asked.append(origin)
        return origin is None

    with green(kind=kind, allowed_origins=policy) as site:
        assert ask(site, "http://evil.example") == 403
        assert ask(site, "null") == 403
        assert ask(site, "http://a.example", "http://b.example") == 403
        with connect(site.url, heartbeat=None) as peer:
            assert peer.request("agent", timeout=5.0) == "agent"
        with pytest.raises(HandshakeRefused) as refused:
            connect(site.url, headers={"Origin": "http://evil.example"}, reconnect=Reconnect(max_attempts=0))
        assert refused.value.status == 403
        # Several are refused before anybody is asked.
        assert asked == ["http://evil.example", "null", None, "http://evil.example"]


def test_whoever_accepts_by_hand_learns_the_origin() -> None:
    refused: list[OriginRefused] = []

    def application(environ: dict[str, Any], start_response: Any) -> Any:
        try:
            accept(environ, start_response, allowed_origins=SameOrigin())
        except OriginRefused as error:
            refused.append(error)
        start_response("403 Forbidden", [("Content-Length", "2")])
        return [b"no"]

    # In place of the application of `green`.
    with green(wrap=lambda _: application) as site:
        for lines in (["Origin: http://evil.example"], [], ["Origin: null"], ["Origin: http://a.example"] * 2):
            answer = site.ask(lines=lines)
            assert (answer.status, answer.body()) == (403, b"no")
    assert [error.origin for error in refused] == [
        "http://evil.example",
        None,
        "null",
        "http://a.example, http://a.example",
    ]
    assert all(error.status == 403 for error in refused)
