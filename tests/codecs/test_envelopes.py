"""A codec that knows only `ICodec` gets its envelope operations by way of frames."""

from __future__ import annotations

import pytest
from hypothesis import given

from muxws_green.codecs import JsonCodec, MsgpackCodec
from muxws_green.codecs.envelopes import FrameEnvelopes, bulk_of, envelopes_of
from muxws_green.errors import ProtocolError
from muxws_green.protocol.frames import ABSENT, Frame, check_envelope
from tests.codecs.samples import CODECS, PlainBinary, PlainText, as_received
from tests.values import frames

FOREIGN = [PlainText(), PlainBinary()]
EVERY = [*CODECS, *FOREIGN]
BY_NAME = pytest.mark.parametrize("codec", EVERY, ids=lambda codec: codec.name)


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
def test_ours_do_it_themselves(codec):
    assert envelopes_of(codec) is codec


@pytest.mark.parametrize("codec", FOREIGN, ids=lambda codec: codec.name)
def test_others_are_adapted(codec):
    assert isinstance(envelopes_of(codec), FrameEnvelopes)


def test_half_an_offer_is_none():
    codec = PlainText()
    codec.wrap = codec.unwrap = lambda *arguments: b""
    assert isinstance(envelopes_of(codec), FrameEnvelopes)


class OwnPayloads(MsgpackCodec):
    """Does more to payloads than the codec that it is made of."""

    def encode_payload(self, value):
        return super().encode_payload(["own", value])


class OwnMessages(MsgpackCodec):
    def unwrap(self, message):
        return super().unwrap(message)


class OwnHeader(MsgpackCodec):
    """Inherits all the rest."""

    def bytes_header(self, length):
        return super().bytes_header(length)


class OwnEverything(OwnPayloads):
    """Knows what its payloads look like."""

    bytes_header = MsgpackCodec.bytes_header
    unwrap_fragment = MsgpackCodec.unwrap_fragment
    decode_pieces = MsgpackCodec.decode_pieces


class HandsOn:
    """Around a codec, for a log."""

    def __init__(self, codec):
        self._codec = codec

    def encode_payload(self, value):
        return self._codec.encode_payload(value)

    def __getattr__(self, name):
        return getattr(self._codec, name)


@pytest.mark.parametrize(
    "codec", [MsgpackCodec(), OwnHeader(), OwnEverything()], ids=lambda codec: type(codec).__name__
)
def test_a_codec_with_all_operations_does_long_bytes_itself(codec):
    assert bulk_of(codec) is codec


@pytest.mark.parametrize(
    "codec",
    [JsonCodec(), PlainBinary(), OwnPayloads(), OwnMessages(), HandsOn(MsgpackCodec())],
    ids=lambda codec: type(codec).__name__,
)
def test_long_bytes_do_not_go_past_what_a_codec_does(codec):
    assert bulk_of(codec) is None


@pytest.mark.parametrize("name", ["encode_payload", "decode_payload", "unwrap", "wrap_fragment", "bytes_header"])
def test_nor_past_a_method_that_is_hidden(name):
    codec = MsgpackCodec()
    setattr(codec, name, getattr(codec, name))
    assert bulk_of(codec) is None


def check_wrapping(codec, frame):
    envelopes = envelopes_of(codec)
    if frame.fragment is not None:
        piece = frame.fragment.encode() if isinstance(frame.fragment, str) else frame.fragment
        message = envelopes.wrap_fragment(
            frame.type, frame.stream, piece, frame.more, frame.headers, frame.end, frame.trailers
        )
    else:
        encoded = None if frame.payload is ABSENT else codec.encode_payload(frame.payload)
        message = envelopes.wrap(frame.type, frame.stream, encoded, frame.headers, frame.end, frame.trailers)
    assert type(message) is bytes
    whole = codec.encode(frame)
    assert message == (whole.encode() if isinstance(whole, str) else whole)
    received = as_received(codec, message)
    assert codec.decode(received) == frame
    assert Frame(**check_envelope(envelopes.unwrap(received))) == frame


def wrappable(frame):
    more = frame.more and frame.fragment is not None
    return Frame(
        "open" if len(frame.type) % 2 else "data",
        frame.stream or 1,
        frame.payload,
        frame.fragment,
        more,
        frame.headers,
        frame.end,
        frame.trailers,
    )


@given(frames("json"))
def test_wrapping_is_encoding_for_text(frame):
    for codec in EVERY:
        if not codec.binary:
            check_wrapping(codec, wrappable(frame))


@given(frames("msgpack"))
def test_wrapping_is_encoding_for_binary(frame):
    for codec in EVERY:
        if codec.binary:
            check_wrapping(codec, wrappable(frame))


@BY_NAME
def test_messages_of_the_other_kind_are_refused(codec):
    envelopes = envelopes_of(codec)
    message = envelopes.wrap("data", 1, codec.encode_payload(1))
    other = message.decode("latin-1") if codec.binary else message
    with pytest.raises(ProtocolError):
        envelopes.unwrap(other)


@BY_NAME
def test_noise_is_refused(codec):
    noise = b"\xc1" if codec.binary else "{"
    with pytest.raises(ProtocolError):
        envelopes_of(codec).unwrap(noise)


@BY_NAME
def test_what_was_wrapped_is_a_copy(codec):
    headers = {"h": [1]}
    payload = {"p": [1]}
    encoded = codec.encode_payload(payload)
    payload["p"].append(2)
    message = envelopes_of(codec).wrap("open", 1, encoded, headers)
    headers["h"].append(2)
    assert codec.decode(as_received(codec, message)) == Frame("open", 1, payload={"p": [1]}, headers={"h": [1]})
