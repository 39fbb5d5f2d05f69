"""What every `ICodec` promises, and those that also offer `IEnvelopeCodec` and `IBulkCodec`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from copy import deepcopy
from functools import partial
from typing import Any, Final, cast

from muxws_green.codecs.envelopes import bulk_of, envelopes_of
from muxws_green.errors import ProtocolError
from muxws_green.interfaces import IBulkCodec, ICodec, IEnvelopeCodec
from muxws_green.protocol.frames import ABSENT, Frame, to_mapping
from muxws_green.testing.contracts.promises import expect, keep, raised

#: What may stand in a `Sec-WebSocket-Protocol` entry.
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

#: What a codec may raise for a value that it cannot encode.
UNENCODABLE: Final = (TypeError, ValueError, OverflowError, RecursionError)

#: How deep every codec has to nest. Ours go to 500 levels, and no codec may fall over at any depth.
_DEEP = 100
_TOO_DEEP = 100_000

_PAYLOADS: Final[tuple[Any, ...]] = (
    None,
    True,
    False,
    0,
    -1,
    2**53,
    0.5,
    -1e300,
    "",
    'é\u2028\U0001f600\0"\\',
    [],
    {},
    [[], {}, [None, "x", 1.5]],
    {"": 0, "ключ": {"deep": [1, 2, {"er": None}]}},
    ["x" * 70_000, list(range(3000))],
)

#: What no message is, whatever it is encoded to.
_NO_FRAMES: Final[tuple[Any, ...]] = (None, 1, [], "open", {})

#: Lengths of bytes on both sides of where their header changes.
_LENGTHS: Final = (60, 1, 255, 256, 65_535, 65_536, 200_000)

#: How long the fragments are.
_PIECE = 7


def check_codec(codec: ICodec) -> None:
    """Check that a codec keeps the contract of `ICodec`, and those of `IEnvelopeCodec` and `IBulkCodec` where it has
    all of their operations.

    Args:
        codec: The codec. It may refuse values that JSON does not have, but not change them.

    Raises:
        AssertionError: It breaks a promise; the message says which, and how.
    """
    keep(PROMISES, lambda: nullcontext(codec))
    if codec is envelopes_of(codec):  # type: ignore[comparison-overlap]
        keep(ENVELOPE_PROMISES, lambda: nullcontext(codec))
    if bulk_of(codec) is not None:
        keep(BULK_PROMISES, lambda: nullcontext(codec))


def _frames() -> Iterator[Frame]:
    """Frames of every type, each field absent and present."""
    headers, trailers = {"a": 1, "é": [None]}, {"sum": "x"}
    for payload in (ABSENT, None, {"x": [1]}):
        yield Frame("open", 1, payload=payload)
        yield Frame("open", 2**31 - 1, payload=payload, headers=headers, end=True, trailers=trailers)
        yield Frame("data", 2, payload=payload, headers={})
        yield Frame("reset", 7, payload=payload, code=2, reason="why: é")
    yield Frame("data", 0, end=True, trailers={})
    yield Frame("reset", 1, code=0)
    yield Frame("reset", 1, code=-5)
    yield Frame("ping", nonce="17")
    yield Frame("pong", nonce="")
    yield Frame("goaway", code=3, reason="", last_stream=0)
    yield Frame("unknown to us")


def _fragments(codec: ICodec) -> Iterator[Frame]:
    piece: str | bytes = b'{"x\x00\xff' if codec.binary else '{"x\u00e9'
    yield Frame("open", 1, fragment=piece, more=True, headers={"a": 1})
    yield Frame("data", 1, fragment=piece[:0], end=True, trailers={"b": 2})
    yield Frame("reset", 1, fragment=piece, more=True, code=2)


def _encode(codec: ICodec, frame: Frame) -> str | bytes:
    message = codec.encode(frame)
    expected = bytes if codec.binary else str
    expect(type(message) is expected, f"encode returned {type(message).__name__} where binary is {codec.binary}")
    return message


def declares_itself(codec: ICodec) -> None:
    """The name can stand in an HTTP header, and binary is a bool."""
    expect(isinstance(codec.name, str) and _TOKEN.fullmatch(codec.name), f"the name is {codec.name!r}")
    expect(type(codec.binary) is bool, f"binary is {codec.binary!r}")


def right_kind(codec: ICodec) -> None:
    """Messages and encoded payloads are bytes where binary is declared, and str where not."""
    expected = bytes if codec.binary else str
    for frame in _frames():
        _encode(codec, frame)
    for payload in _PAYLOADS:
        encoded = codec.encode_payload(payload)
        expect(type(encoded) is expected, f"encode_payload returned {type(encoded).__name__}")


def frames_survive(codec: ICodec) -> None:
    """A frame that is encoded and decoded is the same frame."""
    for frame in (*_frames(), *_fragments(codec)):
        back = codec.decode(codec.encode(frame))
        expect(back == frame, f"{frame} became {back}")


def null_is_not_absent(codec: ICodec) -> None:
    """A payload of null is a payload."""
    present = codec.decode(codec.encode(Frame("data", 1, payload=None))).payload
    absent = codec.decode(codec.encode(Frame("data", 1))).payload
    expect(present is None, f"null became {present!r}")
    expect(absent is ABSENT, f"no payload became {absent!r}")


def values_survive(codec: ICodec) -> None:
    """Every value of JSON comes back as it was, of the same type."""
    for payload in _PAYLOADS:
        back = codec.decode_payload(codec.encode_payload(payload))
        expect(_same(back, payload), f"{_short(payload)} became {_short(back)}")
        back = codec.decode(codec.encode(Frame("data", 1, payload=payload))).payload
        expect(_same(back, payload), f"{_short(payload)} became {_short(back)} in a frame")


def nothing_changes_in_silence(codec: ICodec) -> None:
    """What a codec cannot carry it refuses; it does not carry something else."""
    for payload in (b"\x00\xff", {"a": b""}, 2**70, float("inf")):
        try:
            encoded = codec.encode_payload(payload)
        except UNENCODABLE:
            continue
        back = codec.decode_payload(encoded)
        expect(_same(back, payload), f"{_short(payload)} became {_short(back)}")


def as_in_a_message(codec: ICodec) -> None:
    """An encoded payload is what stands in the message."""
    for payload in ({"some": ["payload", 12345]}, "text é"):
        encoded, message = codec.encode_payload(payload), codec.encode(Frame("data", 1, payload=payload))
        found = encoded in message  # type: ignore[operator]
        expect(found, f"{encoded!r} is not in {message!r}")


def refuses(codec: ICodec) -> None:
    """A value that cannot be encoded raises TypeError, ValueError, OverflowError or RecursionError."""
    for name, value in _unencodable().items():
        raised(UNENCODABLE, partial(codec.encode_payload, value), f"encode_payload of {name}")
        raised(UNENCODABLE, partial(codec.encode, Frame("data", 1, payload=value)), f"encode of a frame with {name}")


def _unencodable() -> dict[str, Any]:
    circle: list[Any] = []
    circle.append(circle)
    return {
        "an object": object(),
        "a function": len,
        "an object inside": {"a": [object()]},
        "a lone surrogate": "\ud83d",
        "a circle": circle,
        "something much too deep": _nested(_TOO_DEEP),
    }


def failure_leaves_no_trace(codec: ICodec) -> None:
    """After a failure everything is as before."""
    frame = Frame("data", 1, payload={"a": [1, {"b": "é"}]}, headers={"c": 1})
    before = codec.encode(frame)
    for value in _unencodable().values():
        raised(UNENCODABLE, partial(codec.encode_payload, ["half", value]), "encode_payload")
        expect(codec.encode(frame) == before, f"{before!r} became {codec.encode(frame)!r}")
    for message in _garbage(codec):
        raised(ProtocolError, partial(codec.decode, message), "decode")
        expect(codec.decode(before) == frame, "a message is decoded into something else")


def nests(codec: ICodec) -> None:
    """A hundred levels of nesting pass."""
    payload = _nested(_DEEP)
    expect(codec.decode_payload(codec.encode_payload(payload)) == payload, "the value was changed")


def _nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def undecodable(codec: ICodec) -> None:
    """A message that cannot be decoded raises ProtocolError."""
    for message in _garbage(codec):
        raised(ProtocolError, partial(codec.decode, message), f"decode of {_short(message)}")


def _garbage(codec: ICodec) -> Iterator[str | bytes]:
    """What is no message: of the wrong kind, cut off, or not a frame."""
    whole = codec.encode(Frame("data", 1, payload=[1, 2]))
    if isinstance(whole, str):
        yield whole.encode()
        yield from ("", whole[:-1], whole + whole, "\x00", "[" * _TOO_DEEP)
    else:
        yield "text"
        yield whole.decode("latin-1")
        yield from (b"", whole[:-1], whole + whole, b"\xff", b"\x91" * _TOO_DEEP)
    for value in _NO_FRAMES:
        yield codec.encode_payload(value)


def only_protocol_errors(codec: ICodec) -> None:
    """Whatever a remote sends, decoding raises nothing but ProtocolError."""
    whole = codec.encode(Frame("open", 1, payload={"é": [1.5, None, "x"]}, headers={"a": 1}))
    for message in _damaged(whole):
        for decode in (codec.decode, codec.decode_payload):
            _only_protocol_errors(decode, message)


def _damaged(whole: str | bytes) -> Iterator[str | bytes]:
    """A message with each of its elements taken out, changed, or the last one."""
    for at in range(len(whole)):
        yield whole[:at]
        yield whole[:at] + whole[at + 1 :]  # type: ignore[operator]
        for other in (0, 1, 34, 91, 123, 127, 128, 192, 223, 255):
            element: Any = chr(other) if isinstance(whole, str) else bytes([other])
            yield whole[:at] + element + whole[at + 1 :]


def _only_protocol_errors(decode: Callable[[str | bytes], object], message: str | bytes) -> None:
    try:
        decode(message)
    except ProtocolError:
        pass
    except Exception as error:
        # ProtocolError and nothing else was promised.
        name = type(error).__name__
        raise AssertionError(f"{decode.__name__} of {_short(message)} raised {name} ({error})") from error


def drops_unknown_fields(codec: ICodec) -> None:
    """Unknown fields of a message are dropped."""
    fields: dict[str, Any] = {"type": "data", "stream": 1, "payload": [1]}
    try:
        plain = codec.decode(codec.encode_payload(fields))
    except ProtocolError:
        # Its messages are not mappings in their encoded form, so none with another field can be made here.
        return
    more = codec.decode(codec.encode_payload({**fields, "colour": {"r": 1}}))
    expect(more == plain, f"{plain} became {more} with another field")


def keeps_no_values(codec: ICodec) -> None:
    """Neither encoding nor decoding shares values with its caller."""
    frame = Frame("data", 1, payload={"a": [1]}, headers={"b": [2]})
    copy = deepcopy(frame)
    message = codec.encode(frame)
    expect(frame == copy, f"encode changed {copy} to {frame}")
    first = codec.decode(message)
    first.payload["a"].append("changed")
    expect(codec.decode(message) == copy, "what was decoded before is part of what is decoded now")


def envelopes_are_messages(codec: ICodec) -> None:
    """What wrap makes is the message of the frame with that payload."""
    envelopes = cast("IEnvelopeCodec", codec)
    mapping = {"a": 1, "é": [None]}
    for payload in (ABSENT, *_PAYLOADS):
        encoded = None if payload is ABSENT else codec.encode_payload(payload)
        for kind, headers, end, trailers in (
            ("data", None, False, None),
            ("open", mapping, True, mapping),
            ("open", {}, False, None),
            ("data", None, True, {}),
        ):
            frame = Frame(kind, 3, payload=payload, headers=headers, end=end, trailers=trailers)
            back = _decode_wrapped(codec, envelopes.wrap(kind, 3, encoded, headers, end, trailers))
            expect(back == frame, f"{_short(frame)} became {_short(back)}")


def _decode_wrapped(codec: ICodec, message: object) -> Frame:
    if not isinstance(message, bytes):
        raise AssertionError(f"{type(message).__name__} was returned in place of bytes")
    return codec.decode(message if codec.binary else message.decode())


def fragments_are_messages(codec: ICodec) -> None:
    """What wrap_fragment makes are the messages of those fragments."""
    envelopes = cast("IEnvelopeCodec", codec)
    payload = {"ascii": ["so that every cut is between two characters", '"\\/']}
    whole = codec.encode_payload(payload)
    data = whole if isinstance(whole, bytes) else whole.encode()
    for at in range(0, len(data), _PIECE):
        first, last = at == 0, at + _PIECE >= len(data)
        headers, trailers = {"a": 1} if first else None, {"b": 2} if last else None
        message = envelopes.wrap_fragment("open", 5, data[at : at + _PIECE], not last, headers, last, trailers)
        frame = _decode_wrapped(codec, message)
        fragment = whole[at : at + _PIECE]
        wanted = Frame("open", 5, fragment=fragment, more=not last, headers=headers, end=last, trailers=trailers)
        expect(frame == wanted, f"{wanted} became {frame}")


def unwraps(codec: ICodec) -> None:
    """What unwrap gives are the fields of a message, in a fresh dict."""
    envelopes = cast("IEnvelopeCodec", codec)
    for frame in (*_frames(), *_fragments(codec)):
        message = codec.encode(frame)
        fields = envelopes.unwrap(message)
        expect(fields == to_mapping(frame), f"{to_mapping(frame)} became {fields}")
        fields["type"] = "changed"
        expect(envelopes.unwrap(message)["type"] == frame.type, "the dict is the same at each call")


def unwraps_garbage(codec: ICodec) -> None:
    """Of what is no message unwrap raises ProtocolError, and never anything else."""
    envelopes = cast("IEnvelopeCodec", codec)
    whole = codec.encode(Frame("open", 1, payload={"é": [1.5, None, "x"]}, headers={"a": 1}))
    for message in _damaged(whole):
        _only_protocol_errors(envelopes.unwrap, message)
    for message in _garbage(codec):
        # An empty mapping is an envelope, though no frame.
        if message != codec.encode_payload({}):
            raised(ProtocolError, partial(envelopes.unwrap, message), f"unwrap of {_short(message)}")


def bytes_need_no_encoding(codec: ICodec) -> None:
    """Encoded bytes are what bytes_header makes, and the bytes themselves."""
    bulk = cast("IBulkCodec", codec)
    for length in _LENGTHS:
        body = b"\xc4" * length
        expect(bulk.bytes_header(length) + body == codec.encode_payload(body), f"{length} bytes are encoded otherwise")


def finds_pieces(codec: ICodec) -> None:
    """What unwrap_fragment finds in a message is what unwrap finds, and nothing else stands there."""
    envelopes, bulk = cast("IEnvelopeCodec", codec), cast("IBulkCodec", codec)
    for piece in (b"", *(b"\xc4" * length for length in _LENGTHS)):
        for headers, end, trailers in ((None, False, None), ({"a": 1}, False, None), (None, True, {"b": 2})):
            for more in (True, False):
                message = envelopes.wrap_fragment("data", 2**31 - 1, piece, more, headers, end, trailers)
                _agrees(envelopes, bulk, message)
                if len(piece) == _LENGTHS[0]:
                    for damaged in _damaged(message):
                        _agrees(envelopes, bulk, cast("bytes", damaged))
    for frame in (*_frames(), *_fragments(codec)):
        _agrees(envelopes, bulk, cast("bytes", codec.encode(frame)))


def _agrees(envelopes: IEnvelopeCodec, bulk: IBulkCodec, message: bytes) -> None:
    found = bulk.unwrap_fragment(memoryview(message))
    if found is not None:
        kind, stream, piece = found
        fields = {"type": kind, "stream": stream, "fragment": bytes(piece), "more": True}
        expect(envelopes.unwrap(message) == fields, f"{_short(fields)} was found in {_short(message)}")


def joins_pieces(codec: ICodec) -> None:
    """decode_pieces gives what decode_payload gives of all of them, views or not, and raises what it raises."""
    bulk = cast("IBulkCodec", codec)
    for value in (*_PAYLOADS, *(b"\xc4" * length for length in _LENGTHS)):
        encoded = cast("bytes", codec.encode_payload(value))
        for size in (1, 7, 4_096, len(encoded)):
            pieces = [encoded[at : at + size] for at in range(0, len(encoded), size)]
            views: list[bytes | memoryview] = [memoryview(piece) for piece in pieces]
            for given in (pieces, views, [*pieces, b""]):
                back = bulk.decode_pieces(given)
                expect(_same(back, codec.decode_payload(encoded)), f"{_short(value)} became {_short(back)}")
        for damaged in (encoded + b"\xc4", encoded[:-1]):
            raised(ProtocolError, partial(bulk.decode_pieces, [damaged]), f"decode_pieces of {_short(damaged)}")


def _same(one: Any, other: Any) -> bool:
    """Equal, and of the same types all the way down; True is not 1."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(value, other[key]) for key, value in one.items())
    return bool(one == other)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}… ({len(text)} characters)"


#: What each codec is tried on.
PROMISES: Final = (
    declares_itself,
    right_kind,
    null_is_not_absent,
    frames_survive,
    values_survive,
    nothing_changes_in_silence,
    as_in_a_message,
    refuses,
    nests,
    undecodable,
    only_protocol_errors,
    failure_leaves_no_trace,
    drops_unknown_fields,
    keeps_no_values,
)

#: What a codec with operations for long bytes is tried on besides.
BULK_PROMISES: Final = (bytes_need_no_encoding, finds_pieces, joins_pieces)

#: What a codec with envelope operations is tried on besides.
ENVELOPE_PROMISES: Final = (envelopes_are_messages, fragments_are_messages, unwraps, unwraps_garbage)
