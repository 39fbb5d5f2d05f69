"""Live, over loopback: our peer here, the reference in a process of its own, in both roles and under both codecs.

What either end sees must be right, and so must the frames that passed our end.
"""

from __future__ import annotations

from collections.abc import Iterator

import gevent
import pytest

from muxws_green.errors import ConnectionGoingAway, ResetCode, StreamReset
from muxws_green.protocol.frames import Frame
from muxws_green.runtime.stream import Stream
from tests.interop.matter import UNDER_WAY, blob, digest
from tests.interop.ours import ROLES, Conversation, resets, together
from tests.interop.process import PATIENCE, ReferenceFailed

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.watchdog(30), pytest.mark.leaks]

CALLS = 200
BIG = 5_000_000
SMALL = 20


@pytest.fixture(params=[(role, codec) for role in ROLES for codec in ("json", "msgpack")], ids=lambda p: "-".join(p))
def talk(request: pytest.FixtureRequest) -> Iterator[Conversation]:
    role, codec = request.param
    with ROLES[role](codec) as conversation:
        yield conversation
        conversation.ours.check_wire()


def failed(message: str, rows: int) -> dict[str, object]:
    return {
        "rows": list(range(rows)),
        "code": ResetCode.APPLICATION_ERROR,
        "reason": message,
        "payload": {"type": "LookupError", "message": message},
    }


def test_everything_at_once(talk: Conversation) -> None:
    ours, reference = talk.ours, talk.reference
    started = [
        reference.start("many", count=CALLS),
        reference.start("rows", count=500),
        reference.start("ticks", count=10),
        reference.start("fail", rows=3, message="kaputt §"),
    ]
    many, rows, ticks, failure = together(
        (ours.many, CALLS), (ours.rows, 500), (ours.ticks, 10), (ours.fail, 4, "oh 𝄞")
    )
    their_many, their_rows, their_ticks, their_failure = map(reference.finish, started)

    assert many == their_many == [{"do": "echo", "n": n} for n in range(CALLS)]
    exported = {"rows": list(range(500)), "reply_headers": {"kind": "rows"}, "trailers": {"rows": 500}}
    assert rows == their_rows == exported
    assert ticks == their_ticks == list(range(10))
    assert failure == failed("oh 𝄞", 4)
    assert their_failure == failed("kaputt §", 3)

    assert reference.do("ping")
    assert ours.peer.ping(PATIENCE) >= 0
    facts = reference.do("facts")
    assert facts["live"] == []
    assert facts["stopped"] == ours.stopped == ["ticks"]
    assert not ours.peer.streams
    assert resets(ours.frames("tx")) == {(1, "seen enough"): 1, (2, "kaputt §"): 1}
    assert resets(ours.frames("rx")) == {(1, "seen enough"): 1, (2, "oh 𝄞"): 1}
    # Metadata of 200 calls each way: each has its own.
    for opened in (facts["opened"], ours.opened):
        assert sorted(entry["headers"]["n"] for entry in opened if entry["do"] == "echo") == list(range(CALLS))
    for direction in ("tx", "rx"):
        answers = [frame for frame in ours.frames(direction, "data") if frame.headers and "echo" in frame.headers]
        assert len(answers) == CALLS
        assert all(frame.headers == {"echo": n} for frame in answers for n in [frame.payload["n"]])
        assert all(frame.trailers == {"n": frame.payload["n"]} and frame.end for frame in answers)


@pytest.mark.parametrize("what", ["upload", "fetch"])
@pytest.mark.parametrize("by", ["us", "the reference"])
def test_small_calls_overtake_a_big_payload(talk: Conversation, what: str, by: str) -> None:
    ours, reference = talk.ours, talk.reference
    if by == "us":
        with gevent.Timeout(PATIENCE):
            outcome = ours.overtake(what, BIG, SMALL)
    else:
        outcome = reference.do("overtake", what=what, size=BIG, count=SMALL)
        assert outcome["ended"] == ["small"] * SMALL + ["big"]
    assert outcome["answers"] == list(range(SMALL))
    assert outcome["digest"] == digest(blob(BIG, binary=ours.binary))

    there, back = ("tx", "rx") if by == "us" else ("rx", "tx")
    bulk_direction = there if what == "upload" else back
    bulk = [n for n, seen in enumerate(ours.seen) if seen.frame.fragment is not None]
    assert {ours.seen[n].direction for n in bulk} == {bulk_direction}
    assert len({ours.seen[n].frame.stream for n in bulk}) == 1
    assert len(bulk) >= BIG // 65_536
    big = ours.seen[bulk[0]].frame.stream

    def places(direction: str, kind: str) -> list[int]:
        return [
            n
            for n, seen in enumerate(ours.seen)
            if (seen.direction, seen.frame.type) == (direction, kind) and seen.frame.stream != big
        ]

    opens, answers = places(there, "open"), places(back, "data")
    assert len(opens) == len(answers) == SMALL
    assert bulk[0] < opens[0] <= opens[-1] < bulk[-1]
    assert opens[0] < answers[0]
    assert answers[-1] < bulk[-1]


@pytest.mark.parametrize("what", ["upload", "fetch"])
def test_cancelled_in_the_midst_of_its_fragments(talk: Conversation, what: str) -> None:
    ours, reference = talk.ours, talk.reference
    streams: list[Stream] = []
    ours.once_under_way("tx" if what == "upload" else "rx", lambda: streams[0].cancel("enough"))
    streams.append(ours.peer.open(ours.order(what, BIG), end=True))
    with gevent.Timeout(PATIENCE), pytest.raises(StreamReset) as caught:
        streams[0].result()
    assert caught.value.code is ResetCode.CANCELLED
    # The connection lives.
    assert together((ours.many, 3)) == [[{"do": "echo", "n": n} for n in range(3)]]
    assert reference.do("many", count=3)
    assert resets(ours.frames("tx")) == {(1, "enough"): 1}
    assert resets(ours.frames("rx")) == {}
    facts = reference.do("facts")
    assert facts["live"] == []
    if what == "upload":
        # It stopped at once, and so never became whole: no handler has seen it.
        assert len([frame for frame in ours.frames("tx") if frame.fragment is not None]) == UNDER_WAY
        assert "upload" not in [entry["do"] for entry in facts["opened"]]
    else:
        # The reference sends it to its end, since the stream is closed there once its end is queued. From the fragment
        # on at which the hook cancelled, all of it was late.
        fragments = [frame for frame in ours.frames("rx") if frame.fragment is not None]
        assert ours.peer.stats.late_frames == len(fragments[UNDER_WAY - 1 :])


def test_our_goaway_drains(talk: Conversation) -> None:
    ours, reference = talk.ours, talk.reference
    assert reference.do("many", count=2)
    theirs = reference.start("gate", name="here")
    mine = gevent.spawn(ours.peer.request, {"do": "gate", "name": "there"})
    assert together((ours.many, 2))
    reference.do("ping")
    closing = gevent.spawn(ours.peer.close, reason="that is all", drain=PATIENCE)
    gevent.sleep(0)
    with pytest.raises(ConnectionGoingAway):
        ours.peer.open({"do": "echo", "n": 0})
    # Both streams are live, so the goaway has left, and the close has to wait.
    reference.do("ping")
    with pytest.raises(ReferenceFailed, match="ConnectionGoingAway"):
        reference.do("open")
    ours.gate("here").set()
    assert reference.finish(theirs) == {"passed": "here"}
    assert not closing.ready()
    reference.do("open_gate", name="there")
    with gevent.Timeout(PATIENCE):
        assert mine.get() == {"passed": "there"}
        closing.get()
        assert reference.do("wait_closed") == {"code": 1000, "reason": "", "was_clean": True}
    (goaway,) = ours.frames("tx", "goaway")
    assert goaway == Frame("goaway", code=0, reason="that is all", last_stream=ours.frames("rx", "open")[-1].stream)
    assert ours.frames("rx", "goaway") == []
    (reason,) = ours.closes
    assert (reason.code, reason.reason, reason.was_clean, reason.will_retry) == (1000, "that is all", True, False)
    assert ours.peer.is_closed
