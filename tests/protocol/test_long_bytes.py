"""Fragments of long payloads pass a binary codec without copies, and are judged as all others are."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from muxws_green.codecs.envelopes import bulk_of
from muxws_green.codecs.msgpack import MsgpackCodec
from muxws_green.errors import ResetCode, StreamReset
from muxws_green.protocol.assembler import LONG_PIECE_BYTES
from muxws_green.protocol.longbytes import LongBytes
from muxws_green.protocol.streams import LiveStream
from tests.codecs.samples import PlainBinary
from tests.codecs.test_envelopes import OwnPayloads
from tests.protocol.cores import JSON, MSGPACK, End, audit

BODY = bytes(range(256)) * 2_000
PIECE = b"p" * (LONG_PIECE_BYTES + 1)


@pytest.fixture
def end() -> End:
    return End(codec=MSGPACK)


@pytest.fixture
def live(end: End) -> LiveStream:
    return end.accept()


@pytest.fixture
def looked_closer(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The messages that were decoded whole."""
    seen: list[bytes] = []
    unwrap = MsgpackCodec.unwrap

    def spy(self: MsgpackCodec, message: bytes) -> dict[str, object]:
        seen.append(message)
        return unwrap(self, message)

    monkeypatch.setattr(MsgpackCodec, "unwrap", spy)
    return seen


def test_only_a_codec_with_all_operations_does_it_in_bulk():
    codec = MsgpackCodec()
    assert bulk_of(codec) is codec
    assert bulk_of(JSON) is None
    assert bulk_of(PlainBinary()) is None
    codec.unwrap_fragment = None
    assert bulk_of(codec) is None


def test_long_bytes_are_not_encoded_before_they_are_cut(end: End, live: LiveStream):
    encoded = end.core.encode(BODY)
    assert isinstance(encoded, LongBytes)
    assert len(encoded) == len(MSGPACK.encode_payload(BODY))
    end.core.send(live, encoded, end=True)
    audit(end.core)
    frames = end.sent()
    assert b"".join(frame.fragment for frame in frames) == MSGPACK.encode_payload(BODY)  # type: ignore[misc]
    other = End(codec=MSGPACK)
    other.core.send(other.accept(), MSGPACK.encode_payload(BODY), end=True)
    assert frames == other.sent()


@pytest.mark.parametrize("value", [b"x" * 65_000, bytearray(BODY), "x" * 200_000, [BODY]])
def test_other_payloads_are(end: End, value: object):
    assert end.core.encode(value) == MSGPACK.encode_payload(value)


def test_bytes_of_a_kind_of_their_own_are(end: End):
    class Own(bytes):
        pass

    assert end.core.encode(Own(BODY)) == MSGPACK.encode_payload(BODY)


def test_a_codec_with_a_way_of_its_own_with_payloads_is_asked_for_long_ones_too():
    codec = OwnPayloads()
    end = End(codec=codec)
    live = end.accept()
    assert end.core.encode(BODY) == codec.encode_payload(BODY) != MSGPACK.encode_payload(BODY)
    end.hear_pieces("data", live.id, BODY, 20)
    assert end.told[-1] == ("payload", live.id, ["own", BODY])


def test_bytes_just_over_a_cap_leave_in_fragments():
    end = End(codec=MSGPACK, cap=600)
    live = end.accept()
    for size in range(560, 640):
        body = b"b" * size
        end.core.send(live, end.core.encode(body))
        frames = end.sent()
        if len(frames) == 1:
            assert frames[0].payload == body
        else:
            assert b"".join(frame.fragment for frame in frames) == MSGPACK.encode_payload(body)
    assert len(frames) == 2


def test_slices_of_long_bytes_are_those_of_the_whole():
    whole = LongBytes(b"head", b"body and more")
    assert len(whole) == 17
    for start in range(18):
        assert bytes(whole[start:]) == b"headbody and more"[start:]
        for stop in range(start, 18):
            assert bytes(whole[start:stop]) == b"headbody and more"[start:stop]
    assert isinstance(whole[4:9], memoryview)


@pytest.mark.parametrize("kind", ["open", "data"])
def test_fragments_from_the_middle_are_not_decoded(end: End, looked_closer: list[bytes], kind: str):
    if kind == "data":
        end.accept()
    end.hear_pieces(kind, end.theirs(), BODY, 20)
    told = end.told
    assert told[-1] == ("payload" if kind == "data" else "opened", 1, BODY)
    assert len([message for message in looked_closer if len(message) > LONG_PIECE_BYTES]) == 2
    audit(end.core)


def test_an_observer_sees_all_of_them(end: End, live: LiveStream):
    seen: list[object] = []
    end.core.observer = lambda envelope, size: seen.append(envelope["fragment"])
    end.hear_pieces("data", live.id, BODY, 20)
    assert len(seen) == 20
    assert b"".join(seen) == MSGPACK.encode_payload(BODY)  # type: ignore[arg-type]


def test_a_codec_without_the_operations_does_it_slowly():
    end = End(codec=PlainBinary())
    live = end.accept()
    end.hear_pieces("data", live.id, BODY, 20)
    assert end.told[-1] == ("payload", live.id, BODY)
    end.core.send(live, end.core.encode(BODY), end=True)
    assert len(end.sent()) > 5


def hear_middle(end: End, kind: str, stream: int, piece: bytes = PIECE) -> None:
    end.hear(kind, stream, fragment=piece, more=True)


def test_one_of_another_type_costs_the_stream(end: End, live: LiveStream):
    hear_middle(end, "data", live.id)
    hear_middle(end, "open", live.id)
    assert end.told[-1] == ("failed", live.id, StreamReset, ResetCode.PROTOCOL_ERROR)
    hear_middle(end, "open", end.theirs(2))
    hear_middle(end, "data", end.theirs(2))
    assert end.told[-1] == ("failed", end.theirs(2), StreamReset, ResetCode.PROTOCOL_ERROR)
    audit(end.core)


def test_one_for_a_closed_stream_is_late(end: End, live: LiveStream):
    hear_middle(end, "data", live.id)
    end.core.reset(live, ResetCode.CANCELLED, None, asked=True)
    late = end.core.late_frames
    hear_middle(end, "data", live.id)
    assert end.core.late_frames == late + 1
    audit(end.core)


def test_a_payload_that_grows_over_the_limit_costs_the_stream(make_bulk: Callable[..., End]):
    end = make_bulk(max_payload=3 * len(PIECE))
    live = end.accept()
    for _ in range(3):
        hear_middle(end, "data", live.id)
    assert not live.lane.items
    hear_middle(end, "data", live.id)
    assert end.told[-1][0] == "failed"
    assert end.sent()[-1].code == ResetCode.PAYLOAD_TOO_LARGE
    audit(end.core)


def test_all_that_is_collected_has_a_limit_too(make_bulk: Callable[..., End]):
    end = make_bulk(max_payload=3 * len(PIECE))
    streams = [end.accept(ordinal) for ordinal in (1, 2, 3)]
    for live in streams[:2]:
        for _ in range(3):
            hear_middle(end, "data", live.id)
    for _ in range(2):
        hear_middle(end, "data", streams[2].id)
    resets = [frame for frame in end.sent() if frame.type == "reset"]
    assert [(frame.stream, frame.code) for frame in resets] == [(streams[2].id, ResetCode.PAYLOAD_TOO_LARGE)]
    audit(end.core)


def test_one_over_the_cap_costs_the_stream(make_bulk: Callable[..., End]):
    end = make_bulk(cap=LONG_PIECE_BYTES + 100)
    live = end.accept()
    hear_middle(end, "data", live.id)
    hear_middle(end, "data", live.id, PIECE * 2)
    assert end.told[-1][0] == "failed"
    assert end.sent()[-1].code == ResetCode.PAYLOAD_TOO_LARGE


@pytest.fixture
def make_bulk() -> Callable[..., End]:
    return lambda **options: End(codec=MSGPACK, **options)


@pytest.mark.parametrize("broken", [b"\xc6\x00\x10\x00\x00", b"\xc1" * 5])
def test_what_is_no_payload_in_the_end_costs_the_stream(end: End, live: LiveStream, broken: bytes):
    end.hear("data", live.id, fragment=broken + PIECE, more=True)
    hear_middle(end, "data", live.id)
    end.hear("data", live.id, fragment=b"x")
    assert end.told[-1] == ("failed", live.id, StreamReset, ResetCode.PROTOCOL_ERROR)
    audit(end.core)
