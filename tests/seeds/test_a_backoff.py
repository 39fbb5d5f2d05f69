"""Document A, "The backoff schedule"."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muxws_green import Reconnect, backoff_delay, connect, should_retry, unjittered_delay
from muxws_green.runtime import draw as draw_module
from tests.seeds.fixtures import supervisor_of
from tests.seeds.scripted import polite, resets_hello

seed = pytest.mark.seed

NAN = float("nan")

#: Schedules of every kind that the constructor takes.
SCHEDULES = st.builds(
    Reconnect,
    initial_delay=st.floats(min_value=1e-6, max_value=1e6),
    factor=st.floats(min_value=1.0, max_value=1e6),
    max_delay=st.one_of(st.floats(min_value=0.0, max_value=1e9), st.just(math.inf)),
    jitter=st.floats(min_value=0.0, max_value=1.0),
)
ATTEMPTS = st.integers(min_value=0, max_value=10_000)


@seed("A: min(initial_delay * factor ** attempts, max_delay)")
@given(SCHEDULES, st.integers(min_value=0, max_value=40))
def test_the_formula_before_jitter(options: Reconnect, attempts: int) -> None:
    grown = options.initial_delay * options.factor**attempts
    assert unjittered_delay(attempts, options) == min(grown, options.max_delay)


@seed("A: uniform(-jitter, +jitter)")
@given(SCHEDULES, ATTEMPTS, st.floats(min_value=-1.0, max_value=1.0, exclude_max=True))
def test_the_formula_with_jitter(options: Reconnect, attempts: int, drawn: float) -> None:
    delay = backoff_delay(attempts, options, lambda: drawn)
    middle = unjittered_delay(attempts, options)
    assert delay == pytest.approx(middle * (1 + options.jitter * drawn), nan_ok=True) or (
        math.isinf(middle) and (math.isinf(delay) or delay == 0.0)
    )
    assert delay >= 0.0


@seed("A: uniform(-jitter, +jitter)")
def test_the_draw_is_uniform_over_both_signs() -> None:
    random.seed(7)
    drawn = [draw_module.uniform() for _ in range(4_000)]
    assert all(-1.0 <= each < 1.0 for each in drawn)
    tenths = [sum(1 for each in drawn if low <= each * 5 < low + 1) for low in range(-5, 5)]
    # 400 are expected in each, with a deviation of 19.
    assert all(250 < count < 550 for count in tenths)


@seed("A: first retry after a loss waits initial_delay")
@pytest.mark.parametrize("initial_delay", [0.25, 1.5])
def test_the_first_retry_waits_the_initial_delay(clock, raw_server, dial, initial_delay) -> None:
    server = raw_server(polite)
    dial(server.url, hello=1, reconnect=Reconnect(initial_delay=initial_delay, jitter=0.0))
    clock.advance(10.0)
    server.last.reset()
    clock.advance(60.0)
    assert server.dials == [0.0, 10.0 + initial_delay]


@seed("A: First delay initial_delay")
@seed("A: Growth factor")
@seed("A: Ceiling max_delay")
@seed("A: Jitter jitter")
@seed("A: Give up after max_attempts")
@seed("A: Reconnect / ReconnectOptions and all five fields")
def test_the_five_fields_and_their_defaults() -> None:
    assert {field.name: field.default for field in dataclasses.fields(Reconnect)} == {
        "initial_delay": 0.25,
        "factor": 2.0,
        "max_delay": 30.0,
        "jitter": 0.3,
        "max_attempts": None,
    }


@seed("A: Growth factor")
@seed("A: Ceiling max_delay")
def test_growth_and_ceiling_over_real_sockets(clock, raw_server, dial) -> None:
    server = raw_server(polite, resets_hello)
    dial(server.url, hello=1, reconnect=Reconnect(initial_delay=1.0, factor=3.0, max_delay=10.0, jitter=0.0))
    server.wires[0].reset()
    clock.advance(45.0)
    assert server.gaps == [1.0, 3.0, 9.0, 10.0, 10.0, 10.0]


@seed("A: Give up after max_attempts")
@given(st.integers(min_value=0, max_value=1_000), ATTEMPTS)
def test_should_retry_counts(limit: int, attempts: int) -> None:
    assert should_retry(attempts, Reconnect(max_attempts=limit)) is (attempts < limit)
    assert should_retry(attempts, Reconnect(max_attempts=None)) is True


@seed("A: 0.25 s, 0.5 s, 1 s, 2 s, 4 s, 8 s, 16 s")
def test_the_default_delays_exactly() -> None:
    delays = [unjittered_delay(attempts, Reconnect()) for attempts in range(12)]
    assert delays == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0, 30.0, 30.0]


@seed("A: 0.25 s, 0.5 s, 1 s, 2 s, 4 s, 8 s, 16 s")
def test_the_default_delays_over_real_sockets(clock, raw_server, dial) -> None:
    server = raw_server(polite, resets_hello)
    dial(server.url, hello=1)
    server.wires[0].reset()
    clock.advance(130.0)
    assert server.gaps == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]


@seed("A: applied to every computed delay, including capped ones")
@given(SCHEDULES, ATTEMPTS)
def test_jitter_moves_every_delay(options: Reconnect, attempts: int) -> None:
    middle = unjittered_delay(attempts, options)
    low, high = backoff_delay(attempts, options, lambda: -1.0), backoff_delay(attempts, options, lambda: 0.999)
    if options.jitter > 1e-9 and 1e-200 < middle < math.inf:
        assert low < middle < high
    assert low >= 0.0


@seed("A: applied to every computed delay, including capped ones")
def test_the_delay_that_is_waited_is_the_drawn_one(clock, raw_server, monkeypatch) -> None:
    """At the cap too: the draws are known, and so is each moment of a dial."""
    draws = [-1.0, 0.5, 0.0, -0.5, 0.25, 0.75]
    source = itertools.chain(draws, itertools.repeat(0.0))
    server = raw_server(polite, resets_hello)
    options = Reconnect(initial_delay=4.0, factor=2.0, max_delay=8.0, jitter=0.5)
    with clock.held():
        peer = connect(server.url, hello=1, reconnect=options, clock=clock)
    supervisor_of(peer)._draw = lambda: next(source)
    server.wires[0].reset()
    clock.advance(48.0)
    middles = [4.0, 8.0, 8.0, 8.0, 8.0, 8.0]
    assert server.gaps == [middle * (1 + 0.5 * drawn) for middle, drawn in zip(middles, draws, strict=True)]
    peer.close()


@seed("A: raises ValueError (Python)")
@pytest.mark.parametrize(
    "options",
    [
        {"initial_delay": 0.0},
        {"initial_delay": -1.0},
        {"factor": 0.999},
        {"factor": 0.0},
        {"factor": -2.0},
        {"max_delay": NAN},
        {"jitter": -0.01},
        {"jitter": 1.01},
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(options) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        Reconnect(**options)


@seed("A: raises ValueError (Python)")
@pytest.mark.parametrize("options", [{"initial_delay": 1e-9}, {"factor": 1}, {"jitter": 0}, {"jitter": 1}])
def test_the_edges_are_allowed(options) -> None:
    Reconnect(**options)


@seed("A: A NaN initial_delay, factor or jitter is refused")
@pytest.mark.parametrize("name", ["initial_delay", "factor", "jitter"])
def test_nan_is_refused(name) -> None:
    with pytest.raises(ValueError, match=name):
        Reconnect(**{name: NAN})  # type: ignore[arg-type]


@seed("A: pure function of the attempt count")
@given(SCHEDULES, ATTEMPTS)
def test_the_same_count_gives_the_same_delay(options: Reconnect, attempts: int) -> None:
    before = random.getstate()
    assert unjittered_delay(attempts, options) == unjittered_delay(attempts, options)
    assert backoff_delay(attempts, options, lambda: 0.5) == backoff_delay(attempts, options, lambda: 0.5)
    assert random.getstate() == before


@seed("A: [unjittered_delay(n, options) for n in range(5)]")
@seed("A: should_retry(5, options)")
def test_the_example_of_the_document() -> None:
    options = Reconnect(max_attempts=5)
    assert [unjittered_delay(n, options) for n in range(5)] == [0.25, 0.5, 1.0, 2.0, 4.0]
    assert should_retry(5, options) is False
