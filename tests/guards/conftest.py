"""The fixture of the guards' own tests."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.guards.inner import ROOT, run_guarded


@pytest.fixture
def guarded(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Callable[..., pytest.RunResult]:
    """`run_guarded` in an empty directory."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    return partial(run_guarded, pytester)
