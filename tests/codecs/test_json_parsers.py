"""The json codec with msgspec and without it cannot be told apart, but by a clock."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muxws_green.codecs import fast
from muxws_green.codecs import json as standard
from muxws_green.codecs.fast import FastJsonCodec
from muxws_green.codecs.json import JsonCodec
from tests.values import JSON_PAYLOADS

FAST = fast._parse


def outcome(parse, text):
    try:
        return repr(parse(text))
    except (ValueError, RecursionError) as error:
        return f"{type(error).__name__}: {error}"


def test_msgspec_is_asked_first(monkeypatch):
    monkeypatch.setattr(fast, "parse", None)
    assert FAST('{"a":[1.5]}') == {"a": [1.5]}


def test_msgspec_writes_what_both_understand_alike(monkeypatch):
    monkeypatch.setattr(fast, "dump", None)
    value = {"a": [1, 2.5, None, True, "x", (1, {})], "b": {"c": -(2**63) + 1}}
    assert json.loads(FastJsonCodec().encode_payload(value)) == json.loads(json.dumps(value))


ODD = st.sampled_from(
    [float("nan"), float("inf"), b"x", {1, 2}, 2**64, -(2**70), "\ud83d", {1: 2}, {None: 1}, object(), 1j]
)


@given(
    st.recursive(
        JSON_PAYLOADS | ODD,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=8,
    )
)
def test_what_is_sent_decodes_to_the_same_or_is_refused_alike(value):
    def sent(codec):
        try:
            return repr(json.loads(codec.encode_payload(value)))
        except (ValueError, TypeError) as error:
            return f"{type(error).__name__}: {error}"

    assert sent(FastJsonCodec()) == sent(JsonCodec())


@given(JSON_PAYLOADS, st.booleans(), st.sampled_from([None, 1]))
def test_values(value, ascii_only, indent):
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert outcome(FAST, text) == outcome(standard.parse, text) == repr(value)


NUMBERS = st.from_regex(r"-?[0-9]{1,25}(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)


@given(NUMBERS | NUMBERS.map(lambda text: text + "0" * 330))
def test_numbers(text):
    assert outcome(FAST, text) == outcome(standard.parse, text)


@given(st.text(st.characters(exclude_categories=[]), max_size=20), st.booleans())
def test_strings_with_anything_in_them(text, escaped):
    quoted = json.dumps(text, ensure_ascii=escaped)
    assert outcome(FAST, quoted) == outcome(standard.parse, quoted) == repr(json.loads(quoted))
    raw = f'"{text}"'
    assert outcome(FAST, raw) == outcome(standard.parse, raw)


PIECES = [
    *'{}[]",: \n\t\r\\eE.+-0123456789ntfu/\x00\x7f\ufeff',
    "null",
    "true",
    "NaN",
    '"a"',
    "\\u00e9",
    "\\ud83d",
    "é",
]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_noise(text):
    assert outcome(FAST, text) == outcome(standard.parse, text)


@pytest.mark.parametrize("levels", [1, 500, 501, 900, 1100, 100_000])
@pytest.mark.parametrize("pair", ["[]", '{"a":}'], ids=["lists", "objects"])
def test_nesting(levels, pair):
    core = "1" if levels < 900 else ""  # closed or not, nothing else may come out
    text = pair[:-1] * levels + core + pair[-1:] * levels
    assert outcome(FAST, text)[:20] == outcome(standard.parse, text)[:20]
