"""C04: `Connection` is a list of tokens in any case, and so is `Upgrade`; neither is a word to be searched for."""

from __future__ import annotations

import pytest

from tests.cases.green import SERVERS, ask_stream, green, heard

pytestmark = pytest.mark.case("C04")

on_both = pytest.mark.parametrize("kind", SERVERS)


@on_both
@pytest.mark.parametrize(
    "connection",
    [
        "Upgrade",
        "upgrade",
        "UPGRADE",
        "keep-alive, Upgrade",
        "Upgrade, keep-alive",
        "keep-alive,upgrade",
        "foo , \tuPgRaDe\t, bar",
        ", Upgrade,",
    ],
)
def test_any_list_with_the_token_is_taken(kind: str, connection: str) -> None:
    with green(kind=kind) as site:
        answer = site.ask(connection=connection)
        assert answer.status == 101
        ask_stream(answer.end, 1, "works")
        assert heard(answer.end)["payload"] == "works"


@on_both
def test_the_list_may_be_spread_over_lines(kind: str) -> None:
    with green(kind=kind) as site:
        assert site.ask(connection="keep-alive", lines=["Connection: Upgrade"]).status == 101


@on_both
@pytest.mark.parametrize("connection", ["no-upgrade", "upgraded", "keep-alive", "close", "Upgrade;x", "up grade", ""])
def test_without_the_token_there_is_no_upgrade(kind: str, connection: str) -> None:
    with green(kind=kind) as site:
        answer = site.ask(connection=connection)
        assert 400 <= answer.status < 500
        assert site.peers == []


@on_both
@pytest.mark.parametrize("upgrade,status", [("WebSocket", 101), ("WEBSOCKET", 101), ("h2c", 426), ("websockets", 426)])
def test_the_upgrade_header_likewise(kind: str, upgrade: str, status: int) -> None:
    with green(kind=kind) as site:
        assert site.ask(upgrade=upgrade).status == status
