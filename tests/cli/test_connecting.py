"""`connect`, driven through a terminal as a person does, and through a pipe as a script does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gevent
import pytest
from gevent.event import Event

from muxws_green.protocol.frames import Frame
from muxws_green.testing import RawConnection, RawServer
from tests.cli.programs import Program, cli
from tests.cli.test_calling import EVIL, EVIL_SHOWN, Endless
from tests.serving import Served, until

pytestmark = [pytest.mark.slow, pytest.mark.watchdog(90)]

ENTER, CTRL_C, CTRL_D, UP = "\r", "\x03", "\x04", "\x1b[A"


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path)}


def act(payload: Any, stream: Any) -> None:
    """Answer what is asked for."""
    if payload == "rows":
        for row in range(3):
            stream.send(row)
    elif payload == "raise":
        raise LookupError(EVIL)
    else:
        stream.send(payload)
        for item in stream:
            stream.send(item)


def dies_at_once(connection: RawConnection) -> None:
    connection.expect("open")
    connection.reset()


def prompted(program: Program) -> None:
    """Wait until something can be typed: the editor takes the terminal over only then."""
    program.expect("type JSON, or /help")
    program.expect(">")


def test_typing_payloads_streams_and_resets(env: dict[str, str]) -> None:
    with Served(act) as server, Program("connect", server.url, terminal=True, env=env) as program:
        prompted(program)
        program.enter('"rows"' + ENTER)
        for line in (r"\[1\] opened", r"\[1\] 0", r"\[1\] 1", r"\[1\] 2", r"\[1\] end"):
            program.expect(line)
        program.enter('"raise"' + ENTER)
        program.expect(r"\[3\] reset APPLICATION_ERROR: \\u001b\]0;owned\\u0007\\u009b31m\\u202e")
        program.enter("/open 1" + ENTER)
        program.expect(r"\[5\] 1")
        program.enter("/streams" + ENTER)
        program.expect(r"\[5\] open")
        program.enter("/send 5 2" + ENTER)
        program.expect(r"\[5\] 2")
        program.enter("/end 5 3" + ENTER)
        program.expect(r"\[5\] 3")
        program.expect(r"\[5\] end")
        program.enter("/ping" + ENTER)
        program.expect(r"pong: \d+\.\d+ ms")
        program.enter("nonsense" + ENTER)
        program.expect("no JSON.*/help")
        program.enter("/nonsense" + ENTER)
        program.expect("no command /nonsense")
        program.enter("/help" + ENTER)
        program.expect("/cancel")
        program.enter(CTRL_D)
        assert program.wait() == 0
    assert "Traceback" not in program.out
    for char in "\x9b\u202e":
        assert char not in program.out


def test_ctrl_c_cancels_the_stream_and_then_quits(env: dict[str, str]) -> None:
    handler = Endless(1)
    with Served(handler) as server, Program("connect", server.url, terminal=True, env=env) as program:
        prompted(program)
        program.enter("1" + ENTER)
        program.expect(r"\[1\] 0")
        program.enter(CTRL_C)
        program.expect(r"\[1\] reset CANCELLED")
        assert handler.stopped.wait(20)
        # Still there.
        program.enter("/ping" + ENTER)
        program.expect("pong: ")
        program.enter(CTRL_C)
        assert program.wait() == 130
        until(lambda: server.peer.is_closed)


def test_ctrl_c_throws_away_what_is_typed_first(env: dict[str, str]) -> None:
    with Served(act) as server, Program("connect", server.url, terminal=True, env=env) as program:
        prompted(program)
        program.enter('"half a li')
        program.expect("half a li")
        program.enter(CTRL_C)
        program.enter('"rows"' + ENTER)
        program.expect(r"\[1\] end")
        program.enter("/quit" + ENTER)
        assert program.wait() == 0


def test_history(env: dict[str, str], tmp_path: Path) -> None:
    with Served(act) as server:
        with Program("connect", server.url, terminal=True, env=env) as program:
            prompted(program)
            program.enter('"rows"' + ENTER)
            # The prompt that follows knows what was typed before.
            program.expect(r"\[1\] end\s*>")
            program.enter(UP + ENTER)
            program.expect(r"\[3\] end")
            program.enter(CTRL_D)
            assert program.wait() == 0
        file = tmp_path / "muxws-green" / "history"
        assert '"rows"' in file.read_text()
        assert file.stat().st_mode & 0o077 == 0
        with Program("connect", server.url, "--no-history", terminal=True, env=env) as program:
            prompted(program)
            program.enter('"not kept"' + ENTER)
            program.expect(r"\[1\] end")
            program.enter("/quit" + ENTER)
            assert program.wait() == 0
        assert "not kept" not in file.read_text()


@pytest.mark.parametrize("size", [(12, 4), (3, 2)])
def test_a_window_that_is_too_narrow(env: dict[str, str], size: tuple[int, int]) -> None:
    with Served(act) as server, Program("connect", server.url, terminal=True, size=size, env=env) as program:
        program.expect("/help")
        program.enter('{"a long payload": "that does not fit into one row"}' + ENTER)
        # Rows end where the window does, so the words are cut.
        program.expect(r"e\s*n\s*d")
        program.resize(80, 24)
        program.enter('"rows"' + ENTER)
        program.expect(r"\[3\] end")
        program.enter("/quit" + ENTER)
        assert program.wait() == 0
    assert "Traceback" not in program.out


def test_lines_that_come_do_not_disturb_the_line_that_is_typed(env: dict[str, str]) -> None:
    go_on = Event()

    def tick(payload: Any, stream: Any) -> None:
        if payload == "tick":
            go_on.wait()
            for number in range(5):
                stream.send({"tick": number})
        else:
            stream.reply(payload)

    with Served(tick) as server, Program("connect", server.url, terminal=True, env=env) as program:
        prompted(program)
        program.enter('"tick"' + ENTER)
        program.expect(r"\[1\] opened")
        program.enter('{"whole"')
        program.expect("whole")
        go_on.set()
        program.expect(r'\[1\] \{"tick": 4\}')
        program.expect(r"\[1\] end")
        program.enter(": true}" + ENTER)
        program.expect(r'\[3\] \{"whole": true\}')
        program.enter("/quit" + ENTER)
        assert program.wait() == 0


def test_a_server_that_dies_and_comes_back(env: dict[str, str]) -> None:
    with (
        RawServer(dies_at_once, RawConnection.serve) as server,
        Program("connect", server.url, terminal=True, env=env) as program,
    ):
        prompted(program)
        program.enter("1" + ENTER)
        program.expect(r"\[1\] reset CONNECTION_CLOSED")
        program.expect("connection lost: close code 1006.*; dialling again")
        program.expect("connected again")
        program.enter("/ping" + ENTER)
        program.expect("pong: ")
        program.enter("/quit" + ENTER)
        assert program.wait() == 0


def test_a_server_that_dies_for_good(env: dict[str, str]) -> None:
    """The prompt goes with it, and the terminal is left as it was."""
    with (
        RawServer(dies_at_once) as server,
        Program("connect", server.url, "--no-reconnect", terminal=True, env=env) as program,
    ):
        prompted(program)
        program.enter("1" + ENTER)
        assert program.wait() == 5
    assert "connection lost" in program.out
    assert "hint: " in program.out


def test_streams_that_the_server_opens(env: dict[str, str]) -> None:
    answers: list[Any] = []

    def ask(peer: Any) -> None:
        gevent.spawn(lambda: answers.append(peer.request({"who": EVIL}, timeout=60)))

    with Served(act, on_connect=ask) as server, Program("connect", server.url, terminal=True, env=env) as program:
        program.expect(r"\[2\] opened by the remote, answer with /end 2 JSON")
        program.expect(r"\\u202e")
        program.enter('/end 2 "me"' + ENTER)
        until(lambda: answers)
        program.enter("/quit" + ENTER)
        assert program.wait() == 0
    assert answers == ["me"]


def test_lines_from_a_pipe() -> None:
    with Served(act) as server:
        ran = cli("connect", server.url, stdin='"rows"\n/open 7\n/send 3 8\n"last"')
        assert ran.code == 0
        assert {"[1] 0", "[1] 2", "[1] end", "[3] 7", "[3] 8", "[3] end", '[5] "last"', "[5] end"} <= set(ran.lines)
        ran = cli("connect", server.url, "--json", stdin='"rows"\n')
        kinds = [event["event"] for event in ran.events]
        assert kinds == ["opened", "payload", "payload", "payload", "end"]
        ran = cli("connect", server.url, stdin='"raise"\n')
        assert ran.code == 1
        assert EVIL_SHOWN in ran.out
        assert cli("connect", server.url, stdin="nonsense\n").code == 1


def test_what_cannot_be_done_is_said() -> None:
    with Served(Endless(1)) as server, Program("connect", server.url) as program:
        for line, answer in [
            ("\n/cancel", "^nothing runs$"),
            ("/cancel 1", "^there is no live stream 1; /streams shows them; /help"),
            ("/send", "^there is no live stream without a number; "),
            ("/end x 1", "^there is no live stream x; "),
            ("/streams", "^none$"),
            ("1", r"^\[1\] 0$"),
            ("/send 1 2", "^(?!.*; /help).*ended"),
            ("/cancel 1", r"^\[1\] reset CANCELLED"),
            ("/cancel", "^nothing runs$"),
            ("1", r"^\[3\] 0$"),
            ("/cancel", r"^\[3\] reset CANCELLED"),
        ]:
            program.enter(line + "\n")
            program.expect(answer)
        program.enter("/quit\n")
        assert program.wait() == 0


def test_a_server_that_is_going_away_gets_no_new_stream() -> None:
    def leave(connection: RawConnection) -> None:
        first = connection.expect("open")
        connection.send(Frame("goaway", code=0, last_stream=first.stream))
        connection.send(Frame("data", stream=first.stream, payload="under way"))
        connection.serve()

    with RawServer(leave) as server, Program("connect", server.url) as program:
        program.enter("/open 1\n")
        program.expect(r'\[1\] "under way"')
        program.enter("2\n")
        program.expect("^the remote is going away: ")
        program.enter("/quit\n")
        assert program.wait() == 0


def test_ctrl_c_while_it_connects() -> None:
    with RawServer(upgrade=False) as server, Program("connect", server.url) as program:
        server.accept().read_request()
        program.interrupt()
        assert program.wait() == 130
    assert program.out == ""


def test_a_history_that_cannot_be_kept(tmp_path: Path) -> None:
    """It lasts as long as the program then."""
    file = tmp_path / "file"
    file.write_text("")
    env = {"XDG_STATE_HOME": str(file)}
    with Served(act) as server, Program("connect", server.url, terminal=True, env=env) as program:
        prompted(program)
        program.enter('"rows"' + ENTER)
        # The prompt that follows knows what was typed before.
        program.expect(r"\[1\] end\s*>")
        program.enter(UP + ENTER)
        program.expect(r"\[3\] end")
        program.enter(CTRL_D)
        assert program.wait() == 0


def test_ctrl_c_with_a_pipe() -> None:
    handler = Endless(1)
    with Served(handler) as server, Program("connect", server.url) as program:
        program.enter("1\n")
        program.expect(r"\[1\] 0")
        program.interrupt()
        program.expect(r"\[1\] reset CANCELLED")
        program.interrupt()
        assert program.wait() == 130


def test_a_server_that_dies_under_a_script() -> None:
    with RawServer(dies_at_once) as server, Program("connect", server.url) as program:
        program.enter("1\n")
        assert program.wait() == 5
