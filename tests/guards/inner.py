"""A pytest inside a test: each guard is there to make a test fail, so its tests run others and look at the outcome."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

CONFTEST = 'pytest_plugins = ["tests.guards.watchdog", "tests.guards.hub_errors", "tests.guards.leaks"]'


def run_guarded(pytester: pytest.Pytester, source: str, *arguments: str) -> pytest.RunResult:
    """Run the source of one test file in a child process, under all guards and this project's settings."""
    pytester.path.joinpath("pyproject.toml").write_text(ROOT.joinpath("pyproject.toml").read_text())
    pytester.makeconftest(CONFTEST)
    path = pytester.makepyfile(test_inner=source)
    # The order matters to some of the files, and the seeds of property tests to none.
    plugins = ["-p", "no:randomly", "-p", "no:hypothesispytest"]
    return pytester.runpytest_subprocess("-v", *plugins, *arguments, path, timeout=60)


def verdicts(result: pytest.RunResult) -> dict[str, list[str]]:
    """What became of each test; of some in the call and then in the teardown."""
    found: dict[str, list[str]] = {}
    for line in result.outlines:
        if "::" in line and line.endswith("%]"):
            name, verdict = line.partition("::")[2].split()[:2]
            found.setdefault(name, []).append(verdict)
    return found
