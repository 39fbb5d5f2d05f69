"""The arrows between the layers point one way, the pure layers are pure, and an import changes nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.layers import IMPURE, PACKAGE, ROWS, package_dir, violations

SOURCE = package_dir()


def test_imports_point_one_way() -> None:
    assert violations(SOURCE) == []


PLANTED = {
    "an arrow upwards": ("protocol/frames.py", "import muxws_green.runtime.peer", "protocol imports runtime"),
    "an arrow sideways": ("codecs/json.py", "from muxws_green.websocket import mask", "codecs imports websocket"),
    "a relative one": ("websocket/reader.py", "from ..transports.socket import x", "websocket imports transports"),
    "a relative one to the parent": ("runtime/peer.py", "from .. import api", "runtime imports api"),
    "within a function": ("protocol/frames.py", "def f():\n    from muxws_green import api", "protocol imports api"),
    "below a condition": ("errors.py", "if True:\n    import muxws_green.protocol", "errors imports protocol"),
    "otherwise": ("errors.py", "if TYPE_CHECKING:\n    pass\nelse:\n    import muxws_green.api", "errors imports api"),
    "the public names from below": ("api.py", "from muxws_green import connect", f"api imports {PACKAGE}"),
    "behind the public names": ("messaging/peer.py", "import muxws_green.runtime.peer", "messaging imports runtime"),
    "a clock": ("protocol/liveness.py", "import time", "protocol is pure and imports time"),
    "a socket": ("websocket/reader.py", "from socket import socket", "websocket is pure and imports socket"),
    "a hub": ("protocol/lanes.py", "import gevent.event", "protocol is pure and imports gevent"),
    "an unknown part": ("shortcuts.py", "", "shortcuts: not in the table of layers"),
}


@pytest.mark.parametrize("case", PLANTED)
def test_a_planted_violation_is_found(case: str, tmp_path: Path) -> None:
    path, source, complaint = PLANTED[case]
    package = _package(tmp_path, {path: source})
    (found,) = violations(package)
    assert complaint in found
    assert found.startswith(path.removesuffix(".py"))


ALLOWED = {
    "for the type checker": ("protocol/frames.py", "if TYPE_CHECKING:\n    import muxws_green.runtime.peer"),
    "downwards": ("api.py", "import muxws_green.errors, muxws_green.transports.socket"),
    "within a part": ("runtime/peer.py", "from .stream import Stream"),
    "vocabulary": ("interfaces.py", "from muxws_green.errors import ResetCode"),
    "the public names from above": ("messaging/peer.py", "from muxws_green import connect, errors"),
    "randomness for masks": ("websocket/mask.py", "import os"),
    "a hub": ("runtime/peer.py", "import gevent"),
}


@pytest.mark.parametrize("case", ALLOWED)
def test_an_import_that_keeps_to_the_rules_is_not(case: str, tmp_path: Path) -> None:
    path, source = ALLOWED[case]
    assert violations(_package(tmp_path, {path: source})) == []


def _package(directory: Path, files: dict[str, str]) -> Path:
    package = directory / PACKAGE
    for part in frozenset().union(*ROWS) - {PACKAGE, "__main__"}:
        if part in ("errors", "interfaces", "settings", "api", "echo"):
            files.setdefault(f"{part}.py", "")
        else:
            files.setdefault(f"{part}/__init__.py", "")
    for name, source in {"__init__.py": "", **files}.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return package


#: Imports modules of the package without running its `__init__`, which imports everything, and tells what was loaded.
LOAD_ALONE = """
import importlib, json, sys, types
package = types.ModuleType("muxws_green")
package.__path__ = [sys.argv[1]]
sys.modules["muxws_green"] = package
before = set(sys.modules)
for name in sys.argv[2:]:
    importlib.import_module(name)
json.dump(sorted(set(sys.modules) - before), sys.stdout)
"""

#: What must not be loaded even indirectly. `websockets` loads some of the standard library for uses that are not ours.
NEVER_LOADED = {"protocol": IMPURE, "websocket": frozenset({"gevent", "greenlet", "asyncio", "ssl"})}


@pytest.mark.slow
@pytest.mark.parametrize("part", NEVER_LOADED)
def test_a_pure_part_loads_nothing_impure(part: str) -> None:
    modules = [
        ".".join([PACKAGE, *path.relative_to(SOURCE).with_suffix("").parts]).removesuffix(".__init__")
        for path in sorted((SOURCE / part).rglob("*.py"))
    ]
    loaded = set(json.loads(_python(LOAD_ALONE, str(SOURCE), *modules)))
    assert set(modules) <= loaded
    assert loaded & NEVER_LOADED[part] == set()


#: Imports the public packages and tells what that changed in the process.
LOOK_AROUND = """
import json, os, sys, threading, time, socket, select
before = [threading.Thread.start, threading.Lock, time.sleep, socket.socket, socket.getaddrinfo, select.select, os.fork]
descriptors = set(os.listdir("/proc/self/fd"))
import muxws_green, muxws_green.codecs, muxws_green.messaging, muxws_green.testing
after = [threading.Thread.start, threading.Lock, time.sleep, socket.socket, socket.getaddrinfo, select.select, os.fork]
import gevent._hub_local, gevent.monkey
json.dump(
    {
        "replaced": [repr(old) for old, new in zip(before, after) if old is not new],
        "patched": sorted(name for name in sys.modules if gevent.monkey.is_module_patched(name)),
        "threads": threading.active_count(),
        "hub": repr(gevent._hub_local.get_hub_if_exists()),
        "opened": sorted(set(os.listdir("/proc/self/fd")) - descriptors),
    },
    sys.stdout,
)
"""


@pytest.mark.slow
@pytest.mark.case("C24")
def test_an_import_changes_nothing() -> None:
    assert json.loads(_python(LOOK_AROUND)) == {
        "replaced": [],
        "patched": [],
        "threads": 1,
        "hub": "None",
        "opened": [],
    }


@pytest.mark.slow
def test_a_patched_process_would_be_noticed() -> None:
    found = json.loads(_python("import gevent.monkey; gevent.monkey.patch_all()\n" + LOOK_AROUND))
    assert {"socket", "threading", "time"} <= set(found["patched"])


def _python(source: str, *arguments: str) -> str:
    command = [sys.executable, "-c", source, *arguments]
    # Measuring the coverage of a child loads modules and opens files in it.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    child = subprocess.run(
        command, capture_output=True, text=True, timeout=30, cwd=SOURCE.parent, env=environment, check=False
    )
    assert child.returncode == 0, child.stderr
    return child.stdout
