"""The distribution is what it says: its metadata, what is in the wheel, and the scripts that install it."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

from tests.shared import ROOT, shared_dir

PROJECT = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text())["project"]

SCRIPTS = ["run-tests", "try-it", ".ci/run"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    """The wheel, built from a copy, so that nothing of an earlier build gets in and nothing is left in the tree."""
    copy = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "setup.py", "LICENSE", "MANIFEST.in", "README.md"):
        if ROOT.joinpath(name).exists():
            shutil.copy(ROOT / name, copy)
    for name in ("muxws_green", "tests", "servers", "examples", "docs"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", "dist", "."]
    child = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=120, check=False)
    assert child.returncode == 0, child.stdout + child.stderr
    (path,) = copy.joinpath("dist").iterdir()
    assert path.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return Parser().parsestr(wheel.read(name).decode())


@pytest.mark.slow
def test_the_wheel_has_the_package_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    source = {
        path.relative_to(ROOT).as_posix()
        for path in ROOT.joinpath("muxws_green").rglob("*")
        if path.suffix == ".py" or path.name == "py.typed"
    }
    assert packed == source
    assert "muxws_green/py.typed" in packed


@pytest.mark.slow
def test_the_licence_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith("LICENSE"))
    assert wheel.read(name) == ROOT.joinpath("LICENSE").read_bytes()


@pytest.mark.slow
def test_the_metadata(metadata: Message) -> None:
    assert metadata["Name"] == "muxws-green"
    assert metadata["Version"] == PROJECT["version"]
    assert metadata["License-Expression"] == "MIT"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["Author"] == "The muxws_green developers"
    assert set(metadata.get_all("Provides-Extra", [])) == {"cli", "fast", "gevent-websocket", "test", "docs"}
    assert not {"Home-page", "Project-URL", "Download-URL", "Author-email", "Maintainer-email"} & set(metadata)


@pytest.mark.slow
def test_the_dependencies(metadata: Message) -> None:
    required = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert {re.split(r"[<>=!~ ]", line)[0] for line in required} == {
        "gevent",
        "msgpack",
        "websockets",
        "zope.interface",
    }


def test_setup_py_says_nothing() -> None:
    (call,) = (
        node for node in ast.walk(ast.parse(ROOT.joinpath("setup.py").read_text())) if isinstance(node, ast.Call)
    )
    assert not call.args
    assert not call.keywords


def test_the_changelog_begins_with_this_version() -> None:
    (first, *_) = re.findall(r"^## (\S+)", ROOT.joinpath("CHANGELOG.md").read_text(), re.MULTILINE)
    assert first == PROJECT["version"]


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_can_be_run(name: str) -> None:
    assert os.access(ROOT / name, os.X_OK)
    child = subprocess.run(["bash", "-n", ROOT / name], capture_output=True, text=True, timeout=30, check=False)
    assert (child.returncode, child.stderr) == (0, "")


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_says_which_python_it_wants(name: str, tmp_path: Path) -> None:
    old = tmp_path / "old python"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    environment = {**os.environ, "PYTHON": str(old), "VENV": str(tmp_path / "venv")}
    child = subprocess.run(
        [ROOT / name], env=environment, cwd="/", capture_output=True, text=True, timeout=30, check=False
    )
    assert child.returncode == 1
    assert f"no Python >= 3.11 with its venv module among: {old}" in child.stderr
    assert not tmp_path.joinpath("venv").exists()
    if name == ".ci/run":
        assert child.stderr.endswith("== FAILED: build\n")


def test_shared_files_are_looked_for_where_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.joinpath("vectors").mkdir()
    monkeypatch.setenv("MUXWS_SHARED", str(tmp_path))
    assert shared_dir("vectors") == tmp_path / "vectors"
    with pytest.raises(FileNotFoundError, match="MUXWS_SHARED"):
        shared_dir("nothing")
