"""`echo`, until it is told to stop; and the place that it cannot have."""

from __future__ import annotations

import pytest
from gevent import socket

from muxws_green import Reconnect, connect
from muxws_green.echo import HOSTS
from tests.cli.programs import Program, cli

pytestmark = [pytest.mark.slow, pytest.mark.watchdog(60)]


@pytest.mark.parametrize("via", HOSTS)
def test_echo(via: str) -> None:
    with Program("echo", "--port", "0", "--via", via, "--json") as program:
        url = program.expect(r'\{"event": "listening", "url": "(ws://127\.0\.0\.1:\d+/)"\}')[1]
        assert cli("request", url, '"again"').out == '"again"\n'
        with connect(url, reconnect=Reconnect(max_attempts=0)) as peer:
            program.interrupt()
            peer.serve()
        assert program.wait() == 0


def test_a_client_may_have_so_many_streams() -> None:
    with Program("echo", "--port", "0", "--max-concurrent-streams", "1") as program:
        url = program.expect(r"listening on (\S+)")[1]
        ran = cli("connect", url, stdin="/open 1\n2\n")
        assert ran.code == 1
        assert "[3] reset REFUSED" in ran.out


def test_a_place_that_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        ran = cli("echo", "--port", str(taken.getsockname()[1]))
    assert ran.code == 2
    assert "Address already in use" in ran.err
    assert "--port 0" in ran.err
