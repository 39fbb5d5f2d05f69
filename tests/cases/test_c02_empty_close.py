"""C02: an empty close frame is answered without a code that nobody sent, and what may not be sent is never echoed."""

from __future__ import annotations

from pathlib import Path

import gevent
import pytest

from muxws_green import CloseReason, Reconnect, connect
from tests.cases.green import SERVERS, close_payload, green, seconds_to_eof, until
from tests.transports.raw import CLOSE, PATIENCE, close_frame, frame
from tests.transports.scripted import Scripted

pytestmark = pytest.mark.case("C02")

on_both = pytest.mark.parametrize("kind", SERVERS)


@on_both
def test_an_empty_close_is_answered_empty_or_with_1000(kind: str) -> None:
    with green(kind=kind) as site:
        end = site.open()
        end.send(CLOSE)
        assert close_payload(end) in (b"", b"\x03\xe8")
        assert seconds_to_eof(end.sock) < 1.0
        until(lambda: site.closes)
        ((_, reason),) = site.closes
        assert (reason.code, reason.was_clean) == (1005, False)


@on_both
def test_a_code_that_may_not_be_on_the_wire_is_not_echoed(kind: str) -> None:
    with green(kind=kind) as site:
        for code in (0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65_535):
            end = site.open()
            end.sock.sendall(close_frame(code, masked=True))
            assert (code, close_payload(end)[:2]) == (code, b"\x03\xea")


@on_both
def test_a_broken_close_frame_is_a_violation(kind: str) -> None:
    with green(kind=kind) as site:
        for payload, code in ((b"\x03", 1002), (b"\x03\xe8\xff\xfe", 1007), (b"\x03\xe8" + b"x" * 124, 1002)):
            end = site.open()
            end.send(CLOSE, payload)
            assert (payload, close_payload(end)[:2]) == (payload, code.to_bytes(2, "big"))


def test_a_dialer_answers_an_empty_close_in_the_same_way(tmp_path: Path) -> None:
    with Scripted(lambda connection: connection.upgrade()) as server:
        told: list[CloseReason] = []
        peer = connect(server.url, heartbeat=None, reconnect=Reconnect(max_attempts=0), on_close=told.append)
        raw = server.connections[0].raw
        raw.sock.sendall(frame(CLOSE, masked=False))
        (answer,) = raw.frames(1)
        assert answer.opcode == CLOSE
        assert answer.payload in (b"", b"\x03\xe8")
        assert raw.rest() == b""
        with gevent.Timeout(PATIENCE):
            gevent.wait([peer])
        until(lambda: told)
        assert (told[0].code, told[0].was_clean) == (1005, False)
