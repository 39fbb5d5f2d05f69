"""A test leaves no greenlet of ours and no descriptor behind.

Checked for tests marked `leaks`, and for every test under `--leaks`. What is ending may take a few turns of the hub;
the check waits for it, up to a bound.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import gevent
import pytest

#: The jobs after which our greenlets are named (`reader a3f-17`).
JOBS = ("reader ", "writer ", "heartbeat ", "supervisor ", "handler ", "callbacks ")

#: How long what is ending may take to end, in seconds. Only a test that does leak waits for so long.
PATIENCE = 2.0


def open_descriptors() -> dict[int, str]:
    """What each open file descriptor of this process refers to."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue  # the descriptor of the listing itself
    return found


class Leaks:
    """The plugin; one for each session. Notes each greenlet as it starts, which is cheaper than to search for it."""

    def __init__(self) -> None:
        self._started: weakref.WeakSet[gevent.Greenlet[..., Any]] = weakref.WeakSet()

    def pytest_configure(self) -> None:
        gevent.Greenlet.add_spawn_callback(self._started.add)
        # The hub opens descriptors of its own, and each thread of its pool more of them when it has its first task: so
        # every thread gets one now, all at once.
        pool = gevent.get_hub().threadpool
        meeting = threading.Barrier(pool.maxsize)
        pool.map(lambda _: meeting.wait(10), range(pool.maxsize))

    def pytest_unconfigure(self) -> None:
        gevent.Greenlet.remove_spawn_callback(self._started.add)

    def alive(self) -> list[str]:
        """The names of our greenlets that have not ended."""
        return sorted(g.name for g in list(self._started) if not g.dead and g.name.startswith(JOBS))

    @pytest.fixture(autouse=True)
    def _nothing_left(self, request: pytest.FixtureRequest) -> Iterator[None]:
        if not (request.config.getoption("leaks") or request.node.get_closest_marker("leaks")):
            yield
            return
        greenlets, descriptors = self.alive(), open_descriptors()
        yield
        deadline = time.monotonic() + PATIENCE
        while True:
            left = [name for name in self.alive() if name not in greenlets]
            opened = sorted(f"{fd} -> {what}" for fd, what in open_descriptors().items() if descriptors.get(fd) != what)
            if not left and not opened:
                return
            if time.monotonic() > deadline:
                pytest.fail(f"left behind: greenlets {left}, descriptors {opened}", pytrace=False)
            gevent.sleep(0.001)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--leaks", action="store_true", help="fail every test that leaves greenlets or descriptors behind")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Leaks(), "leaks")
