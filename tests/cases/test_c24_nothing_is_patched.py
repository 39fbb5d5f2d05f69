"""C24: importing the library patches nothing, and it works in a process that is patched and in one that is not."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.shared import ROOT

pytestmark = [pytest.mark.case("C24"), pytest.mark.slow]

IMPORTS = """
import select, signal, socket, ssl, subprocess, sys, threading, time, os, queue, selectors

names = [(module, name) for module in (select, socket, ssl, threading, time, os, queue, selectors, subprocess, signal)
         for name in vars(module)]
before = {(module.__name__, name): vars(module)[name] for module, name in names}
import pkgutil, importlib
import muxws_green

for found in pkgutil.walk_packages(muxws_green.__path__, "muxws_green."):
    if not found.name.endswith("__main__") and "testing" not in found.name:
        importlib.import_module(found.name)
from gevent import monkey

assert not [name for name in ("socket", "ssl", "threading", "time", "os", "select", "subprocess", "queue", "signal",
                              "selectors", "contextvars", "_gevent_saved_patch_all")
            if monkey.is_module_patched(name)]
changed = [name for name, value in before.items() if vars(sys.modules[name[0]]).get(name[1]) is not value]
assert not changed, changed
assert threading.active_count() == 1
print("nothing is patched")
"""

# What a program does in both kinds of process. The handler blocks as such programs do.
PROGRAM = """
import socket, threading, time
import gevent
from gevent.pywsgi import WSGIServer
from muxws_green import WSGIApp, connect

def handle(payload, stream):
    if payload == "slow":
        pause(0.3)
    for item in range(3):
        stream.send(item)

server = WSGIServer(("127.0.0.1", 0), WSGIApp(handle), log=None)
server.start()
with connect(f"ws://127.0.0.1:{server.server_port}/") as peer:
    slow = peer.open("slow", end=True)
    begun = time.monotonic()
    assert list(peer.open("quick", end=True)) == [0, 1, 2]
    # The slow handler does not hold up the quick one.
    assert time.monotonic() - begun < 0.3
    assert list(slow) == [0, 1, 2]
    assert peer.ping() >= 0
server.stop(timeout=1)
print("works")
"""

UNPATCHED = "pause = __import__('gevent').sleep\n" + PROGRAM
PATCHED = "from gevent import monkey\nmonkey.patch_all()\npause = __import__('time').sleep\n" + PROGRAM
PATCHED_AFTERWARDS = (
    "import muxws_green\nfrom gevent import monkey\nmonkey.patch_all()\npause = __import__('time').sleep\n" + PROGRAM
)
IN_A_THREAD = (
    "import threading\npause = __import__('gevent').sleep\ndef main():\n"
    + "".join(f"    {line}\n" for line in PROGRAM.splitlines())
    + "thread = threading.Thread(target=main)\nthread.start()\nthread.join()\n"
)


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_importing_every_module_patches_nothing() -> None:
    assert run(IMPORTS) == "nothing is patched\n"


@pytest.mark.parametrize(
    "program",
    [UNPATCHED, PATCHED, PATCHED_AFTERWARDS, IN_A_THREAD],
    ids=["unpatched", "patched", "patched afterwards", "in a thread"],
)
def test_it_works_patched_and_unpatched(program: str) -> None:
    assert run(program) == "works\n"
