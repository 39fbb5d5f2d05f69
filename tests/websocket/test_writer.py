"""What is sent: read back by `websockets`, and the limits of close and control frames."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode

from muxws_green.websocket import (
    Close,
    MessageReader,
    encode_close,
    encode_messages,
    encode_ping,
    encode_pong,
)
from tests.websocket.oracle import Oracle

masked_or_not = pytest.mark.parametrize("masked", [False, True], ids=["server", "client"])

SIZES = [0, 1, 125, 126, 127, 4096, 65535, 65536, 100_000]


def frames_in(data: bytes, masked: bool) -> list[Frame]:
    """The frames as the library reads them on the other side; a broken rule fails."""
    oracle = Oracle(client=not masked, max_message_bytes=1_000_000)
    oracle.protocol.receive_data(data)
    assert oracle.error is None
    return [event for event in oracle.protocol.events_received() if isinstance(event, Frame)]


@masked_or_not
@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
def test_a_batch_is_one_frame_for_each_message(masked, binary):
    messages = [bytes(at % 96 + 32 for at in range(size)) for size in SIZES]
    frames = frames_in(encode_messages(messages, binary, masked), masked)
    assert [bytes(frame.data) for frame in frames] == messages
    assert {frame.opcode for frame in frames} == {Opcode.BINARY if binary else Opcode.TEXT}
    assert all(frame.fin for frame in frames)


@masked_or_not
def test_no_messages_are_no_bytes(masked):
    assert encode_messages([], False, masked) == b""


@masked_or_not
@pytest.mark.parametrize(
    "size, head_bytes", [(0, 2), (125, 2), (126, 4), (65535, 4), (65536, 10)], ids=lambda value: str(value)
)
def test_a_length_takes_no_more_bytes_than_needed(masked, size, head_bytes):
    made = encode_messages([bytes(size)], True, masked)
    assert len(made) == head_bytes + (4 if masked else 0) + size


@given(st.lists(st.binary(max_size=300), max_size=5), st.booleans(), st.booleans())
def test_our_reader_reads_what_our_writer_wrote(messages, binary, masked):
    if not binary:
        messages = [message.decode("utf-8", "replace").encode() for message in messages]
    reader = MessageReader(client=not masked, max_message_bytes=2000)
    expected = messages if binary else [message.decode() for message in messages]
    assert reader.feed(encode_messages(messages, binary, masked)) == expected
    assert reader.violation is None


def test_each_masked_frame_has_a_key_of_its_own():
    # Messages of zeros show their keys.
    made = encode_messages([bytes(4)] * 5000, True, True)
    keys = {made[at + 2 : at + 6] for at in range(0, len(made), 10)}
    assert len(keys) > 4990
    assert all(made[at + 6 : at + 10] in keys for at in range(0, len(made), 10))


@masked_or_not
@pytest.mark.case("C01")
@pytest.mark.parametrize("code", [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1014, 3000, 4999])
def test_a_close_frame_has_its_code_and_its_reason(masked, code):
    made = encode_close(code, "done ✓", masked)
    oracle = Oracle(client=not masked, max_message_bytes=1000)
    assert oracle.feed([made]).close == (code, "done ✓")
    if not masked:
        assert made[2:4] == code.to_bytes(2, "big")


@masked_or_not
@pytest.mark.case("C02")
def test_an_empty_close_frame(masked):
    (frame,) = frames_in(encode_close(None, "", masked), masked)
    assert frame.opcode is Opcode.CLOSE
    assert bytes(frame.data) == b""


@masked_or_not
@pytest.mark.parametrize("code", [-1, 0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65536, 10**9])
def test_a_code_that_must_not_be_on_the_wire_raises(masked, code):
    with pytest.raises(ValueError, match=str(code)) as raised:
        encode_close(code, "", masked)
    assert raised.type is ValueError


def test_a_reason_without_a_code_raises():
    with pytest.raises(ValueError, match="reason"):
        encode_close(None, "why", False)


@masked_or_not
@pytest.mark.parametrize(
    "reason, sent",
    [
        ("x" * 123, "x" * 123),
        ("x" * 124, "x" * 123),
        ("é" * 62, "é" * 61),
        ("x" + "é" * 61, "x" + "é" * 61),
        ("€" * 41, "€" * 41),
        ("xx" + "€" * 41, "xx" + "€" * 40),
        ("x" + "🎉" * 31, "x" + "🎉" * 30),
        ("a\ud83dz", "a?z"),
    ],
)
def test_a_reason_is_cut_on_a_character_boundary(masked, reason, sent):
    reader = MessageReader(client=not masked, max_message_bytes=1000)
    reader.feed(encode_close(1000, reason, masked))
    assert reader.close == Close(1000, sent)


@given(st.text(max_size=200))
def test_every_reason_makes_a_sound_close_frame(reason):
    reader = MessageReader(client=True, max_message_bytes=1000)
    reader.feed(encode_close(1000, reason, False))
    assert reader.close is not None
    assert reason.startswith(reader.close.reason)
    assert len(reason) == len(reader.close.reason) or len(reader.close.reason.encode()) > 119


@masked_or_not
@pytest.mark.parametrize("encode, opcode", [(encode_ping, Opcode.PING), (encode_pong, Opcode.PONG)])
@pytest.mark.parametrize("size", [0, 1, 125])
def test_pings_and_pongs(masked, encode, opcode, size):
    payload = bytes(range(size))
    (frame,) = frames_in(encode(payload, masked), masked)
    assert frame.opcode is opcode
    assert bytes(frame.data) == payload


@masked_or_not
@pytest.mark.parametrize("encode", [encode_ping, encode_pong])
def test_a_control_frame_that_is_too_long_raises(masked, encode):
    with pytest.raises(ValueError, match="125"):
        encode(bytes(126), masked)
