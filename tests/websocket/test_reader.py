"""The rules of RFC 6455 §5 for what arrives, each from both sides."""

from __future__ import annotations

import tracemalloc

import pytest

from muxws_green.websocket import MAX_EMPTY_CONTINUATIONS, Close, MessageReader, Violation
from tests.websocket.wire import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    both_sides,
    close,
    frame,
    head,
)

LIMIT = 1000


def reader(client: bool, limit: int = LIMIT) -> MessageReader:
    return MessageReader(client=client, max_message_bytes=limit)


def code_of(reader: MessageReader) -> int | None:
    return reader.violation.code if reader.violation else None


# What is good.


@both_sides
@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 4096, 4097, 65535, 65536, 70000])
@pytest.mark.parametrize("opcode", [TEXT, BINARY])
def test_a_message_of_each_length_form(client, size, opcode):
    under_test = reader(client, 70000)
    payload = bytes(at % 96 + 32 for at in range(size))
    (message,) = under_test.feed(frame(payload, opcode, client=client))
    assert message == (payload.decode() if opcode == TEXT else payload)
    assert type(message) is (str if opcode == TEXT else bytes)
    assert under_test.close is None
    assert under_test.violation is None


@both_sides
@pytest.mark.parametrize("size", [0, 5, 200, 5000])
@pytest.mark.parametrize("length_form", [16, 64])
def test_a_length_in_more_bytes_than_needed_is_taken(client, size, length_form):
    # As `websockets` does; RFC 6455 §5.2 binds the sender, and no harm comes from it.
    under_test = reader(client, 5000)
    assert under_test.feed(frame("x" * size, client=client, length_form=length_form)) == ["x" * size]


@both_sides
def test_many_messages_in_one_piece_keep_their_order(client):
    pieces = [frame(f"message {at}", client=client) for at in range(50)]
    pieces.insert(20, frame(b"\x00\xff", BINARY, client=client))
    expected: list[str | bytes] = [f"message {at}" for at in range(50)]
    expected.insert(20, b"\x00\xff")
    assert reader(client).feed(b"".join(pieces)) == expected


@both_sides
@pytest.mark.parametrize("opcode", [TEXT, BINARY])
def test_byte_by_byte(client, opcode):
    stream = (
        frame("short", opcode, client=client)
        + frame("é" * 100, opcode, client=client)
        + frame("", opcode, client=client)
        + frame("w" * 5000, opcode, client=client)
        + frame("frag", opcode, client=client, fin=False)
        + frame(b"ping", PING, client=client)
        + frame("ment", CONTINUATION, client=client)
        + frame("x" * 66000, opcode, client=client)
        + close(1001, "going", client=client)
    )
    under_test = reader(client, 66000)
    messages = [message for at in range(len(stream)) for message in under_test.feed(stream[at : at + 1])]
    expected = ["short", "é" * 100, "", "w" * 5000, "fragment", "x" * 66000]
    assert messages == (expected if opcode == TEXT else [text.encode() for text in expected])
    assert under_test.take_ping() == b"ping"
    assert under_test.close == Close(1001, "going")
    assert under_test.violation is None


@both_sides
def test_what_follows_a_frame_that_came_in_two_pieces_is_read(client):
    first, second = frame("a" * 300, client=client), frame("b" * 300, client=client)
    for cut in range(len(first)):
        under_test = reader(client)
        assert under_test.feed(first[:cut]) == []
        assert under_test.feed(first[cut:] + second + second[:7]) == ["a" * 300, "b" * 300]
        assert under_test.feed(second[7:]) == ["b" * 300]


@both_sides
def test_nothing_changes_nothing(client):
    under_test = reader(client)
    assert under_test.feed(b"") == []
    whole = frame("x" * 200, client=client)
    assert under_test.feed(whole[:100]) == []
    assert under_test.feed(b"") == []
    assert under_test.feed(whole[100:]) == ["x" * 200]


@both_sides
def test_fragments_become_one_message(client):
    under_test = reader(client)
    euro = "€".encode()
    assert under_test.feed(frame(b"a" + euro[:1], TEXT, client=client, fin=False)) == []
    assert under_test.feed(frame(euro[1:2], CONTINUATION, client=client, fin=False)) == []
    assert under_test.feed(frame(euro[2:] + b"z", CONTINUATION, client=client)) == ["a€z"]
    assert under_test.feed(frame("whole", client=client)) == ["whole"]
    assert under_test.feed(frame(b"\xff", BINARY, client=client, fin=False)) == []
    (message,) = under_test.feed(frame(b"\xfe", CONTINUATION, client=client))
    assert message == b"\xff\xfe"
    assert type(message) is bytes


@both_sides
def test_control_frames_between_fragments(client):
    under_test = reader(client)
    stream = (
        frame("one ", client=client, fin=False)
        + frame(b"p", PING, client=client)
        + frame(b"q", PONG, client=client)
        + frame("two", CONTINUATION, client=client)
    )
    assert under_test.feed(stream) == ["one two"]
    assert under_test.take_ping() == b"p"


@both_sides
def test_a_control_frame_does_not_count_for_the_size_of_the_message_around_it(client):
    under_test = reader(client, 10)
    assert under_test.feed(frame("a" * 9, client=client, fin=False)) == []
    assert under_test.feed(frame(b"p" * 125, PING, client=client)) == []
    assert under_test.feed(frame("b", CONTINUATION, client=client)) == ["a" * 9 + "b"]
    assert under_test.take_ping() == b"p" * 125
    assert under_test.violation is None


# Pings.


@both_sides
def test_only_the_latest_ping_is_to_be_answered(client):
    under_test = reader(client)
    assert under_test.take_ping() is None
    under_test.feed(b"".join(frame(str(at), PING, client=client) for at in range(100)))
    assert under_test.take_ping() == b"99"
    assert under_test.take_ping() is None
    under_test.feed(frame(b"", PING, client=client))
    assert under_test.take_ping() == b""


@both_sides
def test_pongs_are_ignored(client):
    under_test = reader(client)
    assert under_test.feed(frame(b"unasked", PONG, client=client) + frame("x", client=client)) == ["x"]
    assert under_test.take_ping() is None


@both_sides
def test_a_ping_before_a_close_can_still_be_answered(client):
    under_test = reader(client)
    under_test.feed(frame(b"p", PING, client=client) + close(1000, client=client))
    assert under_test.take_ping() == b"p"


# Closes.


@both_sides
@pytest.mark.parametrize("code", [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 4999])
def test_a_close_frame(client, code):
    under_test = reader(client)
    under_test.feed(close(code, "bye ✓", client=client))
    assert under_test.close == Close(code, "bye ✓")
    assert type(under_test.close.code) is int
    assert under_test.violation is None


@both_sides
@pytest.mark.case("C02")
def test_an_empty_close_frame_is_1005(client):
    under_test = reader(client)
    under_test.feed(frame(b"", CLOSE, client=client))
    assert under_test.close == Close(1005, "")


@both_sides
@pytest.mark.parametrize(
    "payload, code",
    [
        (b"\x03", 1002),
        *[(code.to_bytes(2, "big"), 1002) for code in (0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535)],
        (b"\x03\xe8\xff", 1007),
        (b"\x03\xe8" + b"ok \xed\xa0\x80", 1007),
    ],
)
def test_a_bad_close_frame_is_a_violation(client, payload, code):
    under_test = reader(client)
    under_test.feed(frame(payload, CLOSE, client=client))
    assert under_test.close is None
    assert code_of(under_test) == code


@both_sides
def test_a_close_in_the_middle_of_a_fragmented_message_is_a_close(client):
    # RFC 6455 §5.4 allows any control frame there. `websockets` makes it a violation.
    under_test = reader(client)
    under_test.feed(frame("half", client=client, fin=False) + close(1001, client=client))
    assert under_test.close == Close(1001, "")
    assert under_test.violation is None


@both_sides
def test_messages_before_a_close_are_returned_and_everything_behind_it_is_dropped(client):
    under_test = reader(client)
    late = frame("late", client=client) + frame(b"late", PING, client=client) + close(1002, client=client)
    stream = frame("in time", client=client) + close(1000, client=client) + late
    assert under_test.feed(stream) == ["in time"]
    assert under_test.feed(late) == []
    assert under_test.feed(b"\xff" * 100) == []
    assert under_test.close == Close(1000, "")
    assert under_test.violation is None
    assert under_test.take_ping() is None


@both_sides
def test_a_close_that_completes_an_incomplete_frame_ends_the_reading(client):
    under_test = reader(client)
    stream = close(1000, client=client)
    assert under_test.feed(stream[:-1]) == []
    assert under_test.feed(stream[-1:] + frame("late", client=client)) == []
    assert under_test.close == Close(1000, "")


# Violations.


def violations(client: bool) -> dict[str, tuple[bytes, bytes]]:
    """By name: frames that are fine, and behind them the one that is not."""

    def made(*args: object, **kwargs: object) -> bytes:
        return frame(*args, client=client, **kwargs)  # type: ignore[arg-type]

    alone = {
        "masked on the wrong side": made("x", masked=client),
        "ping masked on the wrong side": made("x", PING, masked=client),
        **{f"reserved bit {bit}": made("x", rsv=bit) for bit in (1, 2, 4, 7)},
        "reserved bit on a control frame": made("", PING, rsv=4),
        "reserved bit on a close frame": made("", CLOSE, rsv=4),
        **{f"opcode {opcode}": made("", opcode) for opcode in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15)},
        "fragmented ping": made("p", PING, fin=False),
        "fragmented close": made("", CLOSE, fin=False),
        "continuation of nothing": made("x", CONTINUATION),
        "open continuation of nothing": made("x", CONTINUATION, fin=False),
    }
    half = made("a", fin=False)
    return {name: (b"", stream) for name, stream in alone.items()} | {
        "continuation after the end": (half + made("b", CONTINUATION), made("c", CONTINUATION)),
        "text inside a message": (half, made("b")),
        "binary inside a message": (half, made("b", BINARY)),
        "fragment inside a message": (half, made("b", fin=False)),
    }


@both_sides
@pytest.mark.case("C07")
@pytest.mark.case("C09")
@pytest.mark.parametrize("name", list(violations(False)))
def test_a_broken_rule_is_a_violation_and_ends_the_reading(client, name):
    under_test = reader(client)
    good, bad = violations(client)[name]
    stream = frame("before", client=client) + good + bad + frame("behind", client=client)
    messages = under_test.feed(stream)
    assert messages[0] == "before"
    assert "behind" not in messages
    assert code_of(under_test) == 1002
    assert under_test.close is None
    assert under_test.feed(frame("behind", client=client)) == []


@both_sides
@pytest.mark.parametrize("name", list(violations(False)))
def test_a_broken_rule_is_found_in_the_first_two_bytes_of_the_frame(client, name):
    good, bad = violations(client)[name]
    under_test = reader(client)
    under_test.feed(good + bad[:1])
    assert under_test.violation is None
    under_test.feed(bad[1:2])
    assert code_of(under_test) == 1002


@both_sides
@pytest.mark.parametrize("name", list(violations(False)))
def test_a_broken_rule_is_found_in_bytes_of_its_own(client, name):
    good, bad = violations(client)[name]
    under_test = reader(client)
    assert under_test.feed(good) == (["ab"] if name == "continuation after the end" else [])
    assert under_test.violation is None
    assert under_test.feed(bad) == []
    assert code_of(under_test) == 1002


@both_sides
@pytest.mark.parametrize("opcode", [CLOSE, PING, PONG])
@pytest.mark.parametrize("size", [126, 127, 65536, 2**63])
def test_a_control_frame_of_more_than_125_bytes_is_found_at_the_end_of_its_length(client, opcode, size):
    under_test = reader(client)
    begun = head(0x80 | opcode, size, masked=not client)[: 4 if size < 65536 else 10]
    under_test.feed(begun[:-1])
    assert under_test.violation is None
    under_test.feed(begun[-1:])
    assert code_of(under_test) == 1002


@both_sides
@pytest.mark.parametrize("length_form", [16, 64])
def test_a_control_frame_whose_length_has_more_bytes_than_needed_is_taken(client, length_form):
    under_test = reader(client)
    under_test.feed(frame(b"p" * 125, PING, client=client, length_form=length_form))
    assert under_test.take_ping() == b"p" * 125
    assert under_test.violation is None


@both_sides
@pytest.mark.parametrize(
    "payload",
    [b"\xff", b"ok\x80", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\xaf", b"x" * 200 + b"\xe2\x82"],
)
def test_text_that_is_not_utf_8(client, payload):
    for stream in (
        frame(payload, client=client),
        frame(payload[:1], client=client, fin=False) + frame(payload[1:], CONTINUATION, client=client),
        frame(payload + b"x" * 5000, client=client),
    ):
        for pieces in ([stream], [stream[:-1], stream[-1:]], [stream[at : at + 1] for at in range(len(stream))]):
            under_test = reader(client, 6000)
            assert under_test.feed(frame("before", client=client)) == ["before"]
            assert [message for piece in pieces for message in under_test.feed(piece)] == []
            assert code_of(under_test) == 1007
            assert under_test.feed(frame("behind", client=client)) == []


@both_sides
def test_the_text_of_a_violation_holds_nothing_of_the_remote_but_numbers(client):
    marker = "secretmarker"
    for stream in [
        *[good + bad for good, bad in violations(client).values()],
        frame(marker.encode() + b"\xff", client=client),
        frame(b"\x03\xe8" + marker.encode() + b"\xff", CLOSE, client=client),
        frame(marker * 100, client=client),
        frame(marker * 100, PING, client=client),
    ]:
        under_test = reader(client)
        under_test.feed(stream)
        assert isinstance(under_test.violation, Violation)
        assert marker not in under_test.violation.reason
        assert under_test.violation.reason
        assert len(under_test.violation.reason.encode()) <= 123


# Size.


@both_sides
@pytest.mark.parametrize("limit", [1, 124, 125, 126, 127, 4095, 4096, 4097, 65535, 65536, 131072])
def test_a_message_of_the_limit_passes_and_one_byte_more_does_not(client, limit):
    for opcode in (TEXT, BINARY):
        under_test = reader(client, limit)
        assert len(under_test.feed(frame("x" * limit, opcode, client=client))) == 1
        assert under_test.violation is None
        under_test.feed(frame("x" * (limit + 1), opcode, client=client))
        assert code_of(under_test) == 1009


@both_sides
@pytest.mark.case("C08")
@pytest.mark.parametrize("size", [LIMIT + 1, 2**16, 2**40, 2**62, 2**63, 2**64 - 1])
def test_an_announced_length_is_judged_before_its_payload_comes(client, size):
    under_test = reader(client)
    announced = head(0x81, size, masked=not client, length_form=64)[: 2 + 8]
    assert under_test.feed(announced[:-1]) == []
    assert under_test.violation is None
    assert under_test.feed(announced[-1:]) == []
    assert code_of(under_test) == 1009


@both_sides
@pytest.mark.case("C08")
def test_an_announced_length_reserves_no_memory(client):
    under_test = reader(client, 2**40)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for size in (2**30, 2**39):
            under_test = reader(client, 2**40)
            under_test.feed(head(0x82, size, masked=not client) + b"0123456789")
            assert under_test.violation is None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < 10_000


@both_sides
def test_an_incomplete_frame_is_kept_once(client):
    size = 2**19
    under_test = reader(client, size)
    stream = frame(b"x" * size, BINARY, client=client)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for at in range(0, len(stream) - 1000, 1000):
            under_test.feed(stream[at : at + 1000])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < 1.5 * size


@both_sides
def test_nothing_is_kept_of_a_message_that_will_not_end(client):
    size = 2**17
    ends = [close(1000, client=client), frame("", 3, client=client), frame(b"\xff" * size, client=client)]
    for end in ends:
        under_test = reader(client, 2 * size)
        begun = frame(b"x" * size, BINARY, client=client, fin=False)
        last = end if len(end) > size else begun + end
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            assert under_test.feed(last[: size - 5]) == []
            kept, _ = tracemalloc.get_traced_memory()
            assert under_test.feed(last[size - 5 :]) == []
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert under_test.close or under_test.violation
        assert kept - before > size / 2
        assert after - before < 10_000


@both_sides
@pytest.mark.case("C08")
def test_the_sum_of_the_fragments_is_judged_from_the_announced_lengths(client):
    under_test = reader(client)
    assert under_test.feed(frame("x" * 600, client=client, fin=False)) == []
    assert under_test.feed(frame("x" * 400, CONTINUATION, client=client, fin=False)) == []
    assert under_test.violation is None
    assert under_test.feed(head(0x00, 1, masked=not client)) == []
    assert code_of(under_test) == 1009


@both_sides
def test_fragments_may_fill_the_limit(client):
    under_test = reader(client)
    stream = frame("x" * 600, client=client, fin=False) + frame("y" * 400, CONTINUATION, client=client)
    assert under_test.feed(stream + stream) == ["x" * 600 + "y" * 400] * 2


@both_sides
@pytest.mark.case("C08")
def test_empty_continuation_frames_have_a_bound_for_each_message(client):
    under_test = reader(client)
    empty = frame(b"", CONTINUATION, client=client, fin=False)
    for _ in range(3):
        assert under_test.feed(frame("a", client=client, fin=False)) == []
        assert under_test.feed(empty * MAX_EMPTY_CONTINUATIONS) == []
        assert under_test.violation is None
        assert under_test.feed(frame("b", CONTINUATION, client=client)) == ["ab"]
    under_test.feed(frame("a", client=client, fin=False) + empty * (MAX_EMPTY_CONTINUATIONS + 1))
    assert code_of(under_test) == 1009


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_refused(limit):
    with pytest.raises(ValueError, match="max_message_bytes"):
        reader(False, limit)
