"""The life of a stream, as data: what each event does in each state (PROTOCOL §6).

The connection machine looks its answers up here, the tests walk every cell and the documentation's table is printed
from it. A cell holds the next state or a `Verdict`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType


class StreamState(str, Enum):
    """Where a stream stands, seen from this end. OPEN and the two half-closed states are *live*."""

    #: Never seen: the id is above its parity's high-water mark.
    IDLE = "idle"
    OPEN = "open"
    HALF_CLOSED_LOCAL = "half_closed_local"
    HALF_CLOSED_REMOTE = "half_closed_remote"
    #: At or below the high-water mark and not live. Nothing is kept of it.
    CLOSED = "closed"

    # Enum's own hash is a call of Python code, in look-ups that every frame makes.
    __hash__ = str.__hash__


class Event(Enum):
    """What can happen to a stream."""

    RECV_OPEN = "recv open"
    RECV_OPEN_END = "recv open+end"
    #: An `open` that carries `fragment` while no fragments are being collected on that id.
    RECV_OPEN_PIECE = "recv open piece"
    RECV_DATA = "recv data"
    RECV_END = "recv data+end"
    RECV_RESET = "recv reset"
    SEND_DATA = "send data"
    SEND_END = "send end"
    SEND_RESET = "send reset"
    SOCKET_DIES = "socket dies"

    __hash__ = object.__hash__


class Verdict(Enum):
    """A cell that is not a transition."""

    #: The two ends disagree about the connection: `goaway(PROTOCOL_ERROR)`, close 1002.
    CONNECTION_ERROR = "connection error"
    #: `reset(PROTOCOL_ERROR)` on this stream; every other one goes on.
    STREAM_ERROR = "stream error"
    #: A late frame, expected in an ordinary race.
    IGNORE = "ignore"
    #: The caller is told that it cannot be sent.
    RAISE = "raise"
    #: The call has no effect.
    NOTHING = "nothing"
    #: Cannot happen: an id that nobody has taken has no handle to call.
    IMPOSSIBLE = "impossible"


#: The members that every frame meets, by themselves: reading them off the class is slow where Python 3.11 runs.
OPEN = StreamState.OPEN
HALF_CLOSED_LOCAL = StreamState.HALF_CLOSED_LOCAL
HALF_CLOSED_REMOTE = StreamState.HALF_CLOSED_REMOTE
CLOSED = StreamState.CLOSED

LIVE = frozenset({OPEN, HALF_CLOSED_LOCAL, HALF_CLOSED_REMOTE})
#: Live states in which this side has not ended, and those in which the remote has not.
SENDING = frozenset({OPEN, HALF_CLOSED_REMOTE})
RECEIVING = frozenset({OPEN, HALF_CLOSED_LOCAL})

_S = StreamState
_V = Verdict

TABLE: Mapping[StreamState, Mapping[Event, StreamState | Verdict]] = MappingProxyType(
    {
        _S.IDLE: MappingProxyType(
            {
                Event.RECV_OPEN: _S.OPEN,
                Event.RECV_OPEN_END: _S.HALF_CLOSED_REMOTE,
                Event.RECV_OPEN_PIECE: _S.OPEN,
                Event.RECV_DATA: _V.CONNECTION_ERROR,
                Event.RECV_END: _V.CONNECTION_ERROR,
                Event.RECV_RESET: _V.CONNECTION_ERROR,
                Event.SEND_DATA: _V.IMPOSSIBLE,
                Event.SEND_END: _V.IMPOSSIBLE,
                Event.SEND_RESET: _V.IMPOSSIBLE,
                Event.SOCKET_DIES: _V.IMPOSSIBLE,
            }
        ),
        _S.OPEN: MappingProxyType(
            {
                Event.RECV_OPEN: _V.CONNECTION_ERROR,
                Event.RECV_OPEN_END: _V.CONNECTION_ERROR,
                Event.RECV_OPEN_PIECE: _V.CONNECTION_ERROR,
                Event.RECV_DATA: _S.OPEN,
                Event.RECV_END: _S.HALF_CLOSED_REMOTE,
                Event.RECV_RESET: _S.CLOSED,
                Event.SEND_DATA: _S.OPEN,
                Event.SEND_END: _S.HALF_CLOSED_LOCAL,
                Event.SEND_RESET: _S.CLOSED,
                Event.SOCKET_DIES: _S.CLOSED,
            }
        ),
        _S.HALF_CLOSED_LOCAL: MappingProxyType(
            {
                Event.RECV_OPEN: _V.CONNECTION_ERROR,
                Event.RECV_OPEN_END: _V.CONNECTION_ERROR,
                Event.RECV_OPEN_PIECE: _V.CONNECTION_ERROR,
                Event.RECV_DATA: _S.HALF_CLOSED_LOCAL,
                Event.RECV_END: _S.CLOSED,
                Event.RECV_RESET: _S.CLOSED,
                Event.SEND_DATA: _V.RAISE,
                Event.SEND_END: _V.RAISE,
                Event.SEND_RESET: _S.CLOSED,
                Event.SOCKET_DIES: _S.CLOSED,
            }
        ),
        _S.HALF_CLOSED_REMOTE: MappingProxyType(
            {
                Event.RECV_OPEN: _V.CONNECTION_ERROR,
                Event.RECV_OPEN_END: _V.CONNECTION_ERROR,
                Event.RECV_OPEN_PIECE: _V.CONNECTION_ERROR,
                Event.RECV_DATA: _V.STREAM_ERROR,
                Event.RECV_END: _V.STREAM_ERROR,
                Event.RECV_RESET: _S.CLOSED,
                Event.SEND_DATA: _S.HALF_CLOSED_REMOTE,
                Event.SEND_END: _S.CLOSED,
                Event.SEND_RESET: _S.CLOSED,
                Event.SOCKET_DIES: _S.CLOSED,
            }
        ),
        _S.CLOSED: MappingProxyType(
            {
                Event.RECV_OPEN: _V.CONNECTION_ERROR,
                Event.RECV_OPEN_END: _V.CONNECTION_ERROR,
                Event.RECV_OPEN_PIECE: _V.IGNORE,
                Event.RECV_DATA: _V.IGNORE,
                Event.RECV_END: _V.IGNORE,
                Event.RECV_RESET: _V.IGNORE,
                Event.SEND_DATA: _V.RAISE,
                Event.SEND_END: _V.RAISE,
                Event.SEND_RESET: _V.NOTHING,
                Event.SOCKET_DIES: _V.NOTHING,
            }
        ),
    }
)


def column(event: Event) -> Mapping[StreamState, StreamState | Verdict]:
    """What one event does in each state."""
    return {state: events[event] for state, events in TABLE.items()}


def state_after(state: StreamState, event: Event) -> StreamState:
    """The next state, where the table has one for it."""
    next_state = TABLE[state][event]
    assert isinstance(next_state, StreamState)
    return next_state
