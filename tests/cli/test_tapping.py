"""`tap`: between a client and a server nothing changes, and each frame has its line, without what it carries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from muxws_green import ConnectionClosed, ConnectionLost, Reconnect, RemoteError, connect
from muxws_green.codecs import MsgpackCodec
from muxws_green.protocol.frames import Frame
from muxws_green.testing import Opcode, RawClient, RawConnection, RawServer
from muxws_green.websocket import MAX_HEAD_BYTES
from tests.cli.programs import Program
from tests.serving import Served, until
from tests.transports.raw import authority

pytestmark = [pytest.mark.slow, pytest.mark.watchdog(60)]

SECRET = "s3cret"


def act(payload: Any, stream: Any) -> None:
    if payload == "raise":
        raise LookupError("\x1b[2J")
    stream.end(payload, headers={"h": SECRET}, trailers={"t": SECRET})


def listening(program: Program) -> str:
    return program.expect(r"tap listening on (ws://127\.0\.0\.1:\d+/)")[1]


@pytest.mark.parametrize("codec", ["json", "msgpack"])
def test_frames_without_payloads(codec: str) -> None:
    chosen: Any = MsgpackCodec() if codec == "msgpack" else "json"
    with Served(act, codec=chosen) as server, Program("tap", server.url, "--port", "0") as program:
        url = listening(program)
        with connect(f"{url}path?token={SECRET}", codec=chosen, headers={"X": SECRET}) as peer:
            assert peer.request(SECRET, headers={"h": SECRET}, timeout=20) == SECRET
            program.expect(r"#1 -> GET /path$")
            program.expect(rf"#1 <- 101 Switching Protocols muxws\.v1\.{codec}$")
            program.expect(r"#1 -> open   stream=1 bytes=\d+ end headers=1$")
            program.expect(r"#1 <- data   stream=1 bytes=\d+ end headers=1 trailers=1$")
            with pytest.raises(RemoteError):
                peer.request("raise", timeout=20)
            program.expect(r"#1 <- reset  stream=3 bytes=\d+ code=2\(APPLICATION_ERROR\) reason='\\x1b\[2J'$")
            assert peer.ping(timeout=20) >= 0
            program.expect(r"#1 -> ping   bytes=\d+ nonce='\w+'$")
            program.expect(r"#1 <- pong   bytes=\d+ nonce='\w+'$")
            assert peer.request("x" * 200_000, timeout=20) == "x" * 200_000
            program.expect(r"#1 -> open   stream=5 bytes=\d+ fragment=more$")
            program.expect(r"#1 -> open   stream=5 bytes=\d+ end fragment=last$")
        program.expect(r"#1 -> goaway bytes=\d+ code=0\(NO_ERROR\) last_stream=0$")
        program.expect(r"#1 -> ws-close bytes=2 code=1000$")
        program.expect(r"#1 <- ws-close bytes=2 code=1000$")
        program.expect(r"#1 closed$")
        program.interrupt()
        assert program.wait() == 0
    assert SECRET not in program.out
    assert "\x1b" not in program.out


def test_payloads_when_asked_for() -> None:
    with Served(act) as server, Program("tap", server.url, "--port", "0", "--payloads") as program:
        with connect(listening(program)) as peer:
            peer.request({"a": "\x1b"}, headers={"h": 1}, timeout=20)
            program.expect(r'-> open .* payload=\{"a": "\\u001b"\} headers=\{"h": 1\}$')
            peer.request(None, timeout=20)
            program.expect(r"-> open .* payload=null$")
        program.interrupt()
        assert program.wait() == 0


def test_for_programs() -> None:
    with Served(act) as server, Program("tap", server.url, "--port", "0", "--json") as program:
        url = program.expect(r'"listening", "url": "([^"]+)"')[1]
        with connect(url) as peer:
            peer.request(1, timeout=20)
        program.expect('"event": "closed"')
        program.interrupt()
        assert program.wait() == 0
    import json

    events = [json.loads(line) for line in program.out.splitlines()]
    kinds = [event.get("type", event["event"]) for event in events]
    assert kinds[:5] == ["listening", "request", "answer", "open", "data"]
    opened = events[3]
    assert {key: opened[key] for key in ("connection", "direction", "stream", "end")} == {
        "connection": 1,
        "direction": "to_server",
        "stream": 1,
        "end": True,
    }
    assert "carries" not in opened


def test_a_path_and_credentials_of_the_target() -> None:
    with RawServer() as server:
        target = server.url.replace("ws://", "ws://user:pass@") + f"ws?token={SECRET}"
        with Program("tap", target, "--port", "0") as program, RawClientOf(program) as client:
            connection = server.accept()
            assert connection.request_line == f"GET /ws?token={SECRET} HTTP/1.1"
            assert connection.header("Host") == f"127.0.0.1:{server.port}"
            assert connection.header("Authorization") == "Basic dXNlcjpwYXNz"
            assert connection.header("Sec-WebSocket-Extensions") is None
            assert connection.header("X-Kept") == "1"
            client.send(Frame("ping", nonce="n"))
            assert connection.expect("ping").nonce == "n"
            program.expect("-> ping ")
            connection.send_close(1013, "busy")
            program.expect(r"<- ws-close bytes=6 code=1013 reason='busy'$")
            client.expect_close(1013)
        assert SECRET not in program.out


class RawClientOf(RawClient):
    """A client of a tap that offers compression, as browsers do."""

    def __init__(self, program: Program) -> None:
        headers = {"Sec-WebSocket-Extensions": "permessage-deflate", "X-Kept": "1"}
        super().__init__(listening(program), headers=headers)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@pytest.mark.parametrize("kind", ["tls", "unix"])
def test_other_transports(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    authority().cert_pem.write_to_path(str(file))
    options = ["--cacert", str(file)] if kind == "tls" else []
    with Served(act, kind=kind) as server, Program("tap", server.url, "--port", "0", *options) as program:
        with connect(listening(program)) as peer:
            assert peer.request("through", timeout=20) == "through"
        program.expect(r"#1 closed$")


def test_a_server_that_is_not_there() -> None:
    with RawServer() as server:
        server.refuse()
        with Program("tap", server.url, "--port", "0") as program:
            with pytest.raises(OSError, match="502"):
                connect(listening(program))
            program.expect("closed: no connection to .*Connection refused.*; start a server there")


def test_a_certificate_that_is_not_trusted() -> None:
    with Served(act, kind="tls") as server, Program("tap", server.url, "--port", "0") as program:
        with pytest.raises(OSError, match="502"):
            connect(listening(program))
        program.expect("closed: no connection to .*certificate.*; name the file of the authority")


@pytest.mark.parametrize(
    "sent,told",
    [
        (b"GET / HTTP/1.1\r\n", "hung up before the handshake"),
        (b"GET / HTTP/1.1\r\n" + b"X: " + b"x" * MAX_HEAD_BYTES, f"a head of more than {MAX_HEAD_BYTES} bytes"),
    ],
)
def test_a_client_that_sends_no_whole_request(sent: bytes, told: str) -> None:
    with RawServer() as server, Program("tap", server.url, "--port", "0") as program:
        client = RawClient(listening(program), upgrade=False)
        client.send_bytes(sent)
        client.shut_write()
        program.expect(rf"#1 closed: {told}$")
        client.close()
        assert server.connections == []


def test_a_client_that_goes_before_it_is_answered() -> None:
    with RawServer(upgrade=False) as server, Program("tap", server.url, "--port", "0") as program:
        client = RawClient(listening(program), upgrade=False)
        client.send_request()
        connection = server.accept()
        connection.read_request()
        client.reset()
        connection.respond("403 Forbidden")
        program.expect(r"#1 <- 403 Forbidden$")
        program.expect(r"#1 closed: .*(reset|pipe)")


def test_a_server_that_goes_before_it_answers() -> None:
    def hang_up(connection: RawConnection) -> None:
        connection.read_request()
        connection.close()

    with RawServer(hang_up, upgrade=False) as server, Program("tap", server.url, "--port", "0") as program:
        client = RawClient(listening(program), upgrade=False)
        client.send_request()
        program.expect(r"#1 closed: hung up before the handshake$")
        client.expect_end()
        client.close()


@pytest.mark.parametrize("protocol", [None, "muxws.v1.cbor", "other"])
def test_what_is_not_known_here_is_told_by_its_size(protocol: str | None) -> None:
    def serve(connection: RawConnection) -> None:
        connection.upgrade(protocol)
        assert connection.read_frame().payload == b"whatever"

    with RawServer(serve, upgrade=False) as server, Program("tap", server.url, "--port", "0") as program:
        client = RawClient(listening(program), protocols=[protocol] if protocol else [])
        shown = " muxws.v1.cbor" if protocol == "muxws.v1.cbor" else ""
        program.expect(rf"#1 <- 101 Switching Protocols{shown}$")
        client.send_frame(Opcode.TEXT, b"whatever")
        program.expect(r"#1 -> message bytes=8$")
        client.close()


def test_what_is_no_frame_passes_too() -> None:
    with RawServer() as server, Program("tap", server.url, "--port", "0") as program:
        client = RawClient(listening(program))
        client.send_frame(Opcode.TEXT, b"\xff")
        program.expect(r"#1 -> fault  bytes=1 text that is not UTF-8$")
        assert server.accept().read_frame().payload == b"\xff"
        client.close()


def test_a_refused_upgrade_passes() -> None:
    with (
        RawServer(lambda connection: connection.respond("403 Forbidden"), upgrade=False) as server,
        Program("tap", server.url, "--port", "0") as program,
    ):
        with pytest.raises(OSError, match="403"):
            connect(listening(program))
        program.expect(r"<- 403 Forbidden$")


def test_an_end_on_one_side_is_one_on_the_other() -> None:
    def die(connection: RawConnection) -> None:
        connection.expect("open")
        connection.reset()

    with RawServer(die) as server, Program("tap", server.url, "--port", "0") as program:
        with connect(listening(program)) as peer, pytest.raises(ConnectionLost):
            peer.request(1, timeout=20)
        program.expect(r"#1 closed$")
    with Served(act) as served, Program("tap", served.url, "--port", "0") as program:
        client = RawClient(listening(program))
        client.send(Frame("open", stream=1, payload=1))
        client.expect("data")
        client.reset()
        until(lambda: served.peer.is_closed)


def test_a_reader_of_the_output_that_goes_ends_it_quietly() -> None:
    # Up to the first frame; `head` would keep them until it ends.
    four_lines = '{ for _ in 1 2 3 4; do read -r line; echo "$line"; done; }'
    shell = f'set -o pipefail; $MUXWS tap "$URL" --port 0 | {four_lines}'
    with (
        Served(act) as server,
        Program(shell=shell, env={"URL": server.url}) as program,
        connect(listening(program), reconnect=Reconnect(max_attempts=0)) as peer,
    ):
        with pytest.raises((ConnectionLost, ConnectionClosed)):
            for _ in range(1000):
                peer.request(1, timeout=20)
        assert program.wait() == 0
    assert len(program.out.splitlines()) == 4


def test_a_place_that_is_taken() -> None:
    with RawServer() as server, Program("tap", server.url, "--port", str(server.port)) as program:
        assert program.wait() == 2
    assert f"cannot listen on 127.0.0.1 port {server.port}: " in program.out
    assert "--port 0" in program.out
