"""The `json` codec: text messages, what every browser reads (PROTOCOL §4).

Compact, non-ASCII unescaped, and strict both ways: nothing leaves that another JSON parser would refuse, and what is
no JSON (`NaN`, numbers that overflow) does not come in.

The C encoder and scanner below `json` are called directly, since building an encoder for each call costs more than
encoding. Where an interpreter lacks them the public classes do the same. `codecs.fast` is this codec on msgspec.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from json import encoder as json_encoder
from typing import Any, Final, NoReturn, cast

from zope.interface import implementer

from muxws_green.codecs.nesting import ENVELOPE_NESTING, MAX_NESTING, nested_deeper
from muxws_green.errors import ProtocolError
from muxws_green.interfaces import ICodec, IEnvelopeCodec
from muxws_green.protocol.frames import Frame, from_mapping, to_mapping

_WHITESPACE: Final = " \t\n\r"
_INFINITIES: Final = (float("inf"), float("-inf"))

_CONTAINERS: Final = (dict, list)
#: Fields up to which looking at each is cheaper than counting brackets.
_FEW: Final = 16

_END: Final = ',"end":true'
_MORE: Final = ',"more":true'
_PAYLOAD: Final = ',"payload":'


def _refuse_value(value: Any) -> NoReturn:
    """What the encoder asks when it meets a type that JSON does not have."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError(
            f"the json codec cannot carry {type(value).__name__}: encode it in the application, for example as base64, "
            f"or configure the msgpack codec at both ends"
        )
    raise TypeError(f"the json codec cannot carry {type(value).__name__}")


def _refuse_constant(token: str) -> NoReturn:
    raise ValueError(f"{token} is not JSON")


def _finite(token: str) -> float:
    number = float(token)
    if number in _INFINITIES:
        raise ValueError("a number overflows")
    return number


def _build_encoder() -> Callable[[Any], str]:
    public = json.JSONEncoder(
        ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":"), default=_refuse_value
    )
    make = getattr(json_encoder, "c_make_encoder", None)
    quote = getattr(json_encoder, "c_encode_basestring", None)
    if make is None or quote is None:
        return public.encode
    try:
        # The first argument would be the memory of open containers. It keeps entries after a failure and then takes
        # later values for circular ones, so there is none: a circle ends in RecursionError.
        chunks = make(None, _refuse_value, quote, None, ":", ",", False, False, False)
    except TypeError:  # not a documented call, so another Python may want other arguments
        return public.encode

    def encode(value: Any) -> str:
        return "".join(chunks(value, 0))

    return encode


#: A shorter text cannot be nested too deep, as a level takes two characters.
_SHALLOW_LENGTH: Final = 2 * (MAX_NESTING + ENVELOPE_NESTING)

_encode: Final = _build_encoder()
_quote: Final[Callable[[str], str]] = json_encoder.encode_basestring
_decoder: Final = json.JSONDecoder(parse_float=_finite, parse_constant=_refuse_constant)
_scan: Final = cast("Callable[[str, int], tuple[Any, int]]", getattr(_decoder, "scan_once", _decoder.raw_decode))


def dump(value: Any, levels: int) -> str:
    """The text of a value that is nested at most `levels` deep; raises as described for `JsonCodec`."""
    if type(value) is str:
        text = _quote(value)
    else:
        try:
            text = _encode(value)
        except RecursionError as error:
            raise ValueError(f"the value is circular, or nested deeper than {MAX_NESTING} levels") from error
        if len(text) > 2 * levels and may_nest_deeper(text, levels) and nested_deeper(value, levels):
            raise ValueError(f"the value is nested deeper than {MAX_NESTING} levels")
    if not text.isascii():
        text.encode()  # raises where a lone surrogate stands, which no WebSocket text message can carry
    return text


def parse(text: str) -> Any:
    """The value of a text. Raises ValueError or RecursionError where it is none."""
    start = 0 if text[:1] not in _WHITESPACE else len(text) - len(text.lstrip(_WHITESPACE))
    try:
        value, stop = _scan(text, start)
    except StopIteration as error:
        raise ValueError(f"no value at character {error.value}") from error
    if stop != len(text) and text[stop:].strip(_WHITESPACE):
        raise ValueError("more than one value")
    return value


def load(text: str | bytes, levels: int, parser: Callable[[str], Any] = parse) -> Any:
    """The value of a remote's text by `parser`, nested at most `levels` deep.

    Raises:
        ProtocolError: It is bytes, no JSON, or nested deeper.
    """
    if not isinstance(text, str):
        raise ProtocolError("binary data under the json codec, which is a text codec")
    try:
        value = parser(text)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"undecodable JSON: {error}") from error
    if len(text) > 2 * levels and type(value) in _CONTAINERS and _is_nested(text, value, levels):
        raise ProtocolError(f"undecodable JSON: nested deeper than {MAX_NESTING} levels")
    return value


def _is_nested(text: str, value: Any, levels: int) -> bool:
    # A big message is most often one big string in an envelope, which is not worth counting brackets in.
    if type(value) is dict and len(value) <= _FEW and not any(type(item) in _CONTAINERS for item in value.values()):
        return False
    return may_nest_deeper(text, levels) and nested_deeper(value, levels)


def may_nest_deeper(text: str, levels: int) -> bool:
    """Whether `text` has what it takes to be nested deeper than `levels`: two characters a level is the least."""
    return len(text) > 2 * levels and text.count("[") + text.count("{") > levels


@implementer(ICodec, IEnvelopeCodec)
class JsonCodec:
    """JSON of the standard library, in text messages.

    Refused with ValueError: NaN and infinities, circles, more than 500 levels of nesting; with UnicodeEncodeError: lone
    surrogates; with TypeError: bytes, and whatever else JSON does not have. As in the standard library, keys that are
    numbers, booleans or None arrive as str, and tuples as lists.
    """

    name = "json"
    binary = False

    def encode(self, frame: Frame) -> str:
        """The message of a frame. Raises as described for the class."""
        return dump(to_mapping(frame), MAX_NESTING + ENVELOPE_NESTING)

    def decode(self, message: str | bytes) -> Frame:
        """The frame of a message; ProtocolError for anything that is none (PROTOCOL §3)."""
        return from_mapping(self.unwrap(message))

    def encode_payload(self, value: Any) -> str:
        """A value alone. Raises as described for the class."""
        return dump(value, MAX_NESTING)

    def decode_payload(self, data: str | bytes) -> Any:
        """The value of its encoded form; ProtocolError where it is none."""
        return load(data, MAX_NESTING)

    def wrap(
        self,
        kind: str,
        stream: int,
        encoded: str | bytes | None,
        headers: Mapping[str, Any] | None = None,
        end: bool = False,
        trailers: Mapping[str, Any] | None = None,
    ) -> bytes:
        """The message of an `open` or `data` frame around an encoded payload."""
        if isinstance(encoded, bytes):
            encoded = encoded.decode()
        if headers is None and trailers is None and encoded is not None:
            if end:
                return f'{{"type":"{kind}","stream":{stream},"end":true,"payload":{encoded}}}'.encode()
            return f'{{"type":"{kind}","stream":{stream},"payload":{encoded}}}'.encode()
        return (
            f'{{"type":"{kind}","stream":{stream}'
            f"{_END if end else ''}"
            f"{_member('headers', headers)}"
            f"{'' if encoded is None else _PAYLOAD + encoded}"
            f"{_member('trailers', trailers)}}}"
        ).encode()

    def wrap_fragment(
        self,
        kind: str,
        stream: int,
        piece: bytes | memoryview,
        more: bool,
        headers: Mapping[str, Any] | None = None,
        end: bool = False,
        trailers: Mapping[str, Any] | None = None,
    ) -> bytes:
        """The message of a fragment."""
        quoted = _quote(str(piece, "utf-8"))
        return (
            f'{{"type":"{kind}","stream":{stream}'
            f"{_END if end else ''}"
            f',"fragment":{quoted}'
            f"{_member('headers', headers)}"
            f"{_MORE if more else ''}"
            f"{_member('trailers', trailers)}}}"
        ).encode()

    def unwrap(self, message: str | bytes) -> dict[str, Any]:
        """The envelope of a message, unchecked; ProtocolError where it is no JSON object."""
        if len(message) <= _SHALLOW_LENGTH and type(message) is str and message[:1] == "{":
            # Nearly every message. Whatever is wrong with it is found again, and told, below.
            try:
                envelope, stop = _scan(message, 0)
            except (StopIteration, ValueError, RecursionError):
                pass
            else:
                if stop == len(message):
                    return cast("dict[str, Any]", envelope)
        envelope = load(message, MAX_NESTING + ENVELOPE_NESTING)
        if type(envelope) is not dict:
            raise ProtocolError(f"a message must be an object, not {type(envelope).__name__}")
        return envelope


def _member(name: str, value: Mapping[str, Any] | None) -> str:
    return "" if value is None else f',"{name}":{dump(dict(value), MAX_NESTING)}'
