"""Our codecs keep the contract, and a double that breaks one promise of it is told so."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest

from muxws_green.codecs import JsonCodec, MsgpackCodec
from muxws_green.errors import ProtocolError
from muxws_green.protocol.frames import ABSENT, Frame, to_mapping
from muxws_green.testing.contracts import check_codec
from muxws_green.testing.contracts import codec as suite
from tests.testing.contracts.doubles import Breaks, assert_all_are_broken, assert_rejected, breaks, every_double

DOUBLES: Breaks = {}


class Plain:
    """A codec without envelope operations, and whose messages are no encoded mappings."""

    name = "plain"
    binary = False

    def __init__(self) -> None:
        self._json = JsonCodec()

    def encode(self, frame):
        return "frame:" + self._json.encode(frame)

    def decode(self, message):
        if not isinstance(message, str) or not message.startswith("frame:"):
            raise ProtocolError("no frame")
        return self._json.decode(message.removeprefix("frame:"))

    def encode_payload(self, value):
        return self._json.encode_payload(value)

    def decode_payload(self, data):
        return self._json.decode_payload(data)


@breaks(DOUBLES, suite.declares_itself, "'two words'")
class HasNoToken(JsonCodec):
    name = "two words"


@breaks(DOUBLES, suite.declares_itself, "binary is 0")
class Guesses(JsonCodec):
    binary = 0  # type: ignore[assignment]


@breaks(DOUBLES, suite.right_kind, "encode returned bytes")
class EncodesText(JsonCodec):
    def encode(self, frame):
        return super().encode(frame).encode()


@breaks(DOUBLES, suite.right_kind, "encode_payload returned bytes")
class EncodesPayloads(JsonCodec):
    def encode_payload(self, value):
        return super().encode_payload(value).encode()


@breaks(DOUBLES, suite.null_is_not_absent, "null became ABSENT")
class LeavesNullOut(JsonCodec):
    def encode(self, frame):
        return super().encode(replace(frame, payload=ABSENT) if frame.payload is None else frame)


@breaks(DOUBLES, suite.null_is_not_absent, "no payload became None")
class AddsNull(JsonCodec):
    def decode(self, message):
        frame = super().decode(message)
        return replace(frame, payload=None) if frame.payload is ABSENT else frame


@breaks(DOUBLES, suite.frames_survive, "reason=None")
class LosesReasons(JsonCodec):
    def decode(self, message):
        return replace(super().decode(message), reason=None)


@breaks(DOUBLES, suite.frames_survive, "more=False")
class LosesMore(MsgpackCodec):
    def encode(self, frame):
        return super().encode(replace(frame, more=False))


@breaks(DOUBLES, suite.values_survive, "True became 1")
class CountsTruth(JsonCodec):
    def decode_payload(self, data):
        value = super().decode_payload(data)
        return int(value) if isinstance(value, bool) else value


@breaks(DOUBLES, suite.values_survive, "0.5 became 0 in a frame")
class LosesFractions(JsonCodec):
    def encode(self, frame):
        return super().encode(replace(frame, payload=0) if frame.payload == 0.5 else frame)


@breaks(DOUBLES, suite.nothing_changes_in_silence, "became 'AP8='")
class HidesBytes(JsonCodec):
    def encode_payload(self, value):
        return super().encode_payload(base64.b64encode(value).decode() if isinstance(value, bytes) else value)


@breaks(DOUBLES, suite.as_in_a_message, "is not in")
class AddsSpaces(JsonCodec):
    def encode_payload(self, value):
        return json.dumps(json.loads(super().encode_payload(value)), ensure_ascii=False, separators=(", ", ": "))


@breaks(DOUBLES, suite.refuses, "encode_payload of an object did not raise")
class TakesObjects(JsonCodec):
    def encode_payload(self, value):
        return '"object"' if type(value) is object else super().encode_payload(value)


@breaks(DOUBLES, suite.refuses, "encode of a frame with a lone surrogate raised KeyError")
class FailsOtherwise(JsonCodec):
    def encode(self, frame):
        try:
            return super().encode(frame)
        except UnicodeEncodeError as error:
            raise KeyError from error


class Counting:
    """Says in each message how often it has failed."""

    def __init__(self) -> None:
        self.failures = 0

    def encode(self, frame):
        return super().encode(replace(frame, reason=f"after {self.failures}") if self.failures else frame)


@breaks(DOUBLES, suite.failure_leaves_no_trace, " became ")
class RemembersFailures(Counting, JsonCodec):
    def encode_payload(self, value):
        try:
            return super().encode_payload(value)
        except TypeError:
            self.failures += 1
            raise


@breaks(DOUBLES, suite.failure_leaves_no_trace, "decoded into something else")
class RemembersGarbage(Counting, JsonCodec):
    def decode(self, message):
        try:
            frame = super().decode(message)
        except ProtocolError:
            self.failures += 1
            raise
        return replace(frame, nonce="failed") if self.failures else frame


@breaks(DOUBLES, suite.nests, "ValueError was raised")
class IsFlat(JsonCodec):
    def encode_payload(self, value):
        encoded = super().encode_payload(value)
        if "[" * 50 in encoded:
            raise ValueError("too deep")
        return encoded


@breaks(DOUBLES, suite.undecodable, "did not raise ProtocolError")
class TakesTheFirst(JsonCodec):
    def decode(self, message):
        if isinstance(message, str):
            message = message.partition("}{")[0]
            message += "" if message.endswith("}") else "}"
        return super().decode(message)


@breaks(DOUBLES, suite.undecodable, "did not raise ProtocolError")
class TakesBytes(JsonCodec):
    def decode(self, message):
        return super().decode(message.decode() if isinstance(message, bytes) else message)


@breaks(DOUBLES, suite.undecodable, "raised EOFError")
class RaisesItsOwn(MsgpackCodec):
    def decode(self, message):
        if message == b"":
            raise EOFError
        return super().decode(message)


@breaks(DOUBLES, suite.only_protocol_errors, "decode of ")
class StumblesOverALetter(JsonCodec):
    def decode(self, message):
        if isinstance(message, str) and "\xdf" in message:
            raise KeyError("\xdf")
        return super().decode(message)


@breaks(DOUBLES, suite.only_protocol_errors, "decode_payload of ")
class StumblesOverANumber(MsgpackCodec):
    def decode_payload(self, data):
        if data[:1] == b"\x80" and len(data) > 1:
            raise KeyError
        return super().decode_payload(data)


@breaks(DOUBLES, suite.drops_unknown_fields, "an unknown field")
class KnowsAllFields(JsonCodec):
    def decode(self, message):
        if isinstance(message, str) and "colour" in message:
            raise ProtocolError("an unknown field")
        return super().decode(message)


@breaks(DOUBLES, suite.drops_unknown_fields, "with another field")
class NotesUnknownFields(JsonCodec):
    def decode(self, message):
        frame = super().decode(message)
        return replace(frame, reason="colour") if isinstance(message, str) and "colour" in message else frame


@breaks(DOUBLES, suite.keeps_no_values, "part of what is decoded now")
class RemembersMessages(JsonCodec):
    def __init__(self) -> None:
        self.known: dict[str, Any] = {}

    def decode(self, message):
        return self.known.setdefault(message, super().decode(message))


@breaks(DOUBLES, suite.keeps_no_values, "encode changed")
class EmptiesHeaders(JsonCodec):
    def encode(self, frame):
        message = super().encode(frame)
        if frame.headers == {"b": [2]}:
            frame.headers.clear()
        return message


@breaks(DOUBLES, suite.envelopes_are_messages, " became ")
class WrapsNoEnd(JsonCodec):
    def wrap(self, kind, stream, encoded, headers=None, end=False, trailers=None):
        return super().wrap(kind, stream, encoded, headers, False, trailers)


@breaks(DOUBLES, suite.envelopes_are_messages, "str was returned in place of bytes")
class WrapsText(JsonCodec):
    def wrap(self, kind, stream, encoded, headers=None, end=False, trailers=None):
        return super().wrap(kind, stream, encoded, headers, end, trailers).decode()


@breaks(DOUBLES, suite.fragments_are_messages, "headers=None")
class WrapsNoHeaders(MsgpackCodec):
    def wrap_fragment(self, kind, stream, piece, more, headers=None, end=False, trailers=None):
        return super().wrap_fragment(kind, stream, piece, more, None, end, trailers)


@breaks(DOUBLES, suite.unwraps, "same at each call")
class UnwrapsOnce(JsonCodec):
    def __init__(self) -> None:
        self.known: dict[str, Any] = {}

    def unwrap(self, message):
        return self.known.setdefault(message, super().unwrap(message))

    def decode(self, message):
        return JsonCodec().decode(message)


@breaks(DOUBLES, suite.unwraps, "'end': False")
class UnwrapsDefaults(JsonCodec):
    def unwrap(self, message):
        return {"end": False, **super().unwrap(message)}


@breaks(DOUBLES, suite.unwraps_garbage, "did not raise")
class UnwrapsBytes(JsonCodec):
    def unwrap(self, message):
        return super().unwrap(message.decode() if isinstance(message, bytes) else message)

    def decode(self, message):
        return JsonCodec().decode(message)


@breaks(DOUBLES, suite.unwraps_garbage, "unwrap of ")
class UnwrapsBadly(JsonCodec):
    def unwrap(self, message):
        if isinstance(message, str) and "\xdf" in message:
            raise KeyError
        return super().unwrap(message)

    def decode(self, message):
        return JsonCodec().decode(message)


@breaks(DOUBLES, suite.bytes_need_no_encoding, "255 bytes are encoded otherwise")
class HasLongHeaders(MsgpackCodec):
    def bytes_header(self, length):
        return super().bytes_header(length) if length < 255 else b"\xc6" + length.to_bytes(4, "big")


@breaks(DOUBLES, suite.finds_pieces, "was found in")
class SeesNoEnd(MsgpackCodec):
    def unwrap_fragment(self, message):
        fields = self.unwrap(bytes(message))
        if fields.get("type") != "data" or type(fields.get("fragment")) is not bytes:
            return None
        return "data", fields["stream"], memoryview(fields["fragment"])


@breaks(DOUBLES, suite.joins_pieces, "became")
class ForgetsTheFirst(MsgpackCodec):
    def decode_pieces(self, pieces):
        value = super().decode_pieces(pieces)
        return value[1:] if type(value) is bytes else value


@breaks(DOUBLES, suite.joins_pieces, "did not raise")
class TakesMore(MsgpackCodec):
    def decode_pieces(self, pieces):
        joined = b"".join(pieces)
        return self.decode_payload(
            joined[: 5 + int.from_bytes(joined[1:5], "big")] if joined[:1] == b"\xc6" else joined
        )


@pytest.mark.parametrize("codec", [JsonCodec(), MsgpackCodec(), Plain()], ids=lambda codec: codec.name)
def test_a_good_codec_keeps_it(codec):
    check_codec(codec)


@every_double(DOUBLES)
def test_a_broken_double_is_rejected(promise, double, complaint):
    assert_rejected(promise, complaint, lambda: check_codec(double()))


def test_every_promise_has_a_double_that_breaks_it():
    assert_all_are_broken((*suite.PROMISES, *suite.ENVELOPE_PROMISES, *suite.BULK_PROMISES), DOUBLES)


def test_frames_of_every_field_are_tried():
    frames = [*suite._frames(), *suite._fragments(JsonCodec())]
    assert {name for frame in frames for name in to_mapping(frame)} == set(Frame.__dataclass_fields__)
