"""The servers behind the doors, each started for the first test that goes through it and kept for the others."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from tests.doors.doors import DOORS, Door, Served, served


@pytest.fixture(scope="package")
def open_door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Door], Served]]:
    """Gives the server behind a door."""
    servers: dict[Door, tuple[Served, ExitStack]] = {}

    def find(door: Door) -> Served:
        if door not in servers:
            stack = ExitStack()
            servers[door] = stack.enter_context(served(door, tmp_path_factory.mktemp("door"))), stack
        return servers[door][0]

    def end(server: Served, stack: ExitStack) -> None:
        # Told to quit at once, a worker of gunicorn's may show its own exit as an error.
        server.process.stop(signal.SIGTERM)
        stack.close()

    yield find
    # All together, since gunicorn takes a while over it.
    with ThreadPoolExecutor(len(DOORS)) as pool:
        for ended in [pool.submit(end, *pair) for pair in servers.values()]:
            ended.result()


@pytest.fixture
def place(request: pytest.FixtureRequest, open_door: Callable[[Door], Served]) -> Iterator[object]:
    """Where a test takes place: the server behind the `Door` that it is parametrised with, which is left in silence and
    without clients; anything else is given as it is.
    """
    if not isinstance(request.param, Door):
        yield request.param
        return
    server = open_door(request.param)
    yield server
    server.process.close_clients()
    server.check_silent()
