"""The lines of the package that the measurement of coverage leaves out, each with its reason.

`python -m tests.exclusions` prints them, and fails where there are more than `MOST` or where one has no reason. They
are written `# pragma: no cover - the reason`, or `no branch` for a branch that is never taken. Not among them is what
cannot run whatever the tests do: what stands below `if TYPE_CHECKING:`, and bodies that are `...`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from coverage import Coverage
from coverage.config import DEFAULT_EXCLUDE

from tests.layers import package_dir

#: How many lines may be left out in all.
MOST = 20

#: What coverage leaves out by itself, without the pragma.
CANNOT_RUN = [pattern for pattern in DEFAULT_EXCLUDE if "pragma" not in pattern]

_REASON = re.compile(r"#\s*pragma: no (?:cover|branch) - (\S.*)")


class Exclusion(NamedTuple):
    """One line; `reason` is empty where none is given."""

    path: Path
    line: int
    reason: str


def exclusions(path: Path, settings: Path) -> Iterator[Exclusion]:
    """Those of one module, measured as the file `settings` says."""
    measured = Coverage(data_file=None, config_file=str(settings))
    counted, left_out = _statements(measured, path)
    branches = measured.get_exclude_list("partial")
    measured.clear_exclude()
    for pattern in CANNOT_RUN:
        measured.exclude(pattern)
    left_out -= _statements(measured, path)[1]
    lines = path.read_text().splitlines()
    left_out |= {number for number, line in enumerate(lines, 1) if any(re.search(each, line) for each in branches)}
    reason = ""
    for number in sorted(counted | left_out):
        if number in left_out:
            # What follows in the block has the reason of its first line.
            found = _REASON.search(lines[number - 1])
            reason = found[1] if found else reason
            yield Exclusion(path, number, reason)
        else:
            reason = ""


def _statements(measured: Coverage, path: Path) -> tuple[set[int], set[int]]:
    """The first lines of those that count, and of those that do not."""
    _, counted, left_out, *_ = measured.analysis2(str(path))
    return set(counted), set(left_out)


def main() -> int:
    """Print them all. Returns 1 where that is too many, or one without a reason."""
    package = package_dir()
    found = [
        each
        for path in sorted(package.rglob("*.py"))
        for each in exclusions(path, Path(__file__).parents[1] / "pyproject.toml")
    ]
    for path, line, reason in found:
        print(f"{path.relative_to(package.parent)}:{line}: {reason or 'NO REASON'}")
    print(f"{len(found)} lines are left out of the measurement, {MOST} may be")
    return int(len(found) > MOST or not all(each.reason for each in found))


if __name__ == "__main__":
    sys.exit(main())
