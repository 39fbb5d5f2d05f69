"""Who imports the library loads nothing of the command line; who runs that without its libraries is told what to do."""

from __future__ import annotations

import subprocess
import sys
import tomllib

import pytest

import muxws_green.cli
from tests.cli.programs import environment
from tests.shared import ROOT

pytestmark = pytest.mark.slow

IMPORT = """
import sys
import muxws_green, muxws_green.codecs, muxws_green.messaging, muxws_green.testing, muxws_green.echo
print([name for name in sys.modules if name.split(".")[0] in {NEEDED} or name.startswith("muxws_green.cli")])
"""

#: As where the extra is not installed.
HIDE = """
import importlib.util, sys
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name in {hidden} else find_spec(name, *rest)
from muxws_green.cli import main
sys.exit(main(["--help"]))
"""


#: As where the extra `fast` is not installed.
WITHOUT_MSGSPEC = """
import sys
sys.modules["msgspec"] = None
from muxws_green.cli import main
sys.exit(main(["request", "ws://h/", "1", "--codec", "fast"]))
"""

#: Ctrl-C while the libraries are loaded, which takes a moment.
INTERRUPTED = """
import signal, sys

class Interrupts:
    def find_spec(self, name, path, target=None):
        if name == "muxws_green.cli.app":
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupts())
from muxws_green.cli import main
sys.exit(main(["--help"]))
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, env=environment(), check=False)


def test_an_import_of_the_library_loads_none_of_it() -> None:
    done = run(IMPORT.replace("{NEEDED}", repr(muxws_green.cli.NEEDED)))
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_its_import_alone_loads_no_library() -> None:
    done = run(
        IMPORT.replace("{NEEDED}", repr(muxws_green.cli.NEEDED)).replace(
            "import muxws_green,", "import muxws_green.cli,"
        )
    )
    assert done.stdout == "['muxws_green.cli']\n"


@pytest.mark.parametrize("hidden", [("click",), ("prompt_toolkit",), ("click", "prompt_toolkit")])
def test_without_its_libraries_one_line_says_what_to_install(hidden: tuple[str, ...]) -> None:
    done = run(HIDE.replace("{hidden}", repr(hidden)))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f'the command line needs {" and ".join(hidden)}: pip install "muxws-green[cli]"\n'


def test_without_msgspec_one_line_says_what_to_install() -> None:
    done = run(WITHOUT_MSGSPEC)
    assert (done.returncode, done.stdout) == (2, "")
    assert 'pip install "muxws-green[fast]"' in done.stderr


def test_ctrl_c_before_there_is_anything_to_interrupt() -> None:
    done = run(INTERRUPTED)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_an_import_of_the_program_runs_nothing() -> None:
    """Which is what `multiprocessing` does in its children."""
    done = run("import muxws_green.__main__")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_extra_brings_what_is_looked_for() -> None:
    project = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text())["project"]
    brought = {line.split(">")[0].replace("-", "_") for line in project["optional-dependencies"]["cli"]}
    assert brought == set(muxws_green.cli.NEEDED)
    assert project["scripts"] == {"muxws-green": "muxws_green.cli:main"}
