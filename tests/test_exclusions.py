"""What the measurement of coverage leaves out is little, and says why."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import exclusions

SETTINGS = Path(__file__).parents[1] / "pyproject.toml"

SOURCE = """\
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def stub() -> int: ...


try:
    import fast
except ImportError:  # pragma: no cover - there is always one
    fast = None
    slow = (
        1,
    )
    slower = 2
while fast():  # pragma: no branch - it never ends by itself
    if slow:
        break
if fast:  # pragma: no cover
    slow = 1
"""


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "module.py"
    path.write_text(SOURCE)
    return path


def test_lines_are_listed_with_their_reasons(module: Path) -> None:
    always, never = "there is always one", "it never ends by itself"
    assert [(each.line, each.reason) for each in exclusions.exclusions(module, SETTINGS)] == [
        (12, always),
        (13, always),
        (14, always),
        (17, always),
        (18, never),
        (21, ""),
        (22, ""),
    ]


def test_a_pattern_among_the_settings_is_no_way_around_it(module: Path, tmp_path: Path) -> None:
    settings = tmp_path / "pyproject.toml"
    settings.write_text('[tool.coverage.report]\nexclude_also = ["import fast"]\n')
    assert (11, "") in [(each.line, each.reason) for each in exclusions.exclusions(module, settings)]


@pytest.mark.parametrize("reason,most,status", [(" - rare", 2, 0), (" - rare", 1, 1), ("", 2, 1)])
def test_too_many_or_no_reason_is_a_failure(reason, most, status, tmp_path, monkeypatch, capsys):
    package = tmp_path / "package"
    package.mkdir()
    (package / "module.py").write_text(f"if f():  # pragma: no cover{reason}\n    g()\n")
    monkeypatch.setattr(exclusions, "package_dir", lambda: package)
    monkeypatch.setattr(exclusions, "MOST", most)
    assert exclusions.main() == status
    assert f"package/module.py:2: {reason.strip(' -') or 'NO REASON'}" in capsys.readouterr().out


def test_those_of_the_package_are_few_and_have_one() -> None:
    assert exclusions.main() == 0
