"""Each way to fail has its exit code, says what happened, and what to do next; to programs in JSON."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from muxws_green import ConnectionLost, StreamRefused, StreamReset
from muxws_green.cli.codes import MEANINGS, ExitCode
from muxws_green.cli.failures import call_failure, dial_failure, safe_url
from muxws_green.protocol.frames import Frame
from muxws_green.testing import RawConnection, RawServer
from tests.cli.programs import Ran, cli
from tests.serving import Served

pytestmark = [pytest.mark.slow, pytest.mark.watchdog(60)]


def judge(ran: Ran, code: ExitCode, kind: str, hint: str) -> dict[str, Any]:
    """Compare the failure of a program that ran under `--json`."""
    failure = ran.failure
    assert (ran.code, failure["exit"], failure["kind"], ran.out) == (code, code, kind, "")
    assert hint in failure["hint"]
    return failure


def test_every_code_is_described() -> None:
    assert set(MEANINGS) == set(ExitCode)


def test_nobody_listens(tmp_path: Path) -> None:
    with RawServer() as server:
        server.refuse()
        judge(cli("request", server.url, "1", "--json"), ExitCode.NO_CONNECTION, "refused", "muxws-green echo")
    url = f"ws+unix://{tmp_path}/nothing:/"
    judge(cli("request", url, "1", "--json"), ExitCode.NO_CONNECTION, "refused", "path of the socket")


def test_for_people_it_is_two_lines() -> None:
    with RawServer() as server:
        server.refuse()
        ran = cli("request", server.url, "1")
    assert ran.code == 3
    assert [line.split(":")[0] for line in ran.err.splitlines()] == ["error", "hint"]
    assert "Connection refused" in ran.err
    assert "Errno" not in ran.err


@pytest.mark.parametrize(
    "status,headers,hint",
    [
        ("401 Unauthorized", [], "Authorization"),
        ("403 Forbidden", [], "Origin"),
        ("404 Not Found", [], "path"),
        ("418 Teapot", [], "URL"),
        ("503 Busy", [], "later"),
        ("302 Found", [("Location", "http://u:secret@else.where/ws?token=secret")], "http://else.where/ws"),
    ],
)
def test_a_refused_upgrade(status: str, headers: list[tuple[str, str]], hint: str) -> None:
    with RawServer(lambda connection: connection.respond(status, headers), upgrade=False) as server:
        failure = judge(cli("request", server.url, "1", "--json"), ExitCode.NO_CONNECTION, "http", hint)
    assert failure["status"] == int(status[:3])
    assert "secret" not in str(failure)


def test_another_codec() -> None:
    with Served() as server:
        ran = cli("request", server.url, "1", "--codec", "msgpack", "--json")
        judge(ran, ExitCode.NO_CONNECTION, "codec", "--codec")


def test_tls() -> None:
    with Served(kind="tls") as server:
        judge(cli("request", server.url, "1", "--json"), ExitCode.NO_CONNECTION, "certificate", "--cacert")
        plain = server.url.replace("wss:", "ws:")
        judge(cli("request", plain, "1", "--json"), ExitCode.NO_CONNECTION, "network", "wss://")
    with Served() as server:
        secure = server.url.replace("ws:", "wss:")
        judge(cli("request", secure, "1", "--json"), ExitCode.NO_CONNECTION, "tls", "ws://")


def test_a_server_that_never_answers_the_dial() -> None:
    with RawServer(upgrade=False) as server:
        ran = cli("request", server.url, "1", "--timeout", "0.2", "--json")
    judge(ran, ExitCode.TIMEOUT, "timeout", "--timeout")


def test_a_call_that_is_never_answered() -> None:
    with Served(lambda payload, stream: stream.closed.wait()) as server:
        failure = judge(
            cli("request", server.url, "1", "--timeout", "0.5", "--json"), ExitCode.TIMEOUT, "timeout", "--timeout"
        )
    assert failure["reset_code"] == 6


def test_a_hello_that_is_not_taken() -> None:
    def refuse(payload: Any, stream: Any) -> None:
        stream.reset(4, "who are you")

    with Served(refuse) as server:
        failure = judge(cli("request", server.url, "1", "--hello", "7", "--json"), ExitCode.FAILED, "hello", "--hello")
    assert "who are you" in failure["message"]


def test_what_the_remote_does_to_a_call() -> None:
    def act(payload: Any, stream: Any) -> None:
        if payload == "raise":
            raise LookupError("no such thing")
        if payload == "twice":
            stream.send(1)
            stream.reply(2)
        elif payload == "refuse":
            stream.reset(StreamRefused.code, "full")
        elif payload == "reset":
            stream.reset(StreamReset.code, "enough")

    with Served(act) as server:
        failure = judge(cli("request", server.url, '"raise"', "--json"), ExitCode.FAILED, "remote", "log of the remote")
        assert failure["payload"] == {"type": "LookupError", "message": "no such thing"}
        assert failure["reset_code"] == 2
        judge(cli("request", server.url, '"refuse"', "--json"), ExitCode.FAILED, "refused", "safe to try again")
        failure = judge(cli("request", server.url, '"reset"', "--json"), ExitCode.FAILED, "reset", "payload")
        assert failure["reason"] == "enough"
        for call in ("twice", "nothing"):
            judge(cli("request", server.url, f'"{call}"', "--json"), ExitCode.FAILED, "protocol", "`stream`")


def test_a_handler_that_fails_without_a_payload() -> None:
    def fail(connection: RawConnection) -> None:
        connection.send(Frame("reset", stream=connection.expect("open").stream, code=2, reason="no"))

    with RawServer(fail) as server:
        failure = judge(cli("request", server.url, "1", "--json"), ExitCode.FAILED, "remote", "log of the remote")
    assert failure["message"] == "the remote's handler failed: no"


def test_a_name_that_nobody_knows() -> None:
    """Asked of no resolver, which may be anywhere and take any time."""
    failure = dial_failure(socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "ws://nowhere/", 1)
    assert (failure.code, failure.kind) == (ExitCode.NO_CONNECTION, "name")
    assert failure.message == "no connection to ws://nowhere/: Name or service not known"


def test_a_loss_whose_cause_is_not_known() -> None:
    failure = call_failure(ConnectionLost("the connection is gone"), 1)
    assert (failure.code, failure.kind, dict(failure.fields)) == (ExitCode.LOST, "lost", {})
    assert failure.message == "the connection was lost: the connection is gone"


@pytest.mark.parametrize(
    "arguments,says",
    [
        ([], "Commands:"),
        (["nonsense"], "No such command"),
        (["request", "ws://h/"], "Missing argument 'JSON'"),
        (["request", "ws://h/", "nope"], "double quotes"),
        (["request", "ws://h/", "NaN"], "not JSON"),
        (["request", "ws://h/", "@/does/not/exist"], "No such file"),
        (["request", "http://h/", "1"], "ws://127.0.0.1:8000/"),
        (["request", "ws://h/", "1", "--codec", "cbor"], "'json', 'msgpack', 'fast'"),
        (["request", "ws://h/", "1", "--header", "secret"], "'Name: value'"),
        (["request", "ws://h/", "1", "--header", "a b: c"], "not the name of a header"),
        (["request", "ws://h/", "1", "--hello", "{"], "--hello"),
        (["request", "ws://h/", "1", "--timeout", "0"], "--timeout"),
        (["request", "ws://h/", "1", "--insecure"], "wss://"),
        (["request", f"wss://{'a.' * 150}a/", "1"], "TLS with host"),
        (["request", "wss://h/", "1", "--cacert", "/does/not/exist"], "does not exist"),
        (["request", "wss://h/", "1", "--cacert", __file__], "no certificate"),
        (["request", "wss://h/", "1", "--cacert", __file__, "--insecure"], "leave one out"),
        (["tap", "ftp://h/"], "ws://127.0.0.1:8000/"),
        (["bench", "ws://h/", "--payload", "{"], "--payload"),
    ],
)
def test_a_wrong_command_line(arguments: list[str], says: str) -> None:
    ran = cli(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err
    assert "Traceback" not in ran.err
    assert "secret" not in ran.err


def test_a_payload_that_the_codec_cannot_carry() -> None:
    with Served() as server:
        judge(cli("request", server.url, '"\\ud800"', "--json"), ExitCode.USAGE, "payload", "codec")


def test_a_codec_of_the_environment_that_is_not_there() -> None:
    ran = cli("request", "ws://h/", "1", env={"MUXWS_CODEC": "cbor"})
    assert ran.code == 2
    assert "--codec json" in ran.err


@pytest.mark.parametrize(
    "url,shown",
    [
        ("ws://u:p@h:1/path?token=t#f", "ws://h:1/path"),
        ("ws+unix:///run/s:/x?y", "ws+unix:///run/s:/x"),
        ("ws://[broken", "the URL"),
    ],
)
def test_a_url_is_shown_without_credentials(url: str, shown: str) -> None:
    assert safe_url(url) == shown
