"""Pairs of peers for the tests of the runtime; whatever a test makes is dropped behind it."""

from __future__ import annotations

from collections.abc import Iterator

import gevent
import pytest

from muxws_green.testing import FakeClock, settle
from tests.runtime.ends import Ends, MakeEnds, make_ends, open_gates


@pytest.fixture(autouse=True)
def _bounded():
    """A bound for each test that needs no stack of every greenlet to be understood."""
    with gevent.Timeout(20):
        yield


@pytest.fixture
def clock() -> Iterator[FakeClock]:
    """Fake time, which jumps while the test waits for nothing else."""
    with FakeClock() as clock:
        yield clock


@pytest.fixture
def make() -> Iterator[MakeEnds]:
    """Makes pairs whose near end dials; see `make_ends`."""
    made: list[Ends] = []

    def make(near: str = "dialer", **options) -> Ends:
        made.append(make_ends(near, **options))
        return made[-1]

    yield make
    for ends in made:
        ends.drop()
    open_gates()
    settle()


@pytest.fixture(params=["dialer", "acceptor"])
def ends(make: MakeEnds, request: pytest.FixtureRequest) -> MakeEnds:
    """As `make`, and the test runs once with each role at the near end."""
    return lambda **options: make(request.param, **options)
