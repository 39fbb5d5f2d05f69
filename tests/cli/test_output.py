"""Lines that fit, and outputs that take none: a full disk, a closed descriptor, a terminal that has gone."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import gevent
import pytest
from gevent.event import Event

from muxws_green.cli.output import _write, fitting
from muxws_green.testing import RawConnection, RawServer
from tests.cli.programs import PATIENCE, Program, cli, environment
from tests.serving import Served, until


@pytest.mark.parametrize(
    "columns,shown",
    [
        (100, "a long line"),
        (12, "a long line"),
        (11, "a long ..."),
        (5, "a..."),
        (4, "a l"),
        (2, "a"),
        (1, ""),
        (0, ""),
    ],
)
def test_a_line_never_reaches_the_last_column(columns: int, shown: str) -> None:
    assert fitting("a long line", columns) == shown
    assert len(shown) < max(columns, 1)


@pytest.fixture
def full_disk() -> Iterator[int]:
    if not os.path.exists("/dev/full"):
        pytest.skip("there is no device that is always full")
    descriptor = os.open("/dev/full", os.O_WRONLY)
    yield descriptor
    os.close(descriptor)


@pytest.mark.slow
@pytest.mark.parametrize("command", [["request"], ["stream"], ["ping", "--count", "1"], ["connect"]])
def test_a_full_disk(command: list[str], full_disk: int) -> None:
    name, *options = command
    payload = ["1"] if name in ("request", "stream") else []
    with Served() as server:
        ran = cli(name, server.url, *payload, *options, stdin="1\n", stdout=full_disk)
    assert ran.code == 1
    assert "error: the output cannot be written: No space left on device\nhint: " in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.slow
def test_a_full_disk_for_programs(full_disk: int) -> None:
    with Served() as server:
        ran = cli("request", server.url, "1", "--json", stdout=full_disk)
    assert (ran.code, ran.failure["kind"], ran.failure["exit"]) == (1, "output", 1)


@pytest.mark.slow
def test_nobody_to_tell_of_a_failure() -> None:
    read, write = os.pipe()
    os.close(read)
    with RawServer() as server:
        server.refuse()
        assert cli("request", server.url, "1", stderr=write) == (3, "", "")
    os.close(write)


@pytest.mark.slow
@pytest.mark.parametrize(
    "shell,code,says",
    [
        ('$MUXWS request "$URL" 1 >&-', 1, "the output cannot be written"),
        ('$MUXWS request "$URL" - <&-', 2, "there is no standard input"),
        ('$MUXWS connect "$URL" <&-', 0, "connected to"),
        ('$MUXWS request "$URL" 1 2>&-', 0, "1\n"),
        ('$MUXWS request "$URL" "[" 2>&-', 2, ""),
        ('$MUXWS request "$URL" 1 <&- >&- 2>&-', 1, ""),
    ],
)
def test_descriptors_that_are_closed(shell: str, code: int, says: str) -> None:
    """No socket gets their numbers: the server reads nothing that was meant for a person."""
    with Served() as server, Program(shell=shell, env={"URL": server.url}) as program:
        assert program.wait() == code
        until(lambda: all(peer.is_closed for peer in server.peers))
        assert all(peer.close_cause is not None and peer.close_cause.was_clean for peer in server.peers)
    assert says in program.out
    assert "Traceback" not in program.out


@pytest.mark.slow
def test_a_terminal_that_goes_takes_the_progress_with_it_alone() -> None:
    go_on = Event()

    def answer(payload: Any, stream: Any) -> None:
        go_on.wait()
        stream.reply(payload)

    ours, theirs = pty.openpty()
    with Served(answer) as server:
        command = [sys.executable, "-m", "muxws_green", "request", server.url, "1"]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs, env=environment()
        )
        try:
            os.close(theirs)
            with gevent.Timeout(PATIENCE):
                gevent.os.tp_read(ours, 1)
            os.close(ours)
            go_on.set()
            out, _ = gevent.get_hub().threadpool.apply(process.communicate, (None, PATIENCE))
        finally:
            process.kill()
            process.wait()
    assert (process.returncode, out) == (0, b"1\n")


@pytest.mark.skipif(not hasattr(os, "eventfd"), reason="nothing else says that it can be written and refuses")
def test_a_descriptor_that_somebody_else_has_made_non_blocking() -> None:
    """It may refuse although it was reported as writable; it is tried again, and the hub goes on meanwhile."""
    most = 2**64 - 2
    counter = os.eventfd(1, os.EFD_NONBLOCK)
    writing = gevent.spawn(_write, counter, most.to_bytes(8, sys.byteorder))
    try:
        for _ in range(3):
            gevent.sleep(0)
        assert not writing.ready()
        assert os.eventfd_read(counter) == 1
        writing.get(timeout=20)
        assert os.eventfd_read(counter) == most
    finally:
        writing.kill()
        os.close(counter)


# A socket as standard output: nothing watches it, so that its reader has gone is noticed by whatever is printed next.


def gone_while(program: Program, and_then: Callable[[], object]) -> None:
    program.hang_up()
    and_then()
    assert program.wait() == 0


@pytest.mark.slow
def test_a_reader_that_goes_before_a_payload_comes() -> None:
    go_on = Event()

    def handle(payload: Any, stream: Any) -> None:
        go_on.wait()
        stream.send(payload)
        stream.closed.wait()

    with Served(handle) as server, Program("connect", server.url, through_socket=True) as program:
        program.enter("1\n")
        program.expect(r"\[1\] opened")
        gone_while(program, go_on.set)


@pytest.mark.slow
def test_a_reader_that_goes_before_the_server_opens_a_stream() -> None:
    with Served() as server, Program("connect", server.url, through_socket=True) as program:
        program.expect("connected to")
        gone_while(program, lambda: server.peer.open(1))


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--reconnect", "--no-reconnect"])
def test_a_reader_that_goes_before_the_connection_is_lost(option: str) -> None:
    with RawServer() as server, Program("connect", server.url, option, through_socket=True) as program:
        connection = server.accept()
        program.expect("connected to")
        gone_while(program, connection.reset)


@pytest.mark.slow
def test_a_reader_that_goes_before_the_connection_is_back() -> None:
    go_on = Event()

    def first(connection: RawConnection) -> None:
        connection.upgrade()
        connection.expect("open")
        connection.reset()

    def second(connection: RawConnection) -> None:
        go_on.wait()
        connection.upgrade()
        connection.serve()

    with (
        RawServer(first, second, upgrade=False) as server,
        Program("connect", server.url, "--reconnect", through_socket=True) as program,
    ):
        program.enter("1\n")
        program.expect("connection lost: .*; dialling again")
        gone_while(program, go_on.set)


@pytest.mark.slow
def test_a_reader_of_a_tap_that_goes_before_a_frame_passes() -> None:
    with RawServer() as server, Program("tap", server.url, "--port", "0", through_socket=True) as program:
        url = program.expect(r"tap listening on (\S+),")[1]
        gone_while(program, lambda: cli("request", url, "1"))
