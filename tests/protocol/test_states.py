"""The table of states: as it is written here once more, and as the connection machine lives by it, cell by cell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from muxws_green.errors import ResetCode, StreamClosed, StreamReset
from muxws_green.protocol.connection import Violation
from muxws_green.protocol.frames import Frame
from muxws_green.protocol.states import LIVE, TABLE, Event, StreamState, Verdict
from muxws_green.protocol.streams import LiveStream
from tests.protocol.cores import End

#: PROTOCOL §6, with its sentence on an `open` that carries `fragment`.
EXPECTED = """
                   | idle               | open               | half_closed_local | half_closed_remote | closed
recv open          | open               | connection error   | connection error  | connection error   | connection error
recv open+end      | half_closed_remote | connection error   | connection error  | connection error   | connection error
recv open piece    | open               | connection error   | connection error  | connection error   | ignore
recv data          | connection error   | open               | half_closed_local | stream error       | ignore
recv data+end      | connection error   | half_closed_remote | closed            | stream error       | ignore
recv reset         | connection error   | closed             | closed            | closed             | ignore
send data          | impossible         | open               | raise             | half_closed_remote | raise
send end           | impossible         | half_closed_local  | raise             | closed             | raise
send reset         | impossible         | closed             | closed            | closed             | nothing
socket dies        | impossible         | closed             | closed            | closed             | nothing
"""


def cells(text: str) -> dict[tuple[str, str], str]:
    header, *rows = [[cell.strip() for cell in line.split("|")] for line in text.strip("\n").splitlines()]
    return {(row[0], state): cell for row in rows for state, cell in zip(header[1:], row[1:], strict=True)}


def test_the_table_says_what_the_protocol_says():
    table = {(event.value, state.value): cell.value for state, row in TABLE.items() for event, cell in row.items()}
    assert table == cells(EXPECTED)


def test_the_table_has_every_cell_and_none_leads_back_to_idle():
    assert set(TABLE) == set(StreamState)
    for row in TABLE.values():
        assert set(row) == set(Event)
        assert StreamState.IDLE not in row.values()


def test_live_is_what_may_still_change():
    assert {state for state in StreamState if TABLE[state][Event.SOCKET_DIES] is StreamState.CLOSED} == LIVE


def test_the_table_cannot_be_changed():
    with pytest.raises(TypeError):
        TABLE[StreamState.OPEN] = {}
    with pytest.raises(TypeError):
        TABLE[StreamState.OPEN][Event.RECV_DATA] = StreamState.CLOSED


# Every cell, driven


def open_stream(end: End, local: bool) -> LiveStream:
    return end.open("x") if local else end.accept(value="x")


def reach(end: End, state: StreamState, local: bool) -> LiveStream:
    """Bring the first stream into `state` by legal frames only."""
    live = open_stream(end, local)
    if state in (StreamState.HALF_CLOSED_LOCAL, StreamState.CLOSED):
        end.send(live, end=True)
    if state in (StreamState.HALF_CLOSED_REMOTE, StreamState.CLOSED):
        end.hear("data", live.id, end=True)
    assert live.state is state
    return live


def by_reset(end: End, _state: StreamState, local: bool) -> LiveStream:
    """The other way to be closed."""
    live = open_stream(end, local)
    end.core.reset(live, ResetCode.CANCELLED, None, asked=True)
    return live


ACTIONS: dict[Event, Callable[[End, LiveStream], Any]] = {
    Event.RECV_OPEN: lambda end, live: end.hear("open", live.id, payload=1),
    Event.RECV_OPEN_END: lambda end, live: end.hear("open", live.id, payload=1, end=True),
    Event.RECV_OPEN_PIECE: lambda end, live: end.hear("open", live.id, fragment="1", more=True),
    Event.RECV_DATA: lambda end, live: end.hear("data", live.id, payload=1),
    Event.RECV_END: lambda end, live: end.hear("data", live.id, payload=1, end=True),
    Event.RECV_RESET: lambda end, live: end.hear("reset", live.id, code=1),
    Event.SEND_DATA: lambda end, live: end.send(live, 1),
    Event.SEND_END: lambda end, live: end.send(live, 1, end=True),
    Event.SEND_RESET: lambda end, live: end.core.reset(live, ResetCode.CANCELLED, None, asked=True),
    Event.SOCKET_DIES: lambda end, _live: end.core.die(),
}
OPENS = (Event.RECV_OPEN, Event.RECV_OPEN_END, Event.RECV_OPEN_PIECE)
IN = (*OPENS, Event.RECV_DATA, Event.RECV_END, Event.RECV_RESET)


def check(end: End, live: LiveStream, event: Event) -> None:
    before = live.state
    streams = dict(end.core.streams)
    late = end.core.late_frames
    cell = TABLE[before][event]
    end.sent()
    end.recorder.calls.clear()
    if cell is Verdict.CONNECTION_ERROR:
        with pytest.raises(Violation) as caught:
            ACTIONS[event](end, live)
        assert caught.value.close_code == 1002
        assert live.state is before
        assert (end.told, end.sent(), end.core.streams) == ([], [], streams)
    elif cell is Verdict.STREAM_ERROR:
        ACTIONS[event](end, live)
        assert live.state is StreamState.CLOSED
        (frame,) = end.sent()
        assert (frame.type, frame.stream, frame.code) == ("reset", live.id, ResetCode.PROTOCOL_ERROR)
        assert end.told == [("failed", live.id, StreamReset, ResetCode.PROTOCOL_ERROR)]
    elif cell is Verdict.IGNORE:
        ACTIONS[event](end, live)
        assert (end.told, end.sent(), end.core.streams) == ([], [], streams)
        assert end.core.late_frames == late + 1
    elif cell is Verdict.RAISE:
        with pytest.raises(StreamClosed):
            ACTIONS[event](end, live)
        assert live.state is before
        assert end.sent() == []
    elif cell is Verdict.NOTHING:
        ACTIONS[event](end, live)
        assert live.state is before
        assert end.sent() == []
    else:
        ACTIONS[event](end, live)
        assert live.state is cell
    assert (live.id in end.core.streams) is (live.state in LIVE)


@pytest.mark.parametrize("dialer", [False, True], ids=["acceptor", "dialer"])
@pytest.mark.parametrize("local", [False, True], ids=["theirs", "ours"])
@pytest.mark.parametrize("event", list(Event), ids=lambda event: event.value)
@pytest.mark.parametrize(
    "way,state",
    [(reach, state) for state in StreamState if state is not StreamState.IDLE] + [(by_reset, StreamState.CLOSED)],
)
def test_the_machine_lives_by_every_cell(
    way: Callable[[End, StreamState, bool], LiveStream], state: StreamState, event: Event, local: bool, dialer: bool
):
    end = End(dialer=dialer)
    live = way(end, state, local)
    if local and event in OPENS:
        # The remote cannot open an id of ours, whatever has become of it.
        with pytest.raises(Violation):
            ACTIONS[event](end, live)
    else:
        check(end, live, event)


@pytest.mark.parametrize("dialer", [False, True], ids=["acceptor", "dialer"])
@pytest.mark.parametrize("event", IN, ids=lambda event: event.value)
def test_the_machine_lives_by_the_cells_of_a_stream_never_seen(event: Event, dialer: bool):
    end = End(dialer=dialer)
    cell = TABLE[StreamState.IDLE][event]
    unseen = LiveStream(end.theirs(), False, StreamState.IDLE)
    if cell is Verdict.CONNECTION_ERROR:
        for stream in (unseen, LiveStream(end.ours(), True, StreamState.IDLE)):
            with pytest.raises(Violation):
                ACTIONS[event](end, stream)
        assert end.told == []
    else:
        ACTIONS[event](end, unseen)
        assert end.core.streams[unseen.id].state is cell


def test_the_streams_of_a_remote_do_not_mix_up_with_ours():
    end = End()
    ours, theirs = end.open("x"), end.accept()
    end.sent()
    end.hear("data", theirs.id, end=True)
    assert ours.state is StreamState.OPEN
    assert theirs.state is StreamState.HALF_CLOSED_REMOTE
    end.send(ours, 1, end=True)
    assert end.sent() == [Frame("data", ours.id, payload=1, end=True)]
    assert theirs.state is StreamState.HALF_CLOSED_REMOTE
