"""C09: no extension is negotiated, and a frame that uses one is a violation."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any, cast

import pytest

from muxws_green import Reconnect, connect
from tests.cases.green import SERVERS, ask_stream, close_payload, green, heard, opening, raw_close
from tests.transports.raw import CONTINUATION, PING, TEXT, frame
from tests.transports.scripted import Connection, Scripted

pytestmark = pytest.mark.case("C09")

DEFLATE = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits, x-webkit-deflate-frame"


def with_bits(data: bytes, bits: int) -> bytes:
    return bytes([data[0] | bits]) + data[1:]


def compressed(number: int, *, masked: bool) -> bytes:
    """A stream's beginning, as permessage-deflate would send it."""
    deflate = zlib.compressobj(wbits=-15)
    data = deflate.compress(opening(number, "x" * 1000)) + deflate.flush(zlib.Z_SYNC_FLUSH)
    return with_bits(frame(TEXT, data[:-4], masked=masked), 0x40)


@pytest.mark.parametrize("kind", SERVERS)
def test_an_offer_is_not_taken_up(kind: str) -> None:
    with green(kind=kind) as site:
        answer = site.ask(lines=[DEFLATE])
        assert answer.status == 101
        assert "sec-websocket-extensions" not in answer.headers
        ask_stream(answer.end, 1, "plain")
        assert heard(answer.end)["payload"] == "plain"


@pytest.mark.parametrize("kind", SERVERS)
def test_a_reserved_bit_closes_with_1002(kind: str) -> None:
    plain = frame(TEXT, opening(1, "never"), masked=True)
    begun = frame(TEXT, opening(1, "never")[:5], masked=True, fin=False)
    with green(kind=kind) as site:
        for data in (
            compressed(1, masked=True),
            with_bits(plain, 0x40),
            with_bits(plain, 0x20),
            with_bits(plain, 0x10),
            with_bits(plain, 0x70),
            begun + with_bits(frame(CONTINUATION, opening(1, "never")[5:], masked=True), 0x40),
            with_bits(frame(PING, b"x", masked=True), 0x40),
        ):
            end = site.ask(lines=[DEFLATE]).end
            end.sock.sendall(data)
            assert close_payload(end)[:2] == b"\x03\xea"
        assert site.handled == []


class Tampered:
    """A socket that adds a header to every head that is sent on it."""

    def __init__(self, sock: Any) -> None:
        self._sock = sock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def sendall(self, data: bytes) -> None:
        line = b"\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
        self._sock.sendall(data.replace(b"\r\n\r\n", line))


def test_a_server_that_takes_up_what_was_not_offered_is_refused(tmp_path: Path) -> None:
    def deflate(connection: Connection) -> None:
        assert b"sec-websocket-extensions" not in connection.read_request().lower()
        connection.sock = cast("Any", Tampered(connection.sock))
        connection.upgrade()

    with Scripted(deflate) as server:
        with pytest.raises(OSError, match=r"(?i)extension"):
            connect(server.url, reconnect=Reconnect(max_attempts=0))
        assert server.all_ended()


def test_a_reserved_bit_of_a_servers_closes_with_1002(tmp_path: Path) -> None:
    handled: list[object] = []
    with Scripted(lambda connection: connection.upgrade()) as server:
        peer = connect(
            server.url,
            heartbeat=None,
            reconnect=Reconnect(max_attempts=0),
            on_stream=lambda payload, stream: handled.append(payload),
        )
        raw = server.connections[0].raw
        raw.sock.sendall(compressed(2, masked=False))
        assert raw_close(raw).close_code == 1002
        peer.close(drain=0.0)
    assert handled == []
