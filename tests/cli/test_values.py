"""Payloads as a line of JSON: what a codec carries and JSON does not, in both directions."""

from __future__ import annotations

import json
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muxws_green.cli.values import from_json, to_json

BINARY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text().filter(lambda key: not key.startswith("$")), inner),
)


@pytest.mark.parametrize(
    "value,shown",
    [
        ({"a": [1, None, True]}, '{"a": [1, null, true]}'),
        (b"\x00\xff", '{"$base64": "AP8="}'),
        ({b"k": 1, 2: 3, (1, 2): 4, None: 5}, '{"$base64:aw==": 1, "2": 3, "(1, 2)": 4, "null": 5}'),
        (msgpack.ExtType(5, b"x"), '{"$ext": [5, "eA=="]}'),
        (msgpack.Timestamp(1, 2), '{"$timestamp": [1, 2]}'),
        ([float("nan"), float("-inf")], '[{"$float": "nan"}, {"$float": "-inf"}]'),
        ({float("inf"): 1}, '{"inf": 1}'),
        ("\x1b\u202e", '"\\u001b\\u202e"'),
    ],
)
def test_what_is_shown(value: Any, shown: str) -> None:
    assert to_json(value) == shown
    assert to_json(value, ascii_only=True).isascii()


def test_deep_values_are_shown_too() -> None:
    deep: Any = 0
    for _ in range(499):
        deep = [deep]
    assert to_json(deep) == "[" * 499 + "0" + "]" * 499


@given(BINARY)
def test_what_is_shown_can_be_typed(value: Any) -> None:
    assert from_json(to_json(value), binary=True) == value
    assert from_json(to_json(value, ascii_only=True), binary=True) == value


def test_under_a_text_codec_nothing_stands_for_bytes() -> None:
    assert from_json('{"$base64": "AA=="}', binary=False) == {"$base64": "AA=="}
    assert from_json('{"$base64": "AA=="}', binary=True) == b"\0"
    assert from_json('{"$base64": "AA==", "more": 1}', binary=True) == {"$base64": "AA==", "more": 1}


@pytest.mark.parametrize("text", ["", "nope", "NaN", "[1", '{"$base64": "?"}', "[" * 100_000])
def test_what_is_no_payload(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        from_json(text, binary=True)


def test_the_json_of_programs_is_json() -> None:
    assert json.loads(to_json({"text": "\ud83d\x9b"}, ascii_only=True)) == {"text": "\ud83d\x9b"}
