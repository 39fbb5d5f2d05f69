"""The same bytes into `MessageReader` and into `websockets`: the same messages, then the same end.

Invariant: over any bytes, cut anywhere, both yield the same messages in the same order and the same close frame or the
same code of a violation. The differences that are meant:

* a close frame between the fragments of a message is a close, not a violation (RFC 6455 §5.4);
* a frame is judged from its head: the verdict does not wait for the payload, and a frame that breaks a rule there and
  is too long besides is 1002 and not 1009;
* the size of messages does not bound control frames, which may have 125 bytes wherever they stand.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from websockets.protocol import OPEN
from websockets.server import ServerProtocol

from muxws_green.websocket import MessageReader
from tests.websocket.oracle import Oracle, Verdict
from tests.websocket.wire import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, both_sides, close, frame, head

LIMITS = [1, 20, 125, 130, 1000, 5000, 66000]
#: The rules that the library judges behind the length and the payload.
EARLY = ("a reserved bit", "a control frame", "a continuation frame without", "a new message before")


def ours(client: bool, limit: int, pieces: list[bytes]) -> tuple[Verdict, str]:
    reader = MessageReader(client=client, max_message_bytes=limit)
    messages = [message for piece in pieces for message in reader.feed(piece)]
    violation = reader.violation
    close_seen = reader.close and (reader.close.code, reader.close.reason)
    return Verdict(messages, close_seen, violation and violation.code), violation.reason if violation else ""


def check(client: bool, limit: int, pieces: list[bytes]) -> None:
    mine, reason = ours(client, limit, pieces)
    oracle = Oracle(client=client, max_message_bytes=limit)
    theirs = oracle.feed(pieces)
    if theirs == mine:
        return
    early = reason.startswith(EARLY)
    if early and theirs.violation is None and theirs.close is None:
        theirs = oracle.feed_the_rest()
    if early and theirs.violation == 1009:
        theirs = theirs._replace(violation=1002)
    assert mine == theirs


# Streams.


def texts(limit: int) -> st.SearchStrategy[bytes]:
    sizes = st.sampled_from([0, 1, 5, 124, 125, 126, 127, 4096, 4097, limit - 1, limit, limit + 1])
    long = st.builds(lambda size, of: of * max(0, size), sizes.filter(lambda size: size <= 70000), st.just(b"x"))
    return st.one_of(st.text(max_size=20).map(str.encode), long, st.binary(max_size=20))


def sound(client: bool, limit: int) -> st.SearchStrategy[bytes]:
    """One message or control frame that keeps the rules, but for its size and its UTF-8."""
    control = st.builds(
        lambda opcode, payload: frame(payload, opcode, client=client),
        st.sampled_from([PING, PONG]),
        st.one_of(st.binary(max_size=10), st.just(b"p" * 125)),
    )
    length_form = st.sampled_from([None, None, None, 64])
    whole = st.builds(
        lambda payload, opcode, form: frame(payload, opcode, client=client, length_form=form),
        texts(limit),
        st.sampled_from([TEXT, BINARY]),
        length_form,
    )

    @st.composite
    def fragmented(draw: st.DrawFn) -> bytes:
        payload = draw(texts(limit))
        cuts = sorted(draw(st.lists(st.integers(0, len(payload)), max_size=4)))
        made = b""
        for number, (start, stop) in enumerate(zip([0, *cuts], [*cuts, len(payload)], strict=True)):
            opcode = CONTINUATION if number else draw(st.sampled_from([TEXT, BINARY]))
            made += frame(payload[start:stop], opcode, client=client, fin=number == len(cuts))
            made += draw(st.one_of(st.just(b""), control))
        return made

    return st.one_of(whole, whole, fragmented(), control)


def odd(client: bool, limit: int) -> st.SearchStrategy[bytes]:
    """One frame that may break any rule."""
    anything = st.builds(
        lambda payload, opcode, fin, rsv, wrong, form: frame(
            payload, opcode, client=client, fin=fin, rsv=rsv, masked=client if wrong else not client, length_form=form
        ),
        texts(limit),
        st.one_of(st.sampled_from([CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG]), st.integers(0, 15)),
        st.booleans(),
        st.sampled_from([0, 0, 0, 0, 1, 2, 4]),
        st.sampled_from([False, False, False, True]),
        st.sampled_from([64]),
    )
    announced = st.builds(
        lambda first, size: head(first, size, masked=not client, length_form=64),
        st.integers(0, 255),
        st.one_of(st.integers(0, 200), st.integers(limit - 2, limit + 2), st.integers(0, 2**64 - 1)).filter(
            lambda size: size >= 0
        ),
    )
    closing = st.one_of(
        st.builds(
            lambda code, reason: close(code, reason, client=client),
            st.sampled_from([1000, 1001, 1005, 1006, 1015, 3000, 999, 5000]),
            st.text(max_size=10),
        ),
        st.binary(max_size=6).map(lambda payload: frame(payload, CLOSE, client=client)),
    )
    return st.one_of(anything, announced, closing, st.binary(max_size=20))


@st.composite
def streams(draw: st.DrawFn) -> tuple[bool, int, list[bytes]]:
    client = draw(st.booleans())
    limit = draw(st.sampled_from(LIMITS))
    kind = draw(st.sampled_from(["sound", "odd", "odd at the end", "mutated", "random"]))
    if kind == "random":
        stream = draw(st.binary(max_size=300))
    elif kind == "odd":
        stream = b"".join(draw(st.lists(odd(client, limit), max_size=4)))
    else:
        stream = b"".join(draw(st.lists(sound(client, limit), max_size=6)))
        if kind == "odd at the end":
            stream += b"".join(draw(st.lists(odd(client, limit), min_size=1, max_size=2)))
        elif kind == "mutated" and stream:
            mutable = bytearray(stream)
            for _ in range(draw(st.integers(1, 3))):
                # Mostly near the beginning, where the heads are.
                at = draw(st.integers(0, min(len(mutable), 40))) if draw(st.booleans()) else len(mutable) // 2
                change = draw(st.sampled_from(["replace", "insert", "delete"]))
                new = draw(st.binary(min_size=1, max_size=3))
                mutable[at : at + (0 if change == "insert" else len(new))] = b"" if change == "delete" else new
            stream = bytes(mutable)
    return client, limit, draw(pieces_of(stream))


@st.composite
def pieces_of(draw: st.DrawFn, stream: bytes) -> list[bytes]:
    how = draw(st.sampled_from(["whole", "some", "many"]))
    if how == "whole":
        return [stream]
    if how == "many" and len(stream) <= 400:
        return [stream[at : at + 1] for at in range(len(stream))]
    cuts = [0, *sorted(draw(st.lists(st.integers(0, len(stream)), max_size=8))), len(stream)]
    return [stream[start:stop] for start, stop in pairwise(cuts)]


@pytest.mark.slow
@given(streams())
@example((False, 130, [frame("a" * 130, client=False, fin=False) + frame("b", PING, client=False)]))
@example((True, 20, [frame("a", client=True, fin=False) + close(1000, client=True)]))
@example((True, 20, [frame("a" * 21, client=True, rsv=4)]))
@example((False, 1000, [head(0x89, 200, masked=True)]))
def test_reader_and_library_agree(stream):
    check(*stream)


# The differences, and that they are what the library does.


@both_sides
def test_a_close_between_fragments(client):
    stream = frame("a", client=client, fin=False) + close(1001, "why", client=client)
    assert ours(client, 10, [stream])[0] == Verdict([], (1001, "why"), None)
    oracle = Oracle(client=client, max_message_bytes=10)
    oracle.feed([stream])
    assert str(oracle.error) == "incomplete fragmented message"


@both_sides
def test_a_frame_with_two_faults(client):
    for stream in (frame("a" * 200, client=client, rsv=4), head(0x8A, 300, masked=not client)):
        assert ours(client, 100, [stream])[0].violation == 1002
        assert Oracle(client=client, max_message_bytes=100).feed([stream]).violation == 1009


@both_sides
def test_a_fault_before_the_payload_has_come(client):
    begun = frame("a" * 50, client=client, rsv=4)[:2]
    assert ours(client, 100, [begun])[0].violation == 1002
    oracle = Oracle(client=client, max_message_bytes=100)
    assert oracle.feed([begun]).violation is None
    assert oracle.feed_the_rest().violation == 1002


def test_a_ping_in_a_full_message():
    stream = (
        frame("a" * 90, client=False, fin=False)
        + frame("p" * 20, PING, client=False)
        + frame("b", CONTINUATION, client=False)
    )
    assert ours(False, 100, [stream])[0] == Verdict(["a" * 90 + "b"], None, None)
    protocol = ServerProtocol(state=OPEN, max_size=100)
    protocol.receive_data(stream)
    assert protocol.close_sent is not None
    assert protocol.close_sent.code == 1009
