"""What holds for every test: the profile of the property tests."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_QUIET = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", _QUIET, max_examples=50)
settings.register_profile("ci", _QUIET, max_examples=100, derandomize=True)
settings.register_profile("thorough", _QUIET, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "quick"))
