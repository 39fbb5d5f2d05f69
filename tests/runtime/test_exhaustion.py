"""The last stream ids: the connection says so, lets its streams finish and makes room for another (PROTOCOL §6)."""

from __future__ import annotations

import pytest

from muxws_green import ConnectionGoingAway, JsonCodec
from muxws_green.runtime.options import Options
from muxws_green.runtime.parting import RETIRING_SECONDS
from muxws_green.testing import settle
from tests.runtime.ends import PATIENCE, Gate, MemoryDialer, dialled, echo, outcome

LAST = {True: 2**31 - 1, False: 2**31 - 2}


def nearly_used_up(peer, left):
    """Let `peer` have `left` more ids."""
    core = peer._link.core
    core._next_id = LAST[peer.is_dialer] - 2 * (left - 1)
    core._highest_local = core._next_id - 2


def test_the_last_id_is_used_and_then_the_peer_goes_away(ends, clock):
    made, gate, told = ends(clock=clock), Gate(), []
    made.near.on_close(told.append)
    made.far.on_stream(lambda payload, stream: echo(payload, stream) if payload else gate(payload, stream))
    nearly_used_up(made.near, 3)
    streams = [made.near.open(0, end=True), made.near.open(0, end=True)]
    gate.reached()
    assert made.sent_of("goaway") == []
    assert made.near.request("last", timeout=PATIENCE) == "last"
    assert [frame["stream"] for frame in made.sent_of("open")] == [LAST[made.near.is_dialer] - n for n in (4, 2, 0)]
    settle()
    (goaway,) = made.sent_of("goaway")
    assert goaway["code"] == 0
    for _ in range(2):
        with pytest.raises(ConnectionGoingAway):
            made.near.open()
    # What lives may finish.
    assert told == []
    gate.open.set()
    for stream in streams:
        assert stream.closed.wait(PATIENCE)
    settle()
    assert [(reason.code, reason.was_clean) for reason in told] == [(1000, True)]
    assert clock.now() == 0.0


def test_streams_that_do_not_finish_are_given_a_while(ends, clock):
    made, told = ends(clock=clock), []
    made.near.on_close(lambda reason: told.append(clock.now()))
    made.far.on_stream(Gate())
    nearly_used_up(made.near, 1)
    made.near.open()
    clock.advance(RETIRING_SECONDS + 5.0)
    assert told == [RETIRING_SECONDS]


@pytest.mark.parametrize("call", ["open", "request", "notify"])
def test_every_call_uses_them_up(ends, clock, call):
    made = ends(clock=clock)
    made.far.on_stream(echo)
    nearly_used_up(made.near, 1)
    waiting = outcome(getattr(made.near, call))
    settle()
    assert len(made.sent_of("goaway")) == 1
    waiting.get(timeout=PATIENCE)


def test_a_dialer_dials_again_and_counts_from_one(clock):
    far = MemoryDialer(Options(codec=JsonCodec(), clock=clock), lambda peer: peer.on_stream(echo))
    peer, told, again = dialled(far), [], []
    peer.on_close(told.append)
    peer.on_reconnect(lambda attempt, same: again.append(attempt))
    nearly_used_up(peer, 1)
    assert peer.request("last") == "last"
    settle()
    assert [(reason.code, reason.will_retry) for reason in told] == [(1000, True)]
    clock.advance(5.0)
    assert again == [1]
    stream = peer.open(end=True)
    assert stream.id == 1
    peer.close()
