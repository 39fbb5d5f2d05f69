"""Each error tells whose fault it was and what ended the connection under it (PROTOCOL §12)."""

from __future__ import annotations

import pickle
import traceback

import pytest

from muxws_green import (
    ConnectionClosed,
    ConnectionLost,
    HeartbeatTimeoutError,
    IdleHeartbeat,
    JsonCodec,
    RemoteError,
    ResetCode,
    StreamRefused,
    StreamReset,
    StreamTimeout,
)
from muxws_green.errors import error_for_reset, known_reset_code
from muxws_green.runtime.options import Options
from muxws_green.testing import settle
from tests.runtime.ends import PATIENCE, Gate, MemoryDialer, dialled, outcome

CALLS = {
    "open": lambda peer: peer.open(),
    "request": lambda peer: peer.request(),
    "notify": lambda peer: peer.notify(),
    "ping": lambda peer: peer.ping(),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    "end, code",
    [("lost", 1006), ("close frame", 4000), ("closed here", 1000), ("violation", 1002), ("heartbeat", 1006)],
)
def test_calls_after_the_end_name_what_ended_it(ends, clock, call, end, code):
    made = ends(clock=clock, near_options={"heartbeat": IdleHeartbeat(5.0, 2.0)})
    made.far.on_stream(Gate())
    stream = made.near.open()
    settle()
    if end == "lost":
        made.drop()
    elif end == "close frame":
        made.near_transport.inject_close(4000, "so")
    elif end == "closed here":
        made.near.close(drain=0.0)
    elif end == "violation":
        made.near_transport.inject("{")
    else:
        made.far_transport.outgoing.stall()
        clock.advance(10.0)
    clock.advance(3.0)
    assert made.near.is_closed
    for use in (lambda: CALLS[call](made.near), lambda: stream.send(1), stream.receive):
        with pytest.raises(ConnectionLost) as caught:
            use()
        cause = caught.value.__cause__
        assert cause is made.near.close_cause
        assert isinstance(cause, HeartbeatTimeoutError if end == "heartbeat" else ConnectionClosed)
        assert cause.code == code
        assert cause.was_clean is (end == "closed here")


def test_between_sockets_the_last_one_is_named(clock):
    far = MemoryDialer(Options(codec=JsonCodec(), clock=clock))
    peer = dialled(far)
    assert peer.close_cause is None
    far.error = OSError("still down")
    far.dials[0][0].inject_close(1012, "restart")
    settle()
    first = peer.close_cause
    with pytest.raises(ConnectionLost, match="between sockets; nothing is kept") as caught:
        peer.open()
    assert caught.value.__cause__ is first
    assert first.code == 1012
    clock.advance(60.0)
    # Failed attempts are the supervisor's to tell.
    assert peer.close_cause is first
    assert peer.supervisor.last_error is far.error
    far.error = None
    clock.advance(60.0)
    assert peer.is_open
    assert peer.close_cause is first
    peer.close()
    with pytest.raises(ConnectionLost, match="the peer is closed") as caught:
        peer.open()
    assert caught.value.__cause__ is peer.close_cause
    assert peer.close_cause.code == 1000


def test_an_error_that_is_raised_again_and_again_grows_no_traceback(ends):
    made = ends()
    stream = made.near.open()
    made.drop()
    stream.closed.wait(PATIENCE)
    lengths = []
    for _ in range(5):
        with pytest.raises(ConnectionLost) as caught:
            stream.receive()
        lengths.append(len(traceback.extract_tb(caught.value.__traceback__)))
    assert len(set(lengths)) == 1


def test_every_waiter_gets_an_error_of_its_own(ends):
    made = ends()
    made.far.on_stream(Gate())
    stream = made.near.open()
    waiting = [outcome(stream.result) for _ in range(3)]
    settle()
    made.inject(type="reset", stream=stream.id, code=2, reason="why", payload={"a": 1})
    errors = [each.get(timeout=PATIENCE) for each in waiting]
    assert len(set(map(id, errors))) == 3
    for error in errors:
        assert type(error) is RemoteError
        assert (error.reason, error.payload, error.stream_id, error.code) == ("why", {"a": 1}, stream.id, 2)
        assert str(error) == "why"


KINDS: list[tuple[int, type[StreamReset]]] = [
    (0, StreamReset),
    (1, StreamReset),
    (2, RemoteError),
    (3, StreamReset),
    (4, StreamRefused),
    (5, StreamReset),
    (6, StreamTimeout),
    (7, StreamReset),
    (8, StreamReset),
    (9, StreamReset),
    (99, StreamReset),
]


@pytest.mark.parametrize("code, kind", KINDS)
def test_the_exception_of_each_code(code, kind):
    error = error_for_reset(code, None, stream_id=3)
    assert type(error) is kind
    assert error.code == code
    assert error.stream_id == 3
    assert error.reason is None
    assert str(error)
    copy = error.clone()
    assert type(copy) is kind
    assert copy is not error
    assert (copy.code, copy.stream_id, copy.reason, str(copy)) == (error.code, 3, None, str(error))


def test_a_clone_keeps_its_cause():
    error = ConnectionLost("gone", stream_id=1)
    error.__cause__ = ConnectionClosed(code=1006)
    assert error.clone().__cause__ is error.__cause__
    assert error.clone().code is ResetCode.CONNECTION_CLOSED


def test_unknown_codes_stay_numbers():
    assert known_reset_code(3) is ResetCode.PROTOCOL_ERROR
    assert known_reset_code(77) == 77
    assert not isinstance(known_reset_code(77), ResetCode)


@pytest.mark.parametrize("error", [StreamReset("a", code=3, stream_id=1), RemoteError("a", payload=[1], stream_id=1)])
def test_errors_can_be_pickled(error):
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert copy.__dict__ == error.__dict__
    assert str(copy) == str(error)
