"""The pytest plugin: fixtures that make peers, servers and bad networks, and tidy up behind the test.

Installing the distribution makes pytest load it; `-p no:muxws_green` keeps it out. It does nothing until a test asks
for a fixture. This is the only module of the package that imports pytest.

In a test that uses `fake_clock`, what the other fixtures make goes by that clock unless the test says otherwise; peers
that the test dials itself are given it as `clock=fake_clock`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from muxws_green.api import WSGIApp
from muxws_green.testing.clock import FakeClock
from muxws_green.testing.leaks import LeakCheck
from muxws_green.testing.listener import Address
from muxws_green.testing.pairs import PeerPair
from muxws_green.testing.pairs import peer_pair as make_peer_pair
from muxws_green.testing.relay import Relay
from muxws_green.testing.servers import LocalServer
from muxws_green.transports.server import is_wsgi

_CHECK = pytest.StashKey[LeakCheck]()

#: The check of the test that is running.
_current: LeakCheck | None = None


@pytest.fixture
def fake_clock() -> Iterator[FakeClock]:
    """A `FakeClock`, which is closed after everything that the other fixtures have made."""
    with FakeClock() as clock:
        yield clock


@pytest.fixture
def peer_pair(request: pytest.FixtureRequest) -> Iterator[Callable[..., PeerPair]]:
    """Makes pairs of peers that talk in memory, as `muxws_green.testing.peer_pair`; they are dropped after the test."""
    defaults = _clock_of(request)
    with ExitStack() as pairs:
        yield lambda **options: pairs.enter_context(make_peer_pair(**{**defaults, **options}))


@pytest.fixture
def muxws_server(request: pytest.FixtureRequest) -> Iterator[Callable[..., LocalServer]]:
    """Starts servers: `muxws_server(handler, **options)` is a running `LocalServer`, and its `url` is what to dial.

    It takes what `LocalServer` takes; each server is stopped after the test.
    """
    defaults = _clock_of(request)
    with ExitStack() as servers:

        def start(app_or_handler: Callable[..., Any], **options: Any) -> LocalServer:
            has_options = not isinstance(app_or_handler, WSGIApp) and not is_wsgi(app_or_handler)
            return servers.enter_context(
                LocalServer(app_or_handler, **{**(defaults if has_options else {}), **options})
            )

        yield start


@pytest.fixture
def relay(request: pytest.FixtureRequest) -> Iterator[Callable[..., Relay]]:
    """Puts relays before servers: `relay(url, **options)` is a `Relay`, closed after the test."""
    defaults = _clock_of(request)
    with ExitStack() as relays:

        def start(target: Address, **options: Any) -> Relay:
            return relays.enter_context(Relay(target, **{**defaults, **options}))

        yield start


@pytest.fixture
def no_leaks() -> None:
    """Fails the test, when everything is torn down, if it leaves greenlets of the library or open descriptors behind.

    What fixtures of a wider scope open may stay. The order of the fixtures does not matter; for a whole module:
    `pytestmark = pytest.mark.usefixtures("no_leaks")`.
    """


def _clock_of(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The fake clock of a test that uses one; asked for here, so that it outlives what is made with it."""
    return {"clock": request.getfixturevalue("fake_clock")} if "fake_clock" in request.fixturenames else {}


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Begin to look before the first fixture is set up."""
    global _current
    if "no_leaks" in getattr(item, "fixturenames", ()):
        _current = item.stash[_CHECK] = LeakCheck()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
    """Let stay what outlives the test."""
    if _current is None or fixturedef.scope == "function":
        return (yield)
    with _current.allowing():
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Look at what is left when the last fixture is torn down."""
    global _current
    check = item.stash.get(_CHECK, None)
    if check is None:
        return (yield)
    try:
        result = yield
        left = check.wait()
    finally:
        _current = None
        check.close()
    if left:
        pytest.fail(f"left behind: {', '.join(left)}", pytrace=False)
    return result
