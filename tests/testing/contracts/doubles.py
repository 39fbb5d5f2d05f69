"""How a contract suite is shown to see what it looks for: for each promise, a double that breaks it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from muxws_green.testing.contracts.promises import said

Breaks = dict[Callable[..., None], list[Any]]


def breaks(doubles: Breaks, *promises: Callable[..., None]) -> Callable[[Any], Any]:
    """Enter a double under the promise that it breaks."""

    def enter(double: Any) -> Any:
        for promise in promises:
            doubles.setdefault(promise, []).append(double)
        return double

    return enter


def every_double(doubles: Breaks) -> pytest.MarkDecorator:
    """Run a test with each promise and each double that breaks it."""
    return pytest.mark.parametrize(
        "promise,double",
        [
            pytest.param(promise, double, id=f"{promise.__name__}-{double.__name__}")
            for promise, broken in doubles.items()
            for double in broken
        ],
    )


def assert_rejected(promise: Callable[..., None], check: Callable[[], None]) -> None:
    """The check fails, and for that promise."""
    with pytest.raises(AssertionError) as caught:
        check()
    text = str(caught.value)
    assert text.startswith(f"{said(promise)}: "), text
    assert len(text) > len(said(promise)) + 5


def assert_all_are_broken(promises: Iterable[Callable[..., None]], doubles: Breaks) -> None:
    """There is a double for every promise."""
    assert {promise.__name__ for promise in promises} == {promise.__name__ for promise in doubles}
