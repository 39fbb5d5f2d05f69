"""Ctrl-C as something that happens at a wait, and nowhere else.

Left to Python, SIGINT raises KeyboardInterrupt in whichever greenlet happens to run, the reader of a connection say.
Here it becomes an exception at the next wait of the one greenlet that runs the command, where the library turns it into
a `reset(CANCELLED)` for the remote. A second Ctrl-C interrupts the tidying up in the same way.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import gevent


class Interrupted(BaseException):
    """Ctrl-C was pressed. No `Exception`, so that nothing on its way takes it for a failure."""


@contextmanager
def on_interrupt(callback: Callable[[], object]) -> Iterator[None]:
    """Call `callback` in a greenlet of its own for each SIGINT, as long as the block runs."""
    watcher = gevent.signal_handler(signal.SIGINT, callback)
    try:
        yield
    finally:
        watcher.cancel()


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise `Interrupted` at the waits of the current greenlet, as long as the block runs."""
    current = gevent.getcurrent()
    with on_interrupt(lambda: gevent.kill(current, Interrupted)):
        yield
