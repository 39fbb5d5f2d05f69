"""How a peer tells the application that a socket is gone: `CloseReason`, and callbacks that hold up nobody."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from gevent import getcurrent

from muxws_green.runtime.greenlets import OwnGreenlet
from muxws_green.runtime.guard import guarded


@dataclass(frozen=True, slots=True)
class CloseReason:
    """Why a socket ended.

    Args:
        code: The WebSocket close code: the remote's, 1005 for an empty close frame, 1006 where there was none or the
            heartbeat declared death, 1000 for our own `close()`, 1002 for a violation found here.
        reason: The text beside it.
        was_clean: Whether the code is 1000.
        will_retry: Whether another connection will be tried. At most one report of a peer says False.
    """

    code: int
    reason: str
    was_clean: bool
    will_retry: bool = False


class Named(Protocol):
    """Something with an id for people."""

    id: str


class Callbacks:
    """Runs an application's callbacks one after another in a greenlet of its own.

    Args:
        of: Whom they tell of; its `id` names the greenlet.
    """

    __slots__ = ("_greenlet", "_of", "_pending")

    def __init__(self, of: Named) -> None:
        self._of = of
        self._pending: tuple[Callable[[], object], ...] = ()
        self._greenlet: OwnGreenlet | None = None

    @property
    def is_current(self) -> bool:
        """Whether the caller is such a callback."""
        return self._greenlet is not None and getcurrent() is self._greenlet

    def add(self, callback: Callable[[], object]) -> None:
        """Run `callback` after those before it. Never switches."""
        self._pending += (callback,)
        if self._greenlet is None:
            self._start()

    def _start(self) -> None:
        self._greenlet = OwnGreenlet(f"callbacks {self._of.id}", Callbacks._run, self)
        # Also told of a greenlet that was killed before it started and so never ran.
        self._greenlet.rawlink(self._ended)
        self._greenlet.start()

    def _run(self) -> None:
        while self._pending:
            callback, *others = self._pending
            self._pending = tuple(others)
            guarded(callback, "muxws: the callback %r raised", callback)

    def _ended(self, _greenlet: object) -> None:
        self._greenlet = None
        if self._pending:
            # Some have come meanwhile, or a callback ended the greenlet by a kill or worse: those behind it still run.
            self._start()
