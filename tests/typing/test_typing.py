"""A type checker sees the contracts: it accepts what keeps them and refuses what does not."""

from __future__ import annotations

import re
import site
import subprocess
import sys
from pathlib import Path

import pytest

from tests.layers import package_dir

HERE = Path(__file__).parent

CONFIG = """
[mypy]
strict = true
# The package itself is checked elsewhere.
follow_imports = silent

[mypy-zope.*,msgpack.*]
ignore_missing_imports = true
follow_imports = skip
"""

_MARK = re.compile(r"# E: (?P<code>[a-z-]+)$")
_FOUND = re.compile(r"^(?P<file>[^:]+):(?P<line>\d+): error: .*\[(?P<code>[a-z-]+)\]$")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def found(pytestconfig: pytest.Config) -> dict[str, set[tuple[int, str]]]:
    """The errors that mypy reports in each file of this directory, as (line, code). One run, since it is slow."""
    cache = pytestconfig.cache.mkdir("mypy")
    config = cache / "strict.ini"
    config.write_text(CONFIG)
    files = ["accepted.py", "rejected.py"]
    command = [sys.executable, "-m", "mypy", "--config-file", config, "--cache-dir", cache / "cache", *files]
    # An installed package is found by itself, and mypy wants it so.
    source = str(package_dir().parent)
    environment = {} if source in site.getsitepackages() else {"MYPYPATH": source}
    child = subprocess.run(command, cwd=HERE, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert child.returncode == 1, child.stdout + child.stderr
    errors: dict[str, set[tuple[int, str]]] = {name: set() for name in files}
    for line in child.stdout.splitlines():
        match = _FOUND.match(line)
        if match:
            errors[match["file"]].add((int(match["line"]), match["code"]))
    return errors


def test_what_keeps_the_contracts_is_accepted(found: dict[str, set[tuple[int, str]]]) -> None:
    assert found["accepted.py"] == set()


def test_what_breaks_them_is_refused(found: dict[str, set[tuple[int, str]]]) -> None:
    marked = {
        (number, mark["code"])
        for number, line in enumerate(HERE.joinpath("rejected.py").read_text().splitlines(), start=1)
        if (mark := _MARK.search(line))
    }
    assert len(marked) > 20
    assert found["rejected.py"] == marked
