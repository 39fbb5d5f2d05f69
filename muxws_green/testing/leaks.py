"""Whether a stretch of code leaves something behind: greenlets of this library, open descriptors.

A greenlet is this library's where it runs a function of this library, as a peer does for each handler; an application's
greenlets are its own affair. Descriptors are everybody's. What is ending may take a few turns of the hub, so a check
waits for it, up to a bound.
"""

from __future__ import annotations

import os
import sys
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import gevent

from muxws_green.runtime.workers import Worker, workers_of

#: How many real seconds what is ending may take. Only a check that fails waits for so long.
PATIENCE = 2.0

_PACKAGE = __name__.partition(".")[0]
_DESCRIPTORS = "/proc/self/fd" if sys.platform == "linux" else "/dev/fd"


class LeakCheck:
    """Looks from the moment that it is made at what begins and does not end; `close` it.

    For the greenlets of every thread, and the descriptors of the process.
    """

    def __init__(self) -> None:
        # The hub opens descriptors of its own, and more for the first thread of its pool.
        gevent.get_hub().threadpool.apply(int)
        # A handler that runs from now on is to be seen, which the one in a greenlet of before would not be.
        workers_of(gevent.get_hub()).dismiss()
        self._started: weakref.WeakSet[gevent.Greenlet[..., Any]] = weakref.WeakSet()
        self._allowing = False
        self._descriptors = open_descriptors()
        gevent.Greenlet.add_spawn_callback(self._note)

    def close(self) -> None:
        """Look no longer; any number of times."""
        gevent.Greenlet.remove_spawn_callback(self._note)

    @contextmanager
    def allowing(self) -> Iterator[None]:
        """What begins inside it may stay."""
        before = open_descriptors()
        self._allowing = True
        try:
            yield
        finally:
            self._allowing = False
            now = open_descriptors()
            self._descriptors.update({fd: what for fd, what in now.items() if before.get(fd) != what})

    def left(self) -> list[str]:
        """What is there now and should not be, for people."""
        greenlets = sorted(
            f"greenlet {each.name}"
            for each in list(self._started)
            if not each.dead and not (isinstance(each, Worker) and each.rests)
        )
        descriptors = sorted(
            f"descriptor {fd} -> {what}" for fd, what in open_descriptors().items() if self._descriptors.get(fd) != what
        )
        return greenlets + descriptors

    def wait(self, seconds: float = PATIENCE) -> list[str]:
        """What is still there after so many real seconds; returns as soon as there is nothing.

        Args:
            seconds: How long to wait at most.
        """
        deadline = time.monotonic() + seconds
        while (left := self.left()) and time.monotonic() < deadline:
            gevent.sleep(0.001)
        return left

    def _note(self, greenlet: gevent.Greenlet[..., Any]) -> None:
        if not self._allowing and _is_ours(greenlet):
            self._started.add(greenlet)


def open_descriptors() -> dict[int, str]:
    """What each open file descriptor of this process refers to, as far as the system tells."""
    found = {}
    for fd in map(int, os.listdir(_DESCRIPTORS)):
        try:
            inode = os.fstat(fd).st_ino
        except OSError:
            # The descriptor of the listing itself.
            continue
        found[fd] = os.readlink(f"{_DESCRIPTORS}/{fd}") if sys.platform == "linux" else f"inode {inode}"
    return found


def _is_ours(greenlet: gevent.Greenlet[..., Any]) -> bool:
    work = getattr(greenlet, "_run", None)
    while isinstance(work, partial):
        work = work.func
    module = getattr(work, "__module__", None) or ""
    return module.partition(".")[0] == _PACKAGE
