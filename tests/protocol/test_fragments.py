"""Where payloads are cut, and how they are put together again (PROTOCOL §5)."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muxws_green.codecs.envelopes import envelopes_of
from muxws_green.codecs.json import JsonCodec
from muxws_green.codecs.msgpack import MsgpackCodec
from muxws_green.errors import ProtocolError
from muxws_green.protocol.assembler import Assembler
from muxws_green.protocol.fragments import MAX_FRAME_BYTES, Splitter, checked_cap, split_frame
from muxws_green.protocol.frames import ABSENT, Frame
from tests.codecs.samples import CODECS, Counting, PlainBinary, PlainText, Swelling, as_received, messages
from tests.shared import shared_dir
from tests.values import metadata, payloads

JSON = JsonCodec()
MSGPACK = MsgpackCodec()
BOUNDARIES = json.loads((shared_dir() / "conformance/frames/v1-fragment-boundaries.json").read_text("utf-8"))
BY_NAME = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)


def splitter(codec, payload, cap, *, headers=None, end=True, trailers=None, kind="data", stream=1):
    encoded = codec.encode_payload(payload)
    return Splitter(codec, envelopes_of(codec), kind, stream, encoded, headers, end, trailers, cap)


def split(codec, payload, cap, **options):
    """What a splitter's messages decode to."""
    return [codec.decode(as_received(codec, m)) for m in messages(splitter(codec, payload, cap, **options))]


def length(codec, frame):
    message = codec.encode(frame)
    return len(message.encode() if isinstance(message, str) else message)


def joined(codec, fragments):
    assembler = Assembler()
    for fragment in fragments:
        assembler.add(fragment.fragment)
    return codec.decode_payload(assembler.join())


def test_the_cap_is_a_constant():
    assert MAX_FRAME_BYTES == 65_536


@pytest.mark.parametrize("case", BOUNDARIES, ids=lambda case: case["name"])
def test_corpus(case):
    frame = Frame("data", stream=1, payload=case["payload"], end=True)
    whole = split_frame(frame, case["cap"], JSON)
    assert [fragment.fragment for fragment in whole] == case["fragments"]
    assert joined(JSON, whole) == case["payload"]
    assert split(JSON, case["payload"], case["cap"]) == whole


@st.composite
def splits(draw):
    codec = draw(st.sampled_from(CODECS))
    big = st.text(st.sampled_from('a"\\\n\x01é€😀'), min_size=100, max_size=800)
    if codec.binary:
        big |= st.binary(min_size=100, max_size=1500)
    payload = draw(big | st.lists(payloads(codec.name), min_size=3, max_size=15))
    return {
        "codec": codec,
        "payload": payload,
        "cap": draw(st.integers(2, 200) | st.integers(200, 2000)),
        "headers": draw(metadata(codec.name) | st.just({"h": "x" * 600})),
        "trailers": draw(metadata(codec.name) | st.just({"t": "x" * 600})),
        "end": draw(st.booleans()),
        "kind": draw(st.sampled_from(["open", "data"])),
        "stream": draw(st.sampled_from([1, 300, 2**31 - 1])),
    }


@given(splits())
def test_fragments_fit_and_are_the_payload(case):
    codec, payload, cap, headers, end, trailers = (
        case[name] for name in ("codec", "payload", "cap", "headers", "end", "trailers")
    )
    frame = Frame(case["kind"], case["stream"], payload=payload, headers=headers, end=end, trailers=trailers)
    try:
        fragments = split_frame(frame, cap, codec)
    except ProtocolError:
        return
    if fragments == [frame]:
        assert length(codec, frame) <= cap
        return
    assert joined(codec, fragments) == payload
    last = len(fragments) - 1
    for index, fragment in enumerate(fragments):
        assert length(codec, fragment) <= cap
        assert (fragment.type, fragment.stream, fragment.payload) == (frame.type, frame.stream, ABSENT)
        assert fragment.more is (index != last)
        assert fragment.headers == (headers if index == 0 else None)
        assert fragment.end is (end and index == last)
        assert fragment.trailers == (trailers if index == last else None)
        assert fragment.fragment or index == last


@given(splits())
def test_splitter_does_what_split_frame_does(case):
    codec, payload, cap = case.pop("codec"), case.pop("payload"), case.pop("cap")
    frame = Frame(
        case["kind"],
        case["stream"],
        payload=payload,
        headers=case["headers"],
        end=case["end"],
        trailers=case["trailers"],
    )
    if length(codec, frame) <= cap:
        return
    try:
        expected = split_frame(frame, cap, codec)
    except ProtocolError:
        with pytest.raises(ProtocolError):
            splitter(codec, payload, cap, **case)
        return
    assert split(codec, payload, cap, **case) == expected


@given(splits())
def test_codecs_of_others_are_cut_at_the_same_places(case):
    codec, payload, cap = case.pop("codec"), case.pop("payload"), case.pop("cap")
    foreign = PlainBinary() if codec.binary else PlainText()
    try:
        cut = split(foreign, payload, cap, **case)
    except ProtocolError:
        return
    frame = Frame(case["kind"], case["stream"], payload, None, False, case["headers"], case["end"], case["trailers"])
    if length(foreign, frame) > cap:
        assert cut == split_frame(frame, cap, foreign)


@pytest.mark.parametrize("payload", ["x" * 3000, '"é' * 1000], ids=["plain", "escapes"])
@pytest.mark.parametrize("cap", [700, 1024, 1300])
def test_a_codec_whose_fragments_do_not_add_up_is_probed(payload, cap):
    codec = Swelling()
    encoded = codec.encode_payload(payload)
    taken = messages(Splitter(codec, codec, "data", 1, encoded, None, True, None, cap))
    # Told that the operations are not the codec's own, it probes from the start.
    assert taken == messages(Splitter(JSON, codec, "data", 1, encoded, None, True, None, cap))
    assert len(taken) > 3
    assert all(len(message) <= cap for message in taken)


@pytest.mark.parametrize(
    "payload", ['"' * 400_000, "\x01" * 200_000, [{"a": "b"}] * 40_000], ids=["quotes", "controls", "records"]
)
def test_escapes_do_not_multiply_the_work(payload):
    codec = Counting()
    cut = splitter(codec, payload, MAX_FRAME_BYTES)
    size = cut.remaining_bytes
    taken = len(messages(cut))
    assert taken > 5
    # All that the envelope leaves is tried, then half by half measured, and what fits is wrapped. Bisection over whole
    # fragments would wrap about fourteen times that length.
    assert codec.fragment_bytes < 3 * taken * MAX_FRAME_BYTES
    assert codec.fragments < 25 * taken
    assert size == len(codec.encode_payload(payload))


def test_without_escapes_each_byte_is_wrapped_once():
    codec = Counting()
    cut = splitter(codec, "x" * 1_000_000, MAX_FRAME_BYTES)
    messages(cut)
    assert codec.fragment_bytes <= 1_000_002 + MAX_FRAME_BYTES


def test_only_one_message_is_prepared_ahead():
    codec = Counting()
    cut = splitter(codec, "x" * 1_000_000, MAX_FRAME_BYTES)
    assert codec.fragment_bytes <= MAX_FRAME_BYTES
    before = cut.remaining_bytes
    assert before == 1_000_002
    cut.next_message()
    assert codec.fragment_bytes <= MAX_FRAME_BYTES
    assert cut.remaining_bytes == before - (MAX_FRAME_BYTES - 512)
    assert not cut.done


@BY_NAME
def test_the_end_of_a_splitter(codec):
    cut = splitter(codec, "x" * 300, 200)
    taken = messages(cut)
    assert len(taken) > 1
    assert cut.done
    assert cut.remaining_bytes == 0
    with pytest.raises(RuntimeError):
        cut.next_message()


@BY_NAME
def test_later_changes_of_headers_and_trailers_change_nothing(codec):
    headers, trailers = {"h": [1]}, {"t": [1]}
    cut = splitter(codec, "x" * 600, 300, headers=headers, trailers=trailers)
    headers["h"].append(2)
    trailers["t"].append(2)
    trailers["u"] = "y" * 5000
    fragments = [codec.decode(as_received(codec, message)) for message in messages(cut)]
    assert fragments[0].headers == {"h": [1]}
    assert fragments[-1].trailers == {"t": [1]}


@BY_NAME
@pytest.mark.parametrize("cap", [300, 2000])
@pytest.mark.parametrize("part", ["headers", "trailers"])
def test_metadata_that_cannot_fit_raises_at_the_sender(codec, cap, part):
    with pytest.raises(ProtocolError, match=str(cap)):
        splitter(codec, "x" * 3 * cap, cap, **{part: {"k": "v" * cap}})


def test_a_payload_that_cannot_be_cut_raises_at_the_sender_and_not_later():
    # An envelope takes 52 bytes here, the last character 4 in itself.
    assert len(split(JSON, "aaaa", 54)) == 4
    with pytest.raises(ProtocolError, match="54"):
        splitter(JSON, "aaaa😀", 54)


@BY_NAME
def test_a_closing_fragment_may_be_empty(codec):
    # Three times the budget, and trailers beside which no budget fits.
    payload = "x" * (450 - len(codec.encode_payload("x" * 400)) + 400)
    trailers = {"t": "y" * 150}
    fragments = split(codec, payload, 300, trailers=trailers)
    assert fragments[-1].fragment in ("", b"")
    assert fragments[-1].trailers == trailers
    assert joined(codec, fragments) == payload


def test_split_frame_of_resets_keeps_code_and_reason():
    frame = Frame("reset", 3, payload="x" * 300, code=2, reason="because")
    fragments = split_frame(frame, 200, JSON)
    assert len(fragments) > 1
    assert {(fragment.code, fragment.reason) for fragment in fragments} == {(2, "because")}


def test_split_frame_refuses():
    frame = Frame("data", 1, payload="x" * 300)
    with pytest.raises(ProtocolError, match="codec"):
        split_frame(frame, 100)
    with pytest.raises(ProtocolError, match="cap of 1 "):
        split_frame(frame, 1, JSON)
    with pytest.raises(ProtocolError, match="cap of 20 "):
        split_frame(frame, 20, JSON)
    with pytest.raises(ProtocolError, match="without payload"):
        split_frame(Frame("open", 1, headers={"h": "x" * 300}), 100, JSON)


def test_split_frame_refuses_a_cap_that_is_shorter_than_a_character():
    class Unquoted(JsonCodec):
        def encode_payload(self, value):
            return value

    with pytest.raises(ProtocolError, match="cap of 4 "):
        split_frame(Frame("data", 1, payload="😀" * 10), 4, Unquoted())


def test_split_frame_leaves_what_fits_alone():
    frame = Frame("data", 1, payload="x" * 300)
    assert split_frame(frame, codec=JSON)[0] is frame


@BY_NAME
def test_checked_cap(codec):
    assert checked_cap(MAX_FRAME_BYTES, codec) == MAX_FRAME_BYTES
    assert checked_cap(64, codec) == 64
    for nonsense in (0, -1, True, 64.0, "64", None, MAX_FRAME_BYTES + 1):
        with pytest.raises(ValueError, match="max_frame_bytes"):
            checked_cap(nonsense, codec)
    for small in (1, 2, 30):
        with pytest.raises(ProtocolError, match=f"max_frame_bytes={small} "):
            checked_cap(small, codec)


@given(st.integers(2, 120), st.sampled_from(CODECS))
def test_a_checked_cap_holds_small_payloads(cap, codec):
    try:
        checked_cap(cap, codec)
    except ProtocolError:
        with pytest.raises(ProtocolError):
            split_frame(Frame("data", 1, payload={"a": "a" * 200}), cap, codec)
        return
    assert joined(codec, split_frame(Frame("data", 1, payload={"a": "a" * 200}), cap, codec)) == {"a": "a" * 200}


def test_assembler_counts_and_joins_text():
    assembler = Assembler()
    assert not assembler.in_progress
    assembler.add("aé")
    assembler.add("😀")
    assert assembler.in_progress
    assert assembler.byte_length == 7
    assert assembler.join() == "aé😀"
    assert not assembler.in_progress
    assert assembler.byte_length == 0


def test_assembler_joins_long_and_short_pieces_in_their_order():
    pieces = [b"a", b"b", b"c" * 100_000, b"d", b"e" * 100_000, b"f" * 100_000]
    assembler = Assembler()
    for piece in pieces:
        assembler.add(piece)
    assert assembler.byte_length == 300_003
    assert assembler.join() == b"".join(pieces)


@pytest.mark.parametrize("shown, kept", [(60_000, True), (40_000, False)])
def test_assembler_keeps_a_view_that_is_most_of_what_it_keeps_alive(shown, kept):
    data = b"x" * 100_000
    assembler = Assembler()
    assembler.add(memoryview(data)[:shown])
    assembler.add(b"y")
    piece, run = assembler.take()
    assert isinstance(piece, memoryview) is kept
    assert piece == data[:shown]
    assert run == b"y"
    assert not assembler.in_progress


def test_assembler_joins_bytes():
    assembler = Assembler()
    assembler.add(b"\xff")
    assembler.add(b"\x00")
    joined = assembler.join()
    assert joined == b"\xff\x00"
    assert type(joined) is bytes


def test_assembler_with_empty_pieces_is_in_progress():
    assembler = Assembler()
    assembler.add("")
    assert assembler.in_progress
    assert assembler.byte_length == 0
    assert assembler.join() == ""


@pytest.mark.parametrize("first, second", [("a", b"b"), (b"a", "b"), ("", b""), (b"", "")])
def test_assembler_refuses_a_mixture(first, second):
    assembler = Assembler()
    assembler.add(first)
    with pytest.raises(ProtocolError, match="mix"):
        assembler.add(second)


def test_assembler_may_be_cleared_and_used_for_the_other_kind():
    assembler = Assembler()
    assembler.add("a")
    assembler.clear()
    assert (assembler.in_progress, assembler.byte_length) == (False, 0)
    assembler.add(b"b")
    assert assembler.join() == b"b"


def test_assembler_lets_lone_surrogates_to_the_codec():
    assembler = Assembler()
    assembler.add('"\ud83d')
    assembler.add('x"')
    assert assembler.join() == '"\ud83dx"'


def test_assembler_keeps_short_pieces_compactly():
    tracemalloc.start()
    assembler = Assembler()
    for _ in range(20_000):
        assembler.add("ab")
        assembler.add("")
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert assembler.byte_length == 40_000
    assert kept < 100_000
