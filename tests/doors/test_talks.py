"""What two peers do with each other is the same behind every door, whichever of the two begins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gevent
import pytest

from muxws_green.errors import ConnectionGoingAway, ResetCode
from tests.doors.doors import DOORS, Door, Talk, talk_here, talk_to
from tests.transports.raw import PATIENCE

pytestmark = [pytest.mark.slow, pytest.mark.leaks, pytest.mark.watchdog(40)]

ROLES = ["dialer", "acceptor"]
BIG_BYTES = 5_000_000

HERE = [(kind, codec_name) for kind in ("memory", "tcp", "tls", "unix") for codec_name in ("json", "msgpack")]


@pytest.fixture
def talk(place: Any) -> Iterator[Talk]:
    with talk_here(*place) if isinstance(place, tuple) else talk_to(place) as talk:
        yield talk


everywhere = pytest.mark.parametrize(
    "place",
    [*HERE, *(pytest.param(door, marks=pytest.mark.host) for door in DOORS)],
    indirect=True,
    ids=lambda place: str(place) if isinstance(place, Door) else "-".join(place),
)
by_role = pytest.mark.parametrize("role", ROLES)


@everywhere
@by_role
def test_it_says_things_back(talk: Talk, role: str) -> None:
    for value in (None, "ä\u2028𝄞", 2**53, 1.5, {"a": [1, {"b": None}]}, "x" * 200_000, ""):
        assert talk.do(role, "say", value=value) == value


@everywhere
@by_role
def test_two_hundred_streams_are_live_at_once(talk: Talk, role: str) -> None:
    assert talk.do(role, "meet", count=200) == list(range(200))


@everywhere
def test_a_big_payload_goes_there_and_back(talk: Talk) -> None:
    sent, received = talk.do("dialer", "carry", size_bytes=BIG_BYTES)
    assert sent == received


@pytest.mark.parametrize("place", HERE, indirect=True, ids="-".join)
def test_a_big_payload_of_the_acceptors_goes_there_and_back(talk: Talk) -> None:
    sent, received = talk.do("acceptor", "carry", size_bytes=BIG_BYTES)
    assert sent == received


@everywhere
@by_role
def test_either_side_of_a_stream_may_end_first(talk: Talk, role: str) -> None:
    whole = {"got": [1, "zwei", None], "trailers": {"count": 3}, "state": "closed"}
    assert talk.do(role, "finish_first", items=[1, "zwei", None]) == whole
    assert talk.do(role, "finish_last", items=[4, "fünf"]) == [4, "fünf"]


@everywhere
@by_role
def test_a_reset_is_seen_by_the_handler_at_the_other_end(talk: Talk, role: str) -> None:
    ends = talk.do(role, "reset", code=ResetCode.CANCELLED, reason="kein Bedarf")
    assert ends == ["StreamReset", 1, "kein Bedarf"]


@everywhere
@by_role
def test_a_reset_by_a_handler_is_seen_by_the_opener_and_costs_nothing_else(talk: Talk, role: str) -> None:
    ends = talk.do(role, "be_reset", code=ResetCode.REFUSED, reason="heute nicht")
    assert ends == ["StreamRefused", 4, "heute nicht", "alive"]


@everywhere
@by_role
def test_whoever_goes_away_lets_streams_finish_and_closes_with_1000(talk: Talk, role: str) -> None:
    mine = talk.mine
    stream = mine.peer.open({"do": "ticks"})
    stream.send("before")
    assert stream.receive(timeout=PATIENCE) == {"tick": "before"}
    closing: gevent.Greenlet[..., Any]
    if role == "dialer":
        closing = gevent.spawn(mine.peer.close, reason="that is all", drain=PATIENCE)
        gevent.sleep(0)
    else:
        leaving = mine.peer.open({"do": "leave", "reason": "that is all", "drain": PATIENCE}, end=True)
        assert leaving.result(timeout=PATIENCE) == "leaving"
        closing = gevent.spawn(mine.peer.serve)
        # Behind the goaway.
        mine.peer.ping(PATIENCE)
    with pytest.raises(ConnectionGoingAway):
        mine.peer.open({"do": "say", "value": 1})
    assert not closing.ready()
    stream.send("after", end=True)
    assert list(stream) == [{"tick": "after"}]
    with gevent.Timeout(PATIENCE):
        closing.get()
    assert talk.remote_closes() == mine.told() == [[1000, "that is all", True, False]]
