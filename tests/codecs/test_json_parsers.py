"""Parsing with msgspec and parsing without it cannot be told apart, but by a clock."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muxws_green.codecs import json as module
from tests.values import JSON_PAYLOADS

pytest.importorskip("msgspec", reason="needs the extra fast")
FAST = module._build_parser()


def outcome(parse, text):
    try:
        return repr(parse(text))
    except (ValueError, RecursionError) as error:
        return f"{type(error).__name__}: {error}"


def test_without_msgspec_the_standard_library_parses(monkeypatch):
    monkeypatch.setitem(sys.modules, "msgspec", None)
    assert module._build_parser() is module._parse


def test_msgspec_is_asked_first(monkeypatch):
    monkeypatch.setattr(module, "_parse", None)
    assert FAST('{"a":[1.5]}') == {"a": [1.5]}


@given(JSON_PAYLOADS, st.booleans(), st.sampled_from([None, 1]))
def test_values(value, ascii_only, indent):
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert outcome(FAST, text) == outcome(module._parse, text) == repr(value)


NUMBERS = st.from_regex(r"-?[0-9]{1,25}(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)


@given(NUMBERS | NUMBERS.map(lambda text: text + "0" * 330))
def test_numbers(text):
    assert outcome(FAST, text) == outcome(module._parse, text)


@given(st.text(st.characters(exclude_categories=[]), max_size=20), st.booleans())
def test_strings_with_anything_in_them(text, escaped):
    quoted = json.dumps(text, ensure_ascii=escaped)
    assert outcome(FAST, quoted) == outcome(module._parse, quoted) == repr(json.loads(quoted))
    raw = f'"{text}"'
    assert outcome(FAST, raw) == outcome(module._parse, raw)


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
    assert outcome(FAST, text) == outcome(module._parse, text)


@pytest.mark.parametrize("levels", [1, 500, 501, 900, 1100, 100_000])
@pytest.mark.parametrize("pair", ["[]", '{"a":}'], ids=["lists", "objects"])
def test_nesting(levels, pair):
    core = "1" if levels < 900 else ""  # closed or not, nothing else may come out
    text = pair[:-1] * levels + core + pair[-1:] * levels
    assert outcome(FAST, text)[:20] == outcome(module._parse, text)[:20]
