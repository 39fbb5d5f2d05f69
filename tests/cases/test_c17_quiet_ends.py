"""C17: that a client goes is no error: no traceback, one line in the access log, `on_close` once."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.cases.green import SERVERS, ask_stream, green, heard, until
from tests.hosts.client import ClientEnd
from tests.transports.raw import TEXT, close_frame, frame

pytestmark = pytest.mark.case("C17")


def leave(end: ClientEnd, how: str) -> None:
    if how in ("close", "close and go"):
        end.sock.sendall(close_frame(1001, masked=True))
    if how == "close":
        end.rest()
    if how == "half a frame":
        end.sock.sendall(frame(TEXT, b"x" * 100, masked=True)[:9])
    if how == "rst":
        end.reset()
    else:
        end.sock.close()


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("how", ["fin", "rst", "close", "close and go", "half a frame"])
def test_a_client_that_goes_is_no_error(
    kind: str, busy: bool, how: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO, "muxws")

    def handler(payload: Any, stream: Any) -> None:
        if payload == "stream":
            # Whatever the kernel takes, the client is gone in the midst of it.
            while True:
                stream.send("x" * 60_000)
        stream.reply(payload)

    with green(handler, kind=kind) as site:
        end = site.open()
        ask_stream(end, 1, "hello")
        assert heard(end)["payload"] == "hello"
        if busy:
            ask_stream(end, 3, "stream")
            assert heard(end)["stream"] == 3
        if busy and how == "close":
            # It does not read on to the end, which would never come.
            how = "close and go"
        leave(end, how)
        until(lambda: site.closes)
        until(lambda: kind == "server" or site.log.getvalue())
    ((_, reason),) = site.closes
    # A close frame that is behind what nobody reads may be lost with the socket.
    codes = {"close": {1001}, "close and go": {1001, 1006} if busy else {1001}}
    assert reason.code in codes.get(how, {1006})
    assert not reason.will_retry
    assert capfd.readouterr().err == ""
    assert site.log.getvalue().count("\n") == 1
    assert len(caplog.records) <= 1, [record.getMessage() for record in caplog.records]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
