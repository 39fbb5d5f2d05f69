"""Every cell of the state table, seen from outside: at both ends, on streams of either opener, under both codecs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from muxws_green.errors import ResetCode, StreamClosed, StreamReset
from muxws_green.protocol.frames import Frame
from muxws_green.protocol.states import LIVE, TABLE, Event, StreamState, Verdict
from muxws_green.runtime.stream import Stream
from muxws_green.testing import FakeClock, settle
from tests.conformance.runner import CODECS, Lone

IDLE, CLOSED = StreamState.IDLE, StreamState.CLOSED
OPEN, REMOTE, LOCAL = StreamState.OPEN, StreamState.HALF_CLOSED_REMOTE, StreamState.HALF_CLOSED_LOCAL


@dataclass
class Scene:
    """One stream at one end, in the state that is asked about."""

    lone: Lone
    id: int
    #: Who opened it is this end.
    local: bool
    #: None where nobody has a handle of it.
    stream: Stream | None = None

    def get(self, kind: str, **fields: Any) -> None:
        """Receive a frame on the stream."""
        self.lone.transport.inject(self.lone.codec.encode(Frame(kind, stream=self.id, **fields)))
        settle()

    def begin(self, *, end: bool = False) -> Stream:
        """Have the stream opened, by whoever it belongs to."""
        if self.local:
            self.stream = self.lone.end.peer.open({"q": 1}, end=end)
            settle()
        else:
            self.get("open", payload={"q": 1}, end=end)
            self.stream = self.lone.end.stream(self.id)
        assert self.stream.id == self.id
        return self.stream

    def piece(self) -> Any:
        return self.lone.codec.encode_payload([1])[:1]


def opened(scene: Scene) -> None:
    scene.begin()


def ended_by_the_remote(scene: Scene) -> None:
    scene.begin(end=not scene.local)
    if scene.local:
        scene.get("data", end=True)


def ended_here(scene: Scene) -> None:
    stream = scene.begin(end=scene.local)
    if not scene.local:
        stream.end()
        settle()


def ended_by_both(scene: Scene) -> None:
    scene.begin().end()
    scene.get("data", end=True)


def reset_by_the_remote(scene: Scene) -> None:
    scene.begin()
    scene.get("reset", code=1)


def reset_here(scene: Scene) -> None:
    scene.begin().cancel()
    settle()


#: Each state, and each way into it that differs.
WAYS: dict[str, tuple[StreamState, Callable[[Scene], None]]] = {
    "never seen": (IDLE, lambda scene: None),
    "open": (OPEN, opened),
    "ended by the remote": (REMOTE, ended_by_the_remote),
    "ended here": (LOCAL, ended_here),
    "ended by both": (CLOSED, ended_by_both),
    "reset by the remote": (CLOSED, reset_by_the_remote),
    "reset here": (CLOSED, reset_here),
}

ARRIVALS: dict[Event, Callable[[Scene], None]] = {
    Event.RECV_OPEN: lambda scene: scene.get("open", payload=1),
    Event.RECV_OPEN_END: lambda scene: scene.get("open", payload=1, end=True),
    Event.RECV_OPEN_PIECE: lambda scene: scene.get("open", fragment=scene.piece(), more=True),
    Event.RECV_DATA: lambda scene: scene.get("data", payload=1),
    Event.RECV_END: lambda scene: scene.get("data", payload=1, end=True),
    Event.RECV_RESET: lambda scene: scene.get("reset", code=1),
}

CALLS: dict[Event, Callable[[Stream], None]] = {
    Event.SEND_DATA: lambda stream: stream.send(1),
    Event.SEND_END: lambda stream: stream.end(),
    Event.SEND_RESET: lambda stream: stream.cancel(),
}

OPENS = {Event.RECV_OPEN, Event.RECV_OPEN_END, Event.RECV_OPEN_PIECE}


def verdict_on(state: StreamState, event: Event, *, local: bool) -> StreamState | Verdict:
    """The table's, but for an `open` of this end's own parity, which is wrong in any state."""
    return Verdict.CONNECTION_ERROR if local and event in OPENS else TABLE[state][event]


#: PROTOCOL §6, in the order of the events there; the piece of an `open` stands behind the two kinds of `open`.
ROWS = """
idle                open  remote open   CONN   CONN   CONN   -      -      -       -
open                CONN  CONN   CONN   open   remote closed open   local  closed  closed
half_closed_local   CONN  CONN   CONN   local  closed closed RAISE  RAISE  closed  closed
half_closed_remote  CONN  CONN   CONN   STREAM STREAM closed remote closed closed  closed
closed              CONN  CONN   IGNORE IGNORE IGNORE IGNORE RAISE  RAISE  NOTHING NOTHING
"""
CELLS = {
    "open": OPEN,
    "remote": REMOTE,
    "local": LOCAL,
    "closed": CLOSED,
    "CONN": Verdict.CONNECTION_ERROR,
    "STREAM": Verdict.STREAM_ERROR,
    "IGNORE": Verdict.IGNORE,
    "RAISE": Verdict.RAISE,
    "NOTHING": Verdict.NOTHING,
    "-": Verdict.IMPOSSIBLE,
}


def test_the_table_is_the_protocols() -> None:
    rows = [row.split() for row in ROWS.strip().splitlines()]
    expected = {state: dict(zip(Event, map(CELLS.get, cells), strict=True)) for state, *cells in rows}
    assert {state.value: dict(TABLE[state]) for state in StreamState} == expected


def test_the_ways_lead_to_every_state() -> None:
    assert {state for state, _ in WAYS.values()} == set(TABLE) == set(StreamState)
    assert {*ARRIVALS, *CALLS, Event.SOCKET_DIES} == set(Event)


@pytest.fixture(params=[(name, role) for name in CODECS for role in ("dialer", "acceptor")], ids="-".join)
def lone(request: pytest.FixtureRequest) -> Any:
    with FakeClock() as clock:
        lone = Lone(request.param[0], clock, dialer=request.param[1] == "dialer")
        yield lone
        lone.transport.drop()
        settle()


@pytest.mark.leaks
@pytest.mark.parametrize("event", Event)
@pytest.mark.parametrize("opener", ["here", "remote"])
@pytest.mark.parametrize("way", WAYS)
def test_cell(lone: Lone, way: str, opener: str, event: Event) -> None:
    state, lead = WAYS[way]
    local = opener == "here"
    scene = Scene(lone, 1 if local is lone.peer.is_dialer else 2, local)
    lead(scene)
    stream = scene.stream
    assert (stream.state if stream is not None else IDLE) is state
    assert (scene.id in lone.peer.streams) is (state in LIVE)
    before, late = len(lone.transport.sent), lone.peer.stats.late_frames
    expected = verdict_on(state, event, local=local)

    raised: BaseException | None = None
    if event in ARRIVALS:
        ARRIVALS[event](scene)
    elif event is Event.SOCKET_DIES:
        lone.transport.drop()
    elif stream is not None:
        try:
            CALLS[event](stream)
        except (StreamClosed, StreamReset) as error:
            raised = error
    settle()

    sent = [(frame.type, frame.stream, frame.code) for frame in lone.end.frames()[before:]]
    if isinstance(expected, StreamState):
        if stream is None:
            # While the opening is collected there is a stream already, though no handler has seen it.
            stream = lone.end.stream(scene.id)
        assert stream.state is expected
        assert (scene.id in lone.peer.streams) is (expected in LIVE)
        own = {Event.SEND_DATA: ("data", None), Event.SEND_END: ("data", None), Event.SEND_RESET: ("reset", 1)}
        assert sent == [(own[event][0], scene.id, own[event][1])] if event in own else sent == []
    elif expected is Verdict.CONNECTION_ERROR:
        assert sent == [("goaway", None, ResetCode.PROTOCOL_ERROR)]
        assert lone.transport.closed_with is not None
        assert lone.transport.closed_with[0] == 1002
        assert not lone.peer.streams
    elif expected is Verdict.STREAM_ERROR:
        assert sent == [("reset", scene.id, ResetCode.PROTOCOL_ERROR)]
        assert stream is not None
        assert stream.state is CLOSED
    else:
        assert sent == []
        assert (stream.state if stream is not None else IDLE) is state
        assert (stream is None) is (expected is Verdict.IMPOSSIBLE)
        assert lone.peer.stats.late_frames - late == (expected is Verdict.IGNORE)
    assert (raised is not None) is (expected is Verdict.RAISE)
    assert lone.peer.is_open is (expected is not Verdict.CONNECTION_ERROR and event is not Event.SOCKET_DIES)
