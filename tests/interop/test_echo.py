"""`python -m muxws_green.echo` in a process of its own, until it is told to stop; a reference dialer talks to it."""

from __future__ import annotations

import re
import signal

import pytest

from tests.interop.matter import blob, digest
from tests.interop.process import reference_client, running

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.watchdog(30)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("codec_name", ["json", "msgpack"])
def test_the_echo_server(codec_name: str, number: signal.Signals) -> None:
    arguments = ["--port", "0", "--codec", codec_name, "--max-concurrent-streams", "300"]
    with running("muxws_green.echo", *arguments) as server, reference_client(codec_name) as reference:
        (url,) = re.findall(r"ws://127\.0\.0\.1:\d+/", server.line().decode())
        reference.do("dial", url=url)
        assert reference.do("many", count=200) == [{"do": "echo", "n": n} for n in range(200)]
        big = reference.do("echo_blob", size=1_000_000)
        assert big == digest(blob(1_000_000, binary=codec_name == "msgpack"))
        stream = reference.do("echo_begin", items=["a", "b"])
        assert stream["got"] == ["a", "b"]
        server.process.send_signal(number)
        # The stream that is live may finish; then the server closes as one that goes away.
        assert reference.do("echo_end", item="c") == ["c"]
        assert reference.do("wait_closed")["code"] == 1001
        assert server.wait() == 0
        assert server.line() == b""
