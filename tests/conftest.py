"""What holds for every test: the guards of `tests/guards`, and the profile of the property tests.

Nothing is monkey-patched in this process; what needs a patched one starts a child.
"""

from __future__ import annotations

import os

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
