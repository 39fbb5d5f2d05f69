"""C03: exactly `muxws.v1.<codec>` is selected; otherwise there is a 400 and no upgrade."""

from __future__ import annotations

import pytest

from muxws_green import CodecMismatch, Reconnect, connect
from muxws_green.codecs import MsgpackCodec
from tests.cases.green import SERVERS, green
from tests.transports.raw import TEXT, frame

pytestmark = pytest.mark.case("C03")

on_both = pytest.mark.parametrize("kind", SERVERS)


@on_both
@pytest.mark.parametrize(
    "offer",
    [
        ["muxws.v1.json"],
        ["muxws.v1.json, bearer.abc"],
        ["bearer.abc, muxws.v1.json"],
        ["bearer.abc", "muxws.v1.json"],
        ["muxws.v1.json", "bearer.abc", "chat"],
        ["  muxws.v1.json\t,bearer.abc"],
        # Only the first that begins with `muxws.v1.` counts, and this one does not.
        ["xmuxws.v1.json, muxws.v2.json, muxws.v1.json"],
    ],
)
def test_it_is_selected(kind: str, offer: list[str]) -> None:
    with green(kind=kind) as site:
        answer = site.ask(
            sec_websocket_protocol=None, lines=[f"Sec-WebSocket-Protocol: {entries}" for entries in offer]
        )
        assert answer.status == 101
        assert answer.headers["sec-websocket-protocol"] == "muxws.v1.json"


@on_both
@pytest.mark.parametrize(
    "offer",
    [
        ["xmuxws.v1.jsonx"],
        ["muxws.v1.jsonx"],
        ["muxws.v2.json"],
        ["muxws.v1.msgpack"],
        ["muxws.v1.msgpack, muxws.v1.json"],
        ["muxws.v1.msgpack", "muxws.v1.json"],
        ["muxws.v1.JSON"],
        ["MUXWS.V1.json"],
        ["muxws.v1."],
        ["muxws.v1"],
        ["bearer.abc"],
        ['"muxws.v1.json"'],
        [""],
        [","],
        [],
    ],
)
def test_it_is_refused_and_no_handler_runs(kind: str, offer: list[str]) -> None:
    with green(kind=kind) as site:
        answer = site.ask(
            sec_websocket_protocol=None,
            lines=[f"Sec-WebSocket-Protocol: {entries}" for entries in offer],
            behind=frame(TEXT, b'{"type":"open","stream":1,"payload":1}', masked=True),
        )
        assert answer.status == 400
        assert "sec-websocket-protocol" not in answer.headers
        assert b"101" not in answer.body() + answer.end.rest()
        assert site.handled == []
        assert site.peers == []


@on_both
def test_two_ends_of_ours_with_different_codecs(kind: str) -> None:
    with green(kind=kind, codec=MsgpackCodec()) as site, pytest.raises(CodecMismatch, match="MUXWS_CODEC"):
        connect(site.url, codec="json", reconnect=Reconnect(max_attempts=0))
