"""Our commands against the reference's server, and its client against ours; each in a process of its own."""

from __future__ import annotations

import json
import re
import signal

import gevent
import pytest

from tests.cli.programs import Program, cli
from tests.interop.process import reference_client, reference_server

pytestmark = [pytest.mark.slow, pytest.mark.interop, pytest.mark.watchdog(90)]

CODECS = ["json", "msgpack"]


@pytest.mark.parametrize("codec", CODECS)
def test_ping_request_stream_and_notify(codec: str) -> None:
    with reference_server(codec) as (_, port):
        url, options = f"ws://127.0.0.1:{port}/", ["--codec", codec]
        ran = cli("ping", url, "--count", "2", "--interval", "0", *options)
        assert (ran.code, ran.err) == (0, "")
        assert "2 sent, 2 received, 0% lost" in ran.out
        ran = cli("request", url, '{"do": "echo", "n": 1}', *options)
        assert (ran.code, json.loads(ran.out)) == (0, {"do": "echo", "n": 1})
        ran = cli("stream", url, '{"do": "rows", "count": 3}', "--json", *options)
        assert ran.code == 0
        assert [event.get("payload") for event in ran.events] == [{"row": 0}, {"row": 1}, {"row": 2}, None]
        assert ran.events[-1]["trailers"] == {"rows": 3}
        assert cli("notify", url, '{"do": "hello"}', *options).code == 0
        ran = cli("request", url, '{"do": "fail", "rows": 0, "message": "no \\u001b[2J"}', *options)
        assert ran.code == 1
        assert "LookupError" in ran.err
        assert "\x1b" not in ran.err


@pytest.mark.parametrize("codec", CODECS)
def test_ctrl_c_stops_its_handler(codec: str) -> None:
    with reference_server(codec) as (reference, port):
        url = f"ws://127.0.0.1:{port}/"
        with Program("stream", url, '{"do": "gate", "name": "shut"}', "--codec", codec) as program:
            reference.do("settle")
            with gevent.Timeout(30):
                while [entry["do"] for entry in reference.do("facts")["opened"]] != ["gate"]:
                    # To ask takes a round trip to the other process.
                    pass
            program.interrupt()
            assert program.wait() == 130
        assert reference.do("facts")["stopped"] == ["gate"]


def test_its_server_dies_in_the_middle() -> None:
    with reference_server("json") as (reference, port):
        url = f"ws://127.0.0.1:{port}/"
        with Program("stream", url, '{"do": "gate", "name": "shut"}') as program:
            reference.do("settle")
            reference.kill()
            assert program.wait() == 5
        assert "hint: " in program.out


@pytest.mark.parametrize("codec", CODECS)
def test_its_client_against_echo(codec: str) -> None:
    with (
        Program("echo", "--port", "0", "--codec", codec) as server,
        reference_client(codec) as reference,
    ):
        reference.do("dial", url=server.expect(r"echo server listening on (ws://\S+)")[1])
        assert reference.do("many", count=50) == [{"do": "echo", "n": n} for n in range(50)]
        assert reference.do("echo_begin", items=["a", "b"])["got"] == ["a", "b"]
        server.process.send_signal(signal.SIGTERM)
        assert reference.do("echo_end", item="c") == ["c"]
        assert reference.do("wait_closed")["code"] == 1001
        assert server.wait() == 0
    assert re.fullmatch(r"echo server listening on \S+\n", server.out)


def test_a_tap_between_the_two() -> None:
    with (
        Program("echo", "--port", "0") as server,
        Program("tap", server.expect(r"listening on (ws://\S+)")[1], "--port", "0") as tap,
        reference_client("json") as reference,
    ):
        reference.do("dial", url=tap.expect(r"listening on (ws://127\S+)/,")[1] + "/")
        assert reference.do("many", count=2)
        tap.expect(r"-> open   stream=1 .* end headers=1")
        tap.expect(r"<- data   stream=3 .* end")
        assert reference.do("ping")
        tap.expect(r"<- pong ")
