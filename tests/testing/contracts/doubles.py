"""How a contract suite is shown to see what it looks for: for each promise, a double that breaks it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from muxws_green.testing.contracts import promises
from muxws_green.testing.contracts.promises import said

#: The complaint about a double that keeps its caller waiting.
NOTHING = "nothing had happened"

#: By promise: doubles that break it, each with a part of what is to be said about it.
Breaks = dict[Callable[..., None], list[tuple[Any, str]]]


def breaks(doubles: Breaks, promise: Callable[..., None], complaint: str) -> Callable[[Any], Any]:
    """Enter a double under the promise that it breaks."""

    def enter(double: Any) -> Any:
        doubles.setdefault(promise, []).append((double, complaint))
        return double

    return enter


def every_double(doubles: Breaks) -> pytest.MarkDecorator:
    """Run a test with each promise and each double that breaks it."""
    return pytest.mark.parametrize(
        "promise,double,complaint",
        [
            pytest.param(
                promise,
                double,
                complaint,
                id=f"{promise.__name__}-{double.__name__}",
                marks=[pytest.mark.slow] if complaint == NOTHING else [],
            )
            for promise, broken in doubles.items()
            for double, complaint in broken
        ],
    )


def be_impatient(complaint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait less long for a double that does nothing at all, and still longer than what is right ever takes."""
    if complaint == NOTHING:
        monkeypatch.setattr(promises, "SECONDS", 2.0)


def assert_rejected(promise: Callable[..., None], complaint: str, check: Callable[[], None]) -> None:
    """The check fails, for that promise, and says what came in its place."""
    with pytest.raises(AssertionError) as caught:
        check()
    text = str(caught.value)
    assert text.startswith(f"{said(promise)}: "), text
    assert complaint in text.removeprefix(said(promise)), text


def assert_all_are_broken(promises: Iterable[Callable[..., None]], doubles: Breaks) -> None:
    """There is a double for every promise."""
    assert {promise.__name__ for promise in promises} == {promise.__name__ for promise in doubles}
