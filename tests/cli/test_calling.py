"""`request`, `stream` and `notify`: what they print, what they end with, and what the server gets to know of it."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import gevent
import pytest
from gevent.event import Event

from muxws_green import HandlerStopped, ResetCode, StreamReset
from muxws_green.codecs import MsgpackCodec
from muxws_green.protocol.frames import Frame
from muxws_green.testing import RawConnection, RawServer
from tests.cli.programs import Program, cli
from tests.serving import Served, until

pytestmark = [pytest.mark.slow, pytest.mark.watchdog(60)]

#: What would recolour, retitle or turn around, were it to reach a terminal.
EVIL = "\x1b]0;owned\x07\x9b31m\u202etxt\r\n\x7f"
EVIL_SHOWN = "\\u001b]0;owned\\u0007\\u009b31m\\u202etxt\\r\\n\\u007f"


def count_up(payload: Any, stream: Any) -> None:
    for number in range(payload):
        stream.send(number)
    stream.end(trailers={"count": payload})


def test_request() -> None:
    with Served() as server:
        ran = cli("request", server.url, '{"größe": [1, null]}')
        assert ran == (0, '{"größe": [1, null]}\n', "")
        assert cli("request", server.url, '"é"', "--json").events == [{"event": "payload", "payload": "é"}]


def test_json_is_ascii() -> None:
    with Served() as server:
        assert cli("request", server.url, '"é"', "--json").out.isascii()


@pytest.mark.parametrize("codec", ["json", "msgpack", "fast"])
def test_codecs(codec: str) -> None:
    with Served(codec=MsgpackCodec() if codec == "msgpack" else "json") as server:
        assert cli("request", server.url, "[1]", "--codec", codec) == (0, "[1]\n", "")


def test_the_codec_of_the_environment() -> None:
    with Served(codec=MsgpackCodec()) as server:
        assert cli("request", server.url, "[1]", env={"MUXWS_CODEC": "msgpack"}).out == "[1]\n"


def test_bytes() -> None:
    got: list[Any] = []

    def handle(payload: Any, stream: Any) -> None:
        got.append(payload)
        stream.reply({"bytes": payload})

    with Served(handle, codec=MsgpackCodec()) as server:
        ran = cli("request", server.url, '{"$base64": "AP8="}', "--codec", "msgpack")
    assert got == [b"\x00\xff"]
    assert ran == (0, '{"bytes": {"$base64": "AP8="}}\n', "")


def test_payloads_from_elsewhere(tmp_path: Path) -> None:
    file = tmp_path / "payload"
    file.write_text('{"from": "a file"}')
    with Served() as server:
        assert cli("request", server.url, f"@{file}").out == '{"from": "a file"}\n'
        assert cli("request", server.url, "-", stdin='\n {"from":\n "a pipe"}\n').out == '{"from": "a pipe"}\n'
        assert cli("request", server.url, "--", "-5").out == "-5\n"


def test_headers_subprotocols_and_the_hello() -> None:
    def serve(connection: RawConnection) -> None:
        hello = connection.expect("open", end=True)
        connection.send(Frame("data", stream=1, end=True))
        told.append((hello.payload, hello.headers))
        call = connection.expect("open")
        connection.send(Frame("data", stream=call.stream, payload="ok", end=True))

    told: list[Any] = []
    options = ["--header", "X-One: a: b", "--header", "Authorization:Bearer t", "--subprotocol", "bearer.t"]
    with RawServer(serve, serve) as server:
        assert cli("request", server.url, "1", *options, "--hello", '{"agent": 7}').out == '"ok"\n'
        assert cli("request", server.url, "1", "--hello", "null").out == '"ok"\n'
        first = server.connections[0]
        assert first.header("X-One") == "a: b"
        assert first.header("Authorization") == "Bearer t"
        assert first.offered == ["muxws.v1.json", "bearer.t"]
    assert [payload for payload, _ in told] == [{"agent": 7}, None]


@pytest.mark.parametrize("kind", ["tls", "unix"])
def test_other_transports(kind: str, tmp_path: Path) -> None:
    from tests.transports.raw import authority

    file = tmp_path / "ca.pem"
    authority().cert_pem.write_to_path(str(file))
    with Served(kind=kind) as server:
        trust: list[list[str]] = [["--cacert", str(file)], ["--insecure"]] if kind == "tls" else [[]]
        for options in trust:
            assert cli("request", server.url, "1", *options) == (0, "1\n", "")


def test_stream() -> None:
    with Served(count_up) as server:
        assert cli("stream", server.url, "3") == (0, "0\n1\n2\n", "")
        assert cli("stream", server.url, "1", "--json").events == [
            {"event": "payload", "stream": 1, "payload": 0},
            {"event": "end", "stream": 1, "payloads": 1, "trailers": {"count": 1}},
        ]


class Endless:
    """A handler that sends numbers, one or many, until its stream is over, and knows why that was."""

    def __init__(self, count: int | None = None) -> None:
        self._count = count
        self.stopped = Event()
        self.why: Any = None

    def __call__(self, payload: Any, stream: Any) -> None:
        try:
            sent = 0
            while self._count is None or sent < self._count:
                stream.send(sent)
                sent += 1
            stream.closed.wait()
            stream.send("too late")
        except (HandlerStopped, StreamReset) as error:
            self.why = error.cause.code if isinstance(error, HandlerStopped) else error.code
            self.stopped.set()
            raise


def test_lines_come_as_they_are_sent_and_ctrl_c_cancels() -> None:
    handler = Endless(2)
    with Served(handler) as server, Program("stream", server.url, "1") as program:
        program.expect("^0\n1\n")
        program.interrupt()
        assert program.wait() == 130
        assert handler.stopped.wait(20)
    assert handler.why is ResetCode.CANCELLED
    assert "Traceback" not in program.out


def test_ctrl_c_cancels_a_request_that_nobody_answers() -> None:
    handler = Endless(0)
    with Served(handler) as server, Program("request", server.url, "1") as program:
        until(lambda: server.peers and server.peer.streams)
        program.interrupt()
        assert program.wait() == 130
        assert handler.stopped.wait(20)
    assert handler.why is ResetCode.CANCELLED
    assert program.out == ""


def test_ctrl_c_while_the_remote_is_not_done_with_a_notification() -> None:
    handler = Endless(0)
    with Served(handler) as server, Program("notify", server.url, "1") as program:
        until(lambda: server.peers and server.peer.streams)
        program.interrupt()
        assert program.wait() == 130
        assert handler.stopped.wait(20)


def test_ctrl_c_while_it_connects() -> None:
    with RawServer(upgrade=False) as server, Program("request", server.url, "1") as program:
        connection = server.accept()
        connection.read_request()
        program.interrupt()
        assert program.wait() == 130
        assert program.out == ""


def test_ctrl_c_before_it_connects() -> None:
    with Served() as server, Program("request", server.url, "1", "--hello", "-") as program:
        program.enter("[")
        until(lambda: program.unread() == 0)
        program.interrupt()
        assert program.wait() == 130
        assert server.peers == []
    assert "Traceback" not in program.out


@pytest.mark.parametrize("count", [None, 1])
def test_a_reader_of_the_output_that_goes_ends_it_quietly(count: int | None) -> None:
    """Also where the stream says nothing any more."""
    handler = Endless(count)
    shell = 'set -o pipefail; $MUXWS stream "$URL" 1 | head -n 1'
    with Served(handler) as server, Program(shell=shell, env={"URL": server.url}) as program:
        assert program.wait() == 0
        assert handler.stopped.wait(20)
    assert program.out == "0\n"
    assert handler.why is ResetCode.CANCELLED


def test_help_into_a_reader_that_goes() -> None:
    with Program(shell="set -o pipefail; $MUXWS --help | true") as program:
        assert program.wait() == 0
    assert program.out == ""


def test_a_reader_that_stands_still_costs_no_pong() -> None:
    handler = Endless()
    with Served(handler) as server, Program("stream", server.url, "1") as program:
        program.expect("^0\n")
        # The pipe is full by the time that sending has to wait, for which the buffers of both ends are.
        with gevent.Timeout(20):
            while server.peer.stats.bytes_sent < 1_000_000:
                gevent.idle()
        assert server.peer.ping(timeout=20) >= 0
        program.interrupt()
        assert program.wait() == 130


def test_a_server_that_dies_in_the_middle() -> None:
    def die(connection: RawConnection) -> None:
        opened = connection.expect("open")
        connection.send(Frame("data", stream=opened.stream, payload=1))
        connection.reset()

    with RawServer(die) as server:
        ran = cli("stream", server.url, "1")
        assert (ran.code, ran.out) == (5, "1\n")
        assert "connection was lost" in ran.err
        assert "\nhint: " in ran.err
        ran = cli("stream", server.url, "1", "--json")
        assert (ran.code, ran.failure["kind"], ran.failure["close_code"]) == (5, "lost", 1006)


def test_notify() -> None:
    got: list[Any] = []
    with Served(lambda payload, stream: got.append(payload)) as server:
        assert cli("notify", server.url, '{"n": 1}') == (0, "", "")
        assert cli("notify", server.url, "2", "--json").events == [{"event": "sent"}]
    assert got == [{"n": 1}, 2]


def test_notify_waits_for_a_handler_that_takes_its_time() -> None:
    done = Event()
    go_on = Event()

    def handle(payload: Any, stream: Any) -> None:
        go_on.wait()
        done.set()

    with Served(handle) as server, Program("notify", server.url, "1") as program:
        until(lambda: server.peers and server.peer.streams)
        assert program.process.poll() is None
        go_on.set()
        assert program.wait() == 0
        assert done.is_set()


def test_nothing_of_the_remote_reaches_a_terminal_raw() -> None:
    def answer(payload: Any, stream: Any) -> None:
        if payload == "reason":
            raise LookupError(EVIL)
        stream.reply({EVIL: EVIL})

    with Served(answer) as server:
        ran = cli("request", server.url, '"payload"')
        assert ran.out == f'{{"{EVIL_SHOWN}": "{EVIL_SHOWN}"}}\n'
        ran = cli("request", server.url, '"reason"')
        assert EVIL_SHOWN in ran.err
        for char in "\x1b\x9b\u202e\x7f\x07\r":
            assert char not in ran.err

    def close(connection: RawConnection) -> None:
        connection.expect("open")
        connection.send_close(1008, "\x9b2J\u202e")

    with RawServer(close) as closing:
        ran = cli("request", closing.url, "1")
        assert "\\u009b2J\\u202e (close code 1008)" in ran.err


def test_sigterm_ends_it() -> None:
    with Served(Endless(1)) as server, Program("stream", server.url, "1") as program:
        program.expect("^0\n")
        program.process.send_signal(signal.SIGTERM)
        assert program.wait() == -signal.SIGTERM
