"""The examples on the pages are the files under `examples/docs`, and print what the pages say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import gevent
import pytest
from gevent import socket

from tests.docs.pages import Example, examples, same_ids
from tests.layers import package_dir
from tests.shared import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.watchdog(90)]

EXAMPLES = examples()
#: Where the pages and the README serve; here it is a port from the kernel.
PORT = "8000"
#: Seconds after which what is waited for counts as never to come.
PATIENCE = 60

#: A server that prints nothing and runs until it is ended, and the client that is shown with it.
PAIRS = {"examples/docs/first_server.py": "examples/docs/first_client.py"}
ALONE = [example for example in EXAMPLES if example.path not in {*PAIRS, *PAIRS.values()}]
#: Needs the library `muxws`, which is no dependency of this one.
BOTH = {"examples/docs/porting_before.py"}

README = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)


def by_path(path: str) -> Example:
    return next(example for example in EXAMPLES if example.path == path)


def run(code: str) -> str:
    """What a program prints; it must succeed and complain of nothing."""
    command = [sys.executable, "-c", code]
    finished = gevent.get_hub().threadpool.apply(
        subprocess.run, (command,), {"capture_output": True, "text": True, "timeout": PATIENCE, "env": environment()}
    )
    assert (finished.returncode, finished.stderr) == (0, "")
    return finished.stdout


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(package_dir().parent)}


@contextmanager
def serving(code: str) -> Iterator[str]:
    """Run a server that listens at `PORT`, at a port from the kernel; yields that port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert code.count(PORT) == 1
    server = subprocess.Popen(
        [sys.executable, "-c", code.replace(PORT, str(port))], env=environment(), stderr=subprocess.DEVNULL
    )
    try:
        with gevent.Timeout(PATIENCE, TimeoutError("the server does not listen")):
            while not listens(port):
                assert server.poll() is None
                gevent.sleep(0.01)
        yield str(port)
    finally:
        server.kill()
        server.wait(PATIENCE)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_every_file_is_shown_once() -> None:
    files = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.joinpath("examples", "docs").glob("*.py"))
    assert sorted(example.path for example in EXAMPLES) == files


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.path)
def test_the_code_is_that_of_the_file(example: Example) -> None:
    assert example.code == (ROOT / example.path).read_text()
    assert (example.output is None) == (example.path in PAIRS)


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(example, id=example.path, marks=[pytest.mark.interop] if example.path in BOTH else [])
        for example in ALONE
    ],
)
def test_an_example_prints_what_its_page_says(example: Example) -> None:
    assert example.output is not None
    assert same_ids(run(example.code)) == same_ids(example.output)


@pytest.mark.parametrize("path", PAIRS)
def test_a_server_and_its_client(path: str) -> None:
    client = by_path(PAIRS[path])
    with serving(by_path(path).code) as port:
        assert run(client.code.replace(PORT, port)) == client.output


def test_the_readme() -> None:
    server, client = README
    assert client.count(PORT) == 1
    with serving(server) as port:
        printed = run(client.replace(PORT, port)).splitlines()
    assert printed == ["{'number': 0}", *(f"{{'number': {number}}}" for number in range(1000))]
