"""C49: frames that come together with the handshake are taken, on both ends and wherever the packets are cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gevent
import pytest

from muxws_green import Reconnect, connect
from tests.cases.green import SERVERS, green, heard, opening, until
from tests.hosts.client import exchange, head
from tests.transports.raw import PATIENCE, PING, PONG, TEXT, close_frame, frame
from tests.transports.scripted import Connection, Scripted

pytestmark = pytest.mark.case("C49")


def said(number: int, *, masked: bool, size: int = 3) -> bytes:
    return frame(TEXT, opening(number, "x" * size), masked=masked)


@pytest.mark.parametrize("size", [3, 4_000, 60_000])
@pytest.mark.parametrize("hello", [None, {"agent": 7}])
def test_a_stream_that_is_pushed_with_the_101(size: int, hello: Any) -> None:
    handled: list[Any] = []

    def push(connection: Connection) -> None:
        # The acknowledgement of the hello is behind it.
        acknowledged = frame(TEXT, b'{"type":"data","stream":1,"end":true}', masked=False)
        behind = said(2, masked=False, size=size) + said(4, masked=False)
        connection.upgrade(behind=behind + (acknowledged if hello else b""))

    with Scripted(push) as server:
        peer = connect(
            server.url,
            hello=hello,
            heartbeat=None,
            reconnect=Reconnect(max_attempts=0),
            on_stream=lambda payload, stream: handled.append(payload),
        )
        until(lambda: len(handled) == 2)
        assert handled == ["x" * size, "xxx"]
        server.connections[0].sock.close()
        with gevent.Timeout(PATIENCE):
            gevent.wait([peer])


def test_the_answer_may_be_cut_anywhere(tmp_path: Path) -> None:
    """One byte short of the head, right behind it, in the middle of a frame."""
    handled: list[Any] = []
    for kept_back in (0, 1, len(said(2, masked=False)) - 1, len(said(2, masked=False)), len(said(2, masked=False)) + 1):

        def cut(connection: Connection, kept_back: int = kept_back) -> None:
            sock, parts = connection.sock, []

            class Collecting:
                def __getattr__(self, name: str) -> Any:
                    return getattr(sock, name)

                def sendall(self, data: bytes) -> None:
                    parts.append(data)

            connection.sock = Collecting()  # type: ignore[assignment]
            connection.upgrade(behind=said(2, masked=False))
            connection.sock = sock
            (whole,) = parts
            sock.sendall(whole[: len(whole) - kept_back])
            gevent.sleep(0.01)
            sock.sendall(whole[len(whole) - kept_back :])

        with Scripted(cut) as server:
            peer = connect(
                server.url,
                heartbeat=None,
                reconnect=Reconnect(max_attempts=0),
                on_stream=lambda payload, stream: handled.append(payload),
            )
            until(lambda: handled)
            assert handled.pop() == "xxx"
            server.connections[0].sock.close()
            with gevent.Timeout(PATIENCE):
                gevent.wait([peer])


def test_a_close_that_comes_with_the_101() -> None:
    told: list[Any] = []
    with Scripted(lambda connection: connection.upgrade(behind=close_frame(1013, "busy", masked=False))) as server:
        peer = connect(server.url, heartbeat=None, reconnect=Reconnect(max_attempts=0), on_close=told.append)
        with gevent.Timeout(PATIENCE):
            gevent.wait([peer])
        until(lambda: told)
        assert (told[0].code, told[0].reason) == (1013, "busy")


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("size", [3, 4_000, 20_000, 60_000])
def test_a_stream_that_is_opened_with_the_request(kind: str, size: int) -> None:
    with green(kind=kind) as site:
        end = site.open(behind=said(1, masked=True, size=size) + frame(PING, b"p", masked=True) + said(3, masked=True))
        answers: dict[int, str] = {}
        pong = None
        while len(answers) < 2 or pong is None:
            message = end.frame()
            if message.opcode == PONG:
                pong = message.payload
                continue
            end._frames.appendleft(message)
            answer = heard(end)
            answers[answer["stream"]] = answer["payload"]
        assert (answers, pong) == ({1: "x" * size, 3: "xxx"}, b"p")


@pytest.mark.parametrize("kind", SERVERS)
def test_the_request_may_be_cut_anywhere(kind: str) -> None:
    whole = head() + said(1, masked=True)
    with green(kind=kind) as site:
        for at in (1, len(head()) - 1, len(head()), len(head()) + 1, len(whole) - 1):
            sock = site.connect()
            sock.sendall(whole[:at])
            gevent.sleep(0.01)
            answer = exchange(sock, whole[at:])
            assert answer.status == 101
            assert heard(answer.end)["payload"] == "xxx"
            sock.close()
