"""Nothing that a terminal obeys gets through, and what is escaped is still the same JSON."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muxws_green.cli.escape import escaped

TEXTS = st.text(st.characters(codec=None, exclude_categories=()))


@pytest.mark.parametrize(
    "text,shown",
    [
        ("plain", "plain"),
        ("größer 字 🙂", "größer 字 🙂"),
        ("\x1b[31mred\x1b[0m", "\\u001b[31mred\\u001b[0m"),
        ("\x9b31m", "\\u009b31m"),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\x7f\x00\x07", "\\u007f\\u0000\\u0007"),
        ("\u202eevil\u2066", "\\u202eevil\\u2066"),
        ("\u2028\u2029", "\\u2028\\u2029"),
        ("\ud83d", "\\ud83d"),
        ("\U000e0041", "\\udb40\\udc41"),
        ("a\u00a0b", "a\u00a0b"),
    ],
)
def test_what_is_shown(text: str, shown: str) -> None:
    assert escaped(text) == shown


@given(TEXTS)
def test_nothing_but_visible_characters_is_left(text: str) -> None:
    for char in escaped(text):
        assert unicodedata.category(char) not in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


@given(TEXTS)
def test_the_text_of_a_json_document_keeps_its_value(text: str) -> None:
    assert json.loads(escaped(json.dumps(text, ensure_ascii=False))) == text
