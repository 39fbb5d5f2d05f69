"""C01: the code given to a close reaches the wire, whichever end begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gevent
import pytest
import websockets.sync.client
from websockets.exceptions import ConnectionClosed as WebsocketsClosed
from websockets.typing import Subprotocol

from muxws_green import Reconnect, connect
from tests.cases.green import SERVERS, close_payload, green, opening
from tests.transports.raw import CLOSE, PATIENCE, TEXT, close_frame
from tests.transports.scripted import Scripted

pytestmark = pytest.mark.case("C01")

on_both = pytest.mark.parametrize("kind", SERVERS)


@on_both
@pytest.mark.parametrize("code,reason", [(1000, "done"), (1001, ""), (1011, "é" * 61), (3000, "x"), (4999, "")])
def test_a_close_of_the_clients_is_answered_with_its_code(kind: str, code: int, reason: str) -> None:
    with green(kind=kind) as site:
        end = site.open()
        end.sock.sendall(close_frame(code, reason, masked=True))
        assert close_payload(end)[:2] == code.to_bytes(2, "big")
        assert end.rest() == b""


@on_both
def test_a_close_of_the_servers_has_its_code(kind: str) -> None:
    with green(kind=kind) as site:
        end = site.open()
        # An id of the server's own.
        end.send(TEXT, opening(2, "wrong"))
        assert close_payload(end)[:2] == b"\x03\xea"
        end.sock.sendall(close_frame(1002, masked=True))
        end = site.open()
        closing = gevent.spawn(site.peers[1].close, reason="ü" * 100)
        payload = close_payload(end)
        # 123 bytes of UTF-8 at most, and no half letter at the end.
        assert payload == b"\x03\xe8" + "ü".encode() * 61
        end.sock.sendall(close_frame(1000, masked=True))
        closing.get(timeout=PATIENCE)


@on_both
@pytest.mark.parametrize("violation,code", [(None, 1000), (opening(2, "wrong"), 1002), (b"no json", 1002)])
def test_an_independent_client_sees_the_code_and_never_1006(kind: str, violation: bytes | None, code: int) -> None:
    def client(url: str) -> Any:
        protocol = Subprotocol("muxws.v1.json")
        with websockets.sync.client.connect(url, subprotocols=[protocol], proxy=None, open_timeout=PATIENCE) as socket:
            socket.send((opening(1, "bye") if violation is None else violation).decode())
            try:
                while True:
                    socket.recv(timeout=PATIENCE)
            except WebsocketsClosed as closed:
                return closed.rcvd

    def handler(payload: Any, stream: Any) -> None:
        stream.reply(payload)
        site.peers[0].close(reason="as asked")

    with green(handler, kind=kind) as site:
        received = gevent.get_hub().threadpool.apply(client, (site.url,))
        assert received is not None
        assert received.code == code
        if code == 1000:
            assert received.reason == "as asked"


def test_a_dialer_sends_and_echoes_codes_too(tmp_path: Path) -> None:
    with Scripted(lambda connection: connection.upgrade()) as server:
        for begin in ("here", "there"):
            peer = connect(server.url, heartbeat=None, reconnect=Reconnect(max_attempts=0))
            raw = server.connections[-1].raw
            if begin == "here":
                closing = gevent.spawn(peer.close, reason="done")
                goaway, last = raw.frames(2)
                assert goaway.opcode == TEXT
                raw.sock.sendall(close_frame(1000, masked=False))
                closing.get(timeout=PATIENCE)
                expected = b"\x03\xe8done"
            else:
                raw.sock.sendall(close_frame(4001, "why", masked=False))
                (last,) = raw.frames(1)
                expected = b"\x0f\xa1why"
            assert (last.opcode, last.payload, last.masked) == (CLOSE, expected, True)
            assert raw.rest() == b""
            with gevent.Timeout(PATIENCE):
                gevent.wait([peer])
