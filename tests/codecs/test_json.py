"""The json codec is strict in both directions (PROTOCOL §4; LAYERS "JSON traps"; case C69)."""

from __future__ import annotations

import json
import math
from enum import IntEnum
from types import MappingProxyType

import pytest

from muxws_green.codecs import json as module
from muxws_green.codecs.fast import FastJsonCodec
from muxws_green.codecs.json import JsonCodec
from muxws_green.errors import ProtocolError
from muxws_green.protocol.frames import Frame

STANDARD, FAST = JsonCodec(), FastJsonCodec()


class _Current:
    """The codec under test: every rule holds for both."""

    codec = STANDARD

    def __getattr__(self, name):
        return getattr(self.codec, name)


CODEC = _Current()


@pytest.fixture(autouse=True, params=[STANDARD, FAST], ids=["standard", "fast"])
def _codec(request, monkeypatch):
    monkeypatch.setattr(_Current, "codec", request.param)


class Colour(IntEnum):
    RED = 1


def enveloped(payload_text):
    return f'{{"type":"data","stream":1,"payload":{payload_text}}}'


def test_declares_itself():
    assert (CODEC.name, CODEC.binary) == ("json", False)


@pytest.mark.parametrize(
    "value, text",
    [
        (None, "null"),
        (True, "true"),
        (0, "0"),
        (-1.5, "-1.5"),
        (2**64, "18446744073709551616"),
        ("", '""'),
        ("é€😀", '"é€😀"'),
        ('\x00\n"\\/\x7f', '"\\u0000\\n\\"\\\\/\x7f"'),
        ([], "[]"),
        ({}, "{}"),
        ((1, 2), "[1,2]"),
        ({"a": [1, {"b": None}]}, '{"a":[1,{"b":null}]}'),
        ({1: "a", None: "b"}, '{"1":"a","null":"b"}'),
        (Colour.RED, "1"),
    ],
    ids=repr,
)
def test_compact_and_unescaped(value, text):
    assert CODEC.encode_payload(value) == text


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "place",
    [lambda n: n, lambda n: [n], lambda n: {"a": {"b": n}}, lambda n: {n: 1}],
    ids=["bare", "list", "object", "key"],
)
def test_numbers_that_are_not_json_are_refused_at_the_sender(number, place):
    value = place(number)
    with pytest.raises(ValueError, match="JSON compliant"):
        CODEC.encode_payload(value)
    with pytest.raises(ValueError, match="JSON compliant"):
        CODEC.encode(Frame("data", 1, payload=value))
    with pytest.raises(ValueError, match="JSON compliant"):
        CODEC.wrap("open", 1, None, headers={"h": value})
    with pytest.raises(ValueError, match="JSON compliant"):
        CODEC.wrap("data", 1, None, trailers={"h": value})


@pytest.mark.parametrize("data", [b"x", bytearray(b"x"), memoryview(b"x")], ids=lambda data: type(data).__name__)
def test_bytes_are_refused_with_advice(data):
    with pytest.raises(TypeError, match=rf"{type(data).__name__}.*msgpack"):
        CODEC.encode_payload({"data": data})


@pytest.mark.parametrize(
    "value", [{1, 2}, object(), 1j, {(1, 2): 3}, {b"k": 1}], ids=lambda value: type(value).__name__
)
def test_what_json_does_not_have(value):
    with pytest.raises(TypeError):
        CODEC.encode_payload(value)


@pytest.mark.parametrize("value", ["\ud83d", ["a\udc00"], {"\ud83d": 1}], ids=ascii)
def test_lone_surrogates_are_refused_at_the_sender(value):
    with pytest.raises(UnicodeEncodeError):
        CODEC.encode_payload(value)
    with pytest.raises(UnicodeEncodeError):
        CODEC.encode(Frame("data", 1, payload=value))
    with pytest.raises(UnicodeEncodeError):
        CODEC.wrap("data", 1, None, headers={"h": value})


@pytest.mark.parametrize(
    "text, value", [('"\\ud83d"', "\ud83d"), ('"a\\ude00b"', "a\ude00b"), ('"\ud83d"', "\ud83d")], ids=ascii
)
def test_lone_surrogates_are_received(text, value):
    assert CODEC.decode_payload(text) == value
    assert CODEC.unwrap(enveloped(text))["payload"] == value
    assert CODEC.decode(enveloped(text)).payload == value


def test_escaped_pairs_are_one_character():
    assert CODEC.decode_payload('"\\ud83d\\ude00"') == "😀"


UNDECODABLE = [
    *("NaN", "Infinity", "-Infinity", "[NaN]", '{"a":-Infinity}'),
    *("1e999", "-1e999", "1E400", "[1.5,1e309]", "1" * 400 + ".0", '{"a":123456789e301}'),
    "9" * 5000,
    *("", " ", "nul", "{", "}", '{"a":1', '{"a":1}}', "[1,]", '{"a":1,}', "{'a':1}", "01", "1.", ".5", "+1", "0x10"),
    *('"a', '"\n"', '"\t"', '"\x00"', '"\\x"', '"\\u12"', "1 2", "{}{}", "\ufeff1", "1\x00", "\u00a01", "1\u2028"),
]


@pytest.mark.parametrize("text", UNDECODABLE, ids=lambda text: ascii(text[:20]))
def test_undecodable(text):
    with pytest.raises(ProtocolError):
        CODEC.decode_payload(text)
    for message in (text, enveloped(text) if text else "", f'{{"type":"data","unknown":{text}}}'):
        with pytest.raises(ProtocolError):
            CODEC.unwrap(message)
        with pytest.raises(ProtocolError):
            CODEC.decode(message)


@pytest.mark.parametrize("text", ["null", "1", '"x"', "[]", '["type"]', "true"])
def test_a_message_is_an_object(text):
    with pytest.raises(ProtocolError, match="object"):
        CODEC.unwrap(text)


@pytest.mark.parametrize("data", [b"{}", b'{"type":"data"}', b"\x81\xa4type\xa4data"])
def test_binary_messages_are_refused(data):
    for operation in (CODEC.unwrap, CODEC.decode, CODEC.decode_payload):
        with pytest.raises(ProtocolError, match="binary"):
            operation(data)


@pytest.mark.parametrize("text", [' {"a":1}', '{"a":1}\r\n\t ', ' \n{ "a" : 1 } '])
def test_white_space_around_a_value(text):
    assert CODEC.decode_payload(text) == {"a": 1}
    assert CODEC.unwrap(text) == {"a": 1}


def test_the_largest_and_smallest_numbers_are_received():
    text = "[1.7976931348623157e308,-1.7976931348623157e308,5e-324,1e-999,123456789012345678901234567890]"
    assert CODEC.decode_payload(text) == [
        1.7976931348623157e308,
        -1.7976931348623157e308,
        5e-324,
        0.0,
        123456789012345678901234567890,
    ]


def test_the_last_of_equal_keys_wins():
    assert CODEC.decode_payload('{"a":1,"a":2}') == {"a": 2}


def test_errors_do_not_quote_the_message():
    with pytest.raises(ProtocolError) as caught:
        CODEC.unwrap('{"token":"SECRET",x}')
    assert "SECRET" not in str(caught.value)


def test_a_frame_without_type_is_refused_by_decode_only():
    assert CODEC.unwrap('{"a":1}') == {"a": 1}
    with pytest.raises(ProtocolError, match="type"):
        CODEC.decode('{"a":1}')


def test_envelope_of_each_shape():
    assert CODEC.wrap("data", 7, "1") == b'{"type":"data","stream":7,"payload":1}'
    assert CODEC.wrap("open", 7, '"\xe9"', end=True) == '{"type":"open","stream":7,"end":true,"payload":"é"}'.encode()
    assert CODEC.wrap("data", 7, None, end=True) == b'{"type":"data","stream":7,"end":true}'
    assert CODEC.wrap("data", 7, None) == b'{"type":"data","stream":7}'
    assert (
        CODEC.wrap("data", 7, "null", {"h": "é"}, True, {"t": [1]})
        == '{"type":"data","stream":7,"end":true,"headers":{"h":"é"},"payload":null,"trailers":{"t":[1]}}'.encode()
    )
    assert (
        CODEC.wrap_fragment("data", 7, b'"\\\xc3\xa9', True, {"h": 1})
        == '{"type":"data","stream":7,"fragment":"\\"\\\\é","headers":{"h":1},"more":true}'.encode()
    )
    assert (
        CODEC.wrap_fragment("data", 7, b"", False, None, True, {"t": 1})
        == b'{"type":"data","stream":7,"end":true,"fragment":"","trailers":{"t":1}}'
    )


def test_wrap_takes_the_encoded_payload_as_bytes_too():
    assert CODEC.wrap("data", 7, '"é"'.encode()) == CODEC.wrap("data", 7, '"é"')


def test_headers_may_be_any_mapping():
    proxy = MappingProxyType({"h": 1})
    assert CODEC.wrap("open", 1, None, proxy) == CODEC.wrap("open", 1, None, {"h": 1})
    assert CODEC.wrap_fragment("open", 1, b"x", True, proxy) == CODEC.wrap_fragment("open", 1, b"x", True, {"h": 1})


def test_unwrapping_gives_a_fresh_dict_each_time():
    first = CODEC.unwrap('{"a":{}}')
    first["a"]["b"] = 1
    assert CODEC.unwrap('{"a":{}}') == {"a": {}}


class TestFallback:
    """An interpreter without the C parts gives the same results."""

    @pytest.fixture
    def _public(self, monkeypatch, missing):
        if missing == "other arguments":
            real, calls = json.encoder.c_make_encoder, []

            def make(*arguments):
                calls.append(arguments)
                if len(calls) == 1:  # ours; the later ones are of the public class, which knows its own Python
                    raise TypeError("takes other arguments here")
                return real(*arguments)

            monkeypatch.setattr(json.encoder, "c_make_encoder", make)
        else:
            monkeypatch.setattr(json.encoder, missing, None)
        monkeypatch.setattr(module, "_encode", module._build_encoder())
        monkeypatch.setattr(module, "_scan", module._decoder.raw_decode)

    @pytest.mark.parametrize("missing", ["c_make_encoder", "c_encode_basestring", "other arguments"])
    @pytest.mark.usefixtures("_public")
    def test_same_rules(self):
        value = {"a": [1, 2.5, "é\n", None, True], "b": {"c": ()}}
        text = '{"a":[1,2.5,"é\\n",null,true],"b":{"c":[]}}'
        assert CODEC.encode_payload(value) == text
        assert CODEC.decode_payload(f" {text} ") == {**value, "b": {"c": []}}
        for refused, error in (
            (math.nan, ValueError),
            (b"x", TypeError),
            ("\ud83d", UnicodeEncodeError),
        ):
            with pytest.raises(error):
                CODEC.encode_payload([refused])
        circle = []
        circle.append(circle)
        with pytest.raises(ValueError, match="circular"):
            CODEC.encode_payload(circle)
        for undecodable in ("NaN", "1e999", "", "1 2", "[" * 20_000, "[1"):
            with pytest.raises(ProtocolError):
                CODEC.decode_payload(undecodable)
