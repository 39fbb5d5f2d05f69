"""What holds for every test: the guards of `tests/guards`, the profile of the property tests, and the order.

Nothing is monkey-patched in this process; what needs a patched one starts a child.
"""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = [
    "pytester",
    "tests.guards.watchdog",
    "tests.guards.hub_errors",
    "tests.guards.leaks",
    "tests.seeds.fixtures",
]

# `thorough` is for searching, by hand; what CI runs is the same each time.
_QUIET = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", _QUIET, max_examples=50)
settings.register_profile("ci", _QUIET, max_examples=100, derandomize=True)
settings.register_profile("thorough", _QUIET, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "quick"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run the tests in the random order of this number")


def pytest_report_header(config: pytest.Config) -> str | None:
    seed = config.getoption("shuffle")
    return None if seed is None else f"order: --shuffle={seed}"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seed = config.getoption("shuffle")
    if seed is not None:
        random.Random(seed).shuffle(items)
