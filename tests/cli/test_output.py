"""Lines that fit."""

from __future__ import annotations

import pytest

from muxws_green.cli.output import fitting


@pytest.mark.parametrize(
    "columns,shown",
    [
        (100, "a long line"),
        (12, "a long line"),
        (11, "a long ..."),
        (5, "a..."),
        (4, "a l"),
        (2, "a"),
        (1, ""),
        (0, ""),
    ],
)
def test_a_line_never_reaches_the_last_column(columns: int, shown: str) -> None:
    assert fitting("a long line", columns) == shown
    assert len(shown) < max(columns, 1)
