"""What the tests of the connection machine share."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.protocol.cores import CODECS, End


@pytest.fixture(
    params=[(dialer, codec) for dialer in (False, True) for codec in CODECS],
    ids=lambda param: f"{'dialer' if param[0] else 'acceptor'}-{param[1].name}",
)
def make(request: pytest.FixtureRequest) -> Callable[..., End]:
    """Makes an end; the tests see each role under each codec."""
    dialer, codec = request.param
    return partial(End, dialer=dialer, codec=codec)


@pytest.fixture
def end(make: Callable[..., End]) -> End:
    """An end with the defaults."""
    return make()
