"""Where a peer may be used: in the hub and the process that made it.

gevent's objects belong to one hub, and a hub to one thread. A call from elsewhere would wait for a wake-up that never
comes, or write a socket that the parent process goes on using; here it raises instead.

A forked child has a copy of every greenlet, and its hub would run them: a second reader that takes bytes from the
parent's sockets, a second Supervisor that dials. So whatever owns a socket is told to let go of it in the child.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar
from weakref import WeakSet, ref

from gevent import Greenlet, get_hub
from gevent.hub import Hub

from muxws_green.runtime.guard import guarded

T = TypeVar("T")

_forks = 0


class Owner(Protocol):
    """Something with greenlets, and perhaps a socket, of one process."""

    def disown(self) -> None:
        """In a forked child: let go of everything without a word to anybody, and wake nobody of the application's."""


_groups: list[WeakSet[Any]] = []


def owners_of_one_process() -> WeakSet[Any]:
    """A set of owners, each of which is told in every child that is forked from this process. The child's is empty."""
    group: WeakSet[Any] = WeakSet()
    _groups.append(group)
    return group


_others = owners_of_one_process()


def disown_in_children(owner: Owner) -> None:
    """Have `owner` told in every child that is forked from this process; for those that are in no other such set."""
    _others.add(owner)


def _forked() -> None:
    global _forks
    _forks += 1
    owners = [owner for group in _groups for owner in group]
    for group in _groups:
        group.clear()
    for owner in owners:
        # One whose thread has ended its hub cannot, and must not keep the others from it.
        guarded(owner.disown, "muxws: %r could not be disowned in a forked child", owner)


os.register_at_fork(after_in_child=_forked)


class Home:
    """The hub and the process of the greenlet that made it. Peers share one (`home`)."""

    __slots__ = ("__weakref__", "_forks", "hub")

    def __init__(self) -> None:
        self.hub: Hub = get_hub()
        self._forks = _forks

    @property
    def forked(self) -> bool:
        """Whether this is a child of the process that made it."""
        return self._forks != _forks

    @property
    def here(self) -> bool:
        """Whether the caller is in this hub and this process."""
        return get_hub() is self.hub and self._forks == _forks

    def check(self) -> None:
        """Do nothing at home.

        Raises:
            RuntimeError: The caller is in another thread, or in a process forked since.
        """
        if get_hub() is self.hub and self._forks == _forks:
            return
        if self._forks != _forks:
            raise RuntimeError(
                "this peer belongs to the process that made it, not to one forked from that; dial anew here "
                "(peer.run_threadsafe(fn) hands work to a thread of that process, not to the process)"
            )
        raise RuntimeError(
            "this peer belongs to another thread; hand the work over with peer.run_threadsafe(fn), which runs fn there"
        )

    def run_here(self, call: Callable[[], object]) -> None:
        """Run `call()`, which must not switch: at once at home, soon from another thread, never in a forked child.

        For the garbage collector, which runs wherever it happens to.
        """
        if self._forks != _forks:
            return
        if get_hub() is self.hub:
            call()
        elif self.hub.loop is not None:
            self.hub.loop.run_callback_threadsafe(call)

    def run_threadsafe(self, function: Callable[[], T]) -> Future[T]:
        """Run `function` in a greenlet of this hub; may be called from any thread.

        Returns:
            A future of its value; `result()` waits for it in the calling thread.

        Raises:
            RuntimeError: In a process forked since, where nobody would run it.
        """
        if self.forked:
            self.check()
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                value = function()
            except BaseException as error:  # whatever it raised belongs to the thread that handed it over
                future.set_exception(error)
            else:
                future.set_result(value)

        # Spawned over there: a greenlet belongs to the hub of the thread that makes it.
        self.hub.loop.run_callback_threadsafe(Greenlet.spawn, run)
        return future


_latest: ref[Home] | None = None


def home() -> Home:
    """The caller's: the one that was asked for last, where that is it."""
    global _latest
    known = None if _latest is None else _latest()
    if known is None or not known.here:
        known = Home()
        _latest = ref(known)
    return known
