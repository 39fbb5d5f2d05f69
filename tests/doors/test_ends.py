"""How a connection ends is the same behind every door and for either role: what the remote is told, what `on_close` is
told, and that nothing that was not whole is taken for something.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.doors.doors import DOORS, Door
from tests.doors.edges import Closed, Edge, SocketEdge, acceptor_edge, dialer_edge, memory_edge, opening
from tests.transports.raw import BINARY, TEXT, frame

pytestmark = [pytest.mark.slow, pytest.mark.leaks, pytest.mark.watchdog(40)]

Meet = Callable[..., AbstractContextManager[Edge]]

DIALERS = ["tcp", "tls", "unix"]


@pytest.fixture
def meet(place: Any, tmp_path: Path) -> Meet:
    """Brings a peer and a raw end together; may be called several times, one after another."""
    if place in ("memory dialer", "memory acceptor"):
        return partial(memory_edge, peer_dials=place == "memory dialer")
    if isinstance(place, str):
        folders = iter(range(100))

        def dial(**options: Any) -> AbstractContextManager[Edge]:
            folder = tmp_path / str(next(folders))
            folder.mkdir()
            return dialer_edge(place, folder, **options)

        return dial
    return partial(acceptor_edge, place)


ON_SOCKETS = [*DIALERS, *(pytest.param(door, marks=pytest.mark.host) for door in DOORS)]


def in_places(*places: Any) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "place", places, indirect=True, ids=lambda place: str(place) if isinstance(place, Door) else place
    )


everywhere = in_places("memory dialer", "memory acceptor", *ON_SOCKETS)
on_sockets = in_places(*ON_SOCKETS)


def keep_waiting(edge: Edge) -> None:
    """Open a stream that its handler is at when the connection ends."""
    number = edge.ask("wait")
    assert edge.heard() == {"type": "data", "stream": number, "payload": "here"}


def told_once(edge: Edge) -> list[Any]:
    """What `on_close` was told; the handler must have been stopped by the loss of the connection."""
    (told,) = edge.told()
    ((kind, code, _),) = edge.facts()["resets"]
    assert (kind, code) == ("ConnectionLost", 9)
    return list(told)


@everywhere
def test_a_close_frame_is_answered_with_its_code(meet: Meet) -> None:
    for code, reason in ((1000, "done"), (1001, ""), (1011, "ü" * 50), (3000, "x"), (4999, "")):
        with meet() as edge:
            keep_waiting(edge)
            edge.send_close(code, reason)
            assert edge.heard() == Closed(code, reason)
            assert edge.is_over()
            assert told_once(edge) == [code, reason, code == 1000, False]


@on_sockets
def test_an_empty_close_frame_is_answered_and_no_code_is_made_up(meet: Meet) -> None:
    with meet() as edge:
        keep_waiting(edge)
        edge.send_close(None)
        assert edge.heard() in (Closed(None, ""), Closed(1000, ""))
        assert edge.is_over()
        assert told_once(edge) == [1005, "", False, False]


@everywhere
def test_this_end_closes_with_1000(meet: Meet) -> None:
    with meet() as edge:
        number = edge.ask("leave", end=True, reason="that is all", drain=5.0)
        # A goaway leaves before what is queued on streams.
        goaway, answer = sorted([edge.heard(), edge.heard()], key=lambda frame: frame["type"], reverse=True)
        assert (goaway["type"], goaway["code"], goaway["last_stream"]) == ("goaway", 0, number)
        assert answer == {"type": "data", "stream": number, "payload": "leaving", "end": True}
        assert edge.heard() == Closed(1000, "that is all")
        edge.send_close(1000, "that is all")
        assert edge.is_over()
        assert edge.told() == [[1000, "that is all", True, False]]


@everywhere
def test_a_broken_rule_of_the_protocol_closes_with_1002(meet: Meet) -> None:
    with meet() as edge:
        keep_waiting(edge)
        # Of the other end's parity.
        edge.say(opening(9 if edge.peer_dials else 10, "say", value="never"))
        goaway = edge.heard()
        assert (goaway["type"], goaway["code"]) == ("goaway", 3)
        last = edge.heard()
        assert isinstance(last, Closed)
        assert last.code == 1002
        edge.send_close(1002)
        assert edge.is_over()
        assert told_once(edge)[0] == 1002
        assert "say" not in edge.facts()["opened"]


def unmasked(edge: SocketEdge) -> bytes:
    # Masked in the one direction in which it must not be, and not in the other.
    return frame(TEXT, opening(99, "say", value="never"), masked=edge.peer_dials)


def no_utf8(edge: SocketEdge) -> bytes:
    return frame(TEXT, b'{"\xff"}', masked=not edge.peer_dials)


def too_long(edge: SocketEdge) -> bytes:
    return bytes([0x81, 127 if edge.peer_dials else 255]) + struct.pack(">Q", 2**40) + b"keyk" + b"x" * 10


def compressed(edge: SocketEdge) -> bytes:
    whole = frame(TEXT, opening(99, "say", value="never"), masked=not edge.peer_dials)
    return bytes([whole[0] | 0x40]) + whole[1:]


def of_the_other_kind(edge: SocketEdge) -> bytes:
    return frame(BINARY, opening(99, "say", value="never"), masked=not edge.peer_dials)


BROKEN = [(unmasked, 1002), (no_utf8, 1007), (too_long, 1009), (compressed, 1002)]


def break_rule(edge: Edge, break_it: Callable[[SocketEdge], bytes], code: int) -> None:
    """Break a rule while a handler is at work; what was sent must not count, and the close frame says why."""
    assert isinstance(edge, SocketEdge)
    keep_waiting(edge)
    edge.end.sock.sendall(break_it(edge))
    last = edge.heard()
    while isinstance(last, dict):
        assert last["type"] == "goaway"
        last = edge.heard()
    assert isinstance(last, Closed)
    assert (break_it, last.code) == (break_it, code)
    ((kind, _, _),) = edge.facts()["resets"]
    assert kind == "ConnectionLost"
    assert "say" not in edge.facts()["opened"]


@on_sockets
def test_a_broken_rule_of_websocket_closes_with_its_code(meet: Meet) -> None:
    # All of them together: each end waits for a moment to be answered.
    with ExitStack() as stack:
        for break_it, code in BROKEN:
            break_rule(stack.enter_context(meet()), break_it, code)


@in_places("tcp", Door("server"))
@pytest.mark.parametrize("break_it,code", BROKEN[1:3])
def test_a_broken_rule_of_websocket_is_told_with_its_code(
    meet: Meet, break_it: Callable[[SocketEdge], bytes], code: int
) -> None:
    with meet() as edge:
        break_rule(edge, break_it, code)
        edge.send_close(code)
        assert edge.is_over()
        ((told, _, was_clean, _),) = edge.told()
        assert (told, was_clean) == (code, False)


@on_sockets
def test_a_message_of_the_other_kind_is_no_frame(meet: Meet) -> None:
    with meet() as edge:
        assert isinstance(edge, SocketEdge)
        edge.end.sock.sendall(of_the_other_kind(edge))
        assert edge.heard()["code"] == 3
        assert edge.heard().code == 1002
        edge.send_close(1002)
        assert edge.is_over()
        assert "say" not in edge.facts()["opened"]


@everywhere
def test_an_end_without_a_close_frame_is_1006(meet: Meet) -> None:
    for how in ("fin", "rst", "half"):
        with meet() as edge:
            keep_waiting(edge)
            edge.vanish(how)
            code, _, was_clean, will_retry = told_once(edge)
            assert (how, code, was_clean, will_retry) == (how, 1006, False, False)
            assert "say" not in edge.facts()["opened"]


@on_sockets
def test_frames_that_come_with_the_handshake_are_taken(meet: Meet, place: Any) -> None:
    # The longest does not fit into what the hosts read at once.
    for size in (5, 3_000, 20_000, 60_000):
        answers = {}
        if isinstance(place, str):
            whole = [opening(number, "say", end=True, value="x" * size) for number in (2, 4)]
            with meet(behind=b"".join(frame(TEXT, message, masked=False) for message in whole)) as edge:
                for _ in range(2):
                    answer = edge.heard()
                    answers[answer["stream"]] = answer
        else:
            whole = [opening(number, "say", end=True, value="x" * size) for number in (3, 5)]
            with meet(behind=whole) as edge:
                for _ in range(3):
                    answer = edge.heard()
                    answers[answer["stream"]] = answer
            assert answers.pop(1) == {"type": "data", "stream": 1, "end": True}
        assert sorted(answers) == ([2, 4] if isinstance(place, str) else [3, 5])
        assert all(answer["payload"] == "x" * size and answer["end"] for answer in answers.values())
