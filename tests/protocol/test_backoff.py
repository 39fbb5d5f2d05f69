"""The schedule of redials is a pure function, defined everywhere (seed A, "The backoff schedule"; case C33, C34)."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muxws_green.interfaces import IBackoffPolicy
from muxws_green.protocol.backoff import Reconnect, backoff_delay, should_retry, unjittered_delay

DEFAULT = Reconnect()


def test_defaults():
    assert Reconnect(initial_delay=0.25, factor=2.0, max_delay=30.0, jitter=0.3, max_attempts=None) == DEFAULT


def test_is_the_policy():
    assert IBackoffPolicy.providedBy(DEFAULT)
    assert DEFAULT.delay(3, lambda: 0.5) == backoff_delay(3, DEFAULT, lambda: 0.5)
    assert Reconnect(max_attempts=2).should_retry(1)
    assert not Reconnect(max_attempts=2).should_retry(2)


def test_is_frozen():
    with pytest.raises(AttributeError):
        DEFAULT.jitter = 0.0


def test_the_table_of_the_document():
    assert [unjittered_delay(n, DEFAULT) for n in range(10)] == [0.25, 0.5, 1, 2, 4, 8, 16, 30, 30, 30]


def test_jitter_applies_to_capped_delays_too():
    assert backoff_delay(50, DEFAULT, lambda: -1.0) == pytest.approx(21.0)
    assert backoff_delay(50, DEFAULT, lambda: 0.0) == 30.0
    assert backoff_delay(50, DEFAULT, lambda: 0.5) == pytest.approx(34.5)


@pytest.mark.parametrize(
    "options",
    [
        {"initial_delay": 0},
        {"initial_delay": -1.0},
        {"initial_delay": math.nan},
        {"factor": 0.99},
        {"factor": 0},
        {"factor": math.nan},
        {"max_delay": math.nan},
        {"jitter": -0.01},
        {"jitter": 1.01},
        {"jitter": math.nan},
        {"max_attempts": -1},
        {"max_attempts": True},
        {"max_attempts": False},
        {"max_attempts": 2.0},
        {"max_attempts": math.inf},
        {"max_attempts": "3"},
    ],
    ids=str,
)
def test_refused_options(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        Reconnect(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"factor": 1},
        {"jitter": 0},
        {"jitter": 1},
        {"max_delay": math.inf},
        {"max_delay": 0},
        {"max_attempts": 0},
        {"initial_delay": math.inf},
    ],
    ids=str,
)
def test_allowed_extremes(options):
    assert Reconnect(**options)


def test_max_attempts():
    assert should_retry(10**9, DEFAULT)
    assert not should_retry(0, Reconnect(max_attempts=0))
    assert [should_retry(n, Reconnect(max_attempts=2)) for n in range(4)] == [True, True, False, False]


@pytest.mark.parametrize("attempts", [1023, 1024, 5000, 10**30, 10**400], ids=lambda n: f"{len(str(n))} digits")
def test_growth_out_of_the_range_of_floats_is_the_cap(attempts):
    assert unjittered_delay(attempts, DEFAULT) == 30.0
    assert unjittered_delay(attempts, Reconnect(factor=2)) == 30.0


@pytest.mark.parametrize("attempts", [0, 1, 5000, 10**400], ids=lambda n: f"{len(str(n))} digits")
def test_without_growth_every_delay_is_the_first(attempts):
    assert unjittered_delay(attempts, Reconnect(factor=1)) == 0.25


@pytest.mark.parametrize("draw", [-1.0, -5.0])
def test_no_delay_is_negative_or_no_number(draw):
    assert backoff_delay(0, Reconnect(jitter=1), lambda: draw) == 0.0
    assert backoff_delay(0, Reconnect(initial_delay=math.inf, max_delay=math.inf, jitter=1), lambda: draw) == 0.0


@pytest.mark.parametrize("function", [lambda n: unjittered_delay(n, DEFAULT), lambda n: DEFAULT.delay(n, lambda: 0.0)])
def test_negative_counts_are_a_mistake_of_the_caller(function):
    with pytest.raises(ValueError, match="attempts"):
        function(-1)


@given(
    attempts=st.integers(0, 10**5) | st.integers(0, 10**400),
    initial=st.floats(min_value=0, exclude_min=True),
    factor=st.floats(min_value=1) | st.integers(1, 10),
    cap=st.floats(allow_nan=False),
    jitter=st.floats(0, 1),
    draw=st.floats(-1, 1),
)
def test_total_and_never_negative(attempts, initial, factor, cap, jitter, draw):
    options = Reconnect(initial_delay=initial, factor=factor, max_delay=cap, jitter=jitter)
    plain = unjittered_delay(attempts, options)
    assert 0 <= plain <= max(0, cap)
    assert backoff_delay(attempts, options, lambda: draw) >= 0
    assert unjittered_delay(attempts + 1, options) >= plain
