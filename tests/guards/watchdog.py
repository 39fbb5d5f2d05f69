"""A hanging test fails and shows what every greenlet was doing.

The wait is an operating-system thread's, so that it ends whatever the greenlets do. While the hub turns, the failure is
thrown into the test, which then ends like any other failing test. Where the hub does not turn, or the test swallows the
failure, the dump goes to the terminal and the process exits: nothing else would ever end it.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import traceback
from collections.abc import Generator
from types import FrameType

import gevent
import greenlet
import pytest

from tests.alive import alive

#: What the process exits with when a hanging test could not be ended in any other way.
EXIT_HUNG = 70

#: How long a test that has been failed may take to end, in seconds, and how often it is failed: what tidies up behind
#: a hanging test may well hang too.
GRACE = 5.0
ATTEMPTS = 3

#: How much later than the watchdog its stand-in comes, which needs no interpreter: a test that hangs in C code holding
#: the interpreter's lock keeps every Python thread from running.
LOCKED_UP = 10.0

_TERMINAL = pytest.StashKey[int]()


def run_info() -> str:
    """Where every thread and every greenlet of this process is; callable in any thread.

    `gevent.util.format_run_info` leaves out the stacks of other threads' greenlets, and the watchdog is another thread.
    """
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = [
        _stack(f"thread {names.get(ident, ident)}", frame)
        for ident, frame in sys._current_frames().items()
        if ident != threading.get_ident()
    ]
    # A greenlet that runs has no frame of its own: it is where its thread is.
    parts += [_stack(repr(found), found.gr_frame) for found in alive(greenlet.greenlet) if found.gr_frame is not None]
    return "\n".join(parts)


def _stack(title: str, frame: FrameType) -> str:
    return f"{title}\n{''.join(traceback.format_stack(frame))}"


class Watchdog:
    """Watches one test; made and ended in the greenlet that runs it.

    Args:
        name: The test, for people.
        seconds: How long it may take.
        terminal: A file descriptor that output capturing leaves alone.
    """

    def __init__(self, name: str, seconds: float, terminal: int) -> None:
        self._name = name
        self._seconds = seconds
        self._terminal = terminal
        self._hub = gevent.get_hub()
        self._greenlet = gevent.getcurrent()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        faulthandler.dump_traceback_later(self._seconds + ATTEMPTS * GRACE + LOCKED_UP, exit=True, file=self._terminal)
        self._thread.start()

    def end(self) -> None:
        faulthandler.cancel_dump_traceback_later()
        self._ended.set()

    def _watch(self) -> None:
        if self._ended.wait(self._seconds):
            return
        dump = run_info()
        for _ in range(ATTEMPTS):
            failure = pytest.fail.Exception(f"{self._name} hung for {self._seconds:g} s\n{dump}")
            self._hub.loop.run_callback_threadsafe(self._fail, failure)
            if self._ended.wait(GRACE):
                return
        text = f"\n{self._name} hung for {self._seconds:g} s and cannot be ended\n{dump}\n"
        os.write(self._terminal, text.encode(errors="backslashreplace"))
        os._exit(EXIT_HUNG)

    def _fail(self, failure: BaseException) -> None:
        # Runs in the hub, so the test is waiting or over; only a waiting one may be hit.
        if not self._ended.is_set():
            self._greenlet.throw(failure)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("watchdog_seconds", "how long a test may take before it counts as hanging; 0: for ever", default="60")


def pytest_configure(config: pytest.Config) -> None:
    # Output is not captured yet.
    config.stash[_TERMINAL] = os.dup(sys.__stderr__.fileno() if sys.__stderr__ else 2)


def pytest_unconfigure(config: pytest.Config) -> None:
    os.close(config.stash[_TERMINAL])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    marker = item.get_closest_marker("watchdog")
    seconds = float(marker.args[0] if marker else item.config.getini("watchdog_seconds"))
    # A person at a debugger may take any time.
    if not seconds or item.config.getoption("usepdb"):
        return (yield)
    watchdog = Watchdog(item.nodeid, seconds, item.config.stash[_TERMINAL])
    watchdog.start()
    try:
        return (yield)
    finally:
        watchdog.end()
