"""An asyncio loop in which time passes only while nothing can run: deadlines of the reference wait for no clock."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class JumpingLoop(asyncio.SelectorEventLoop):
    """Its time jumps to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_Selector(self))

    def time(self) -> float:
        return self._now


class _Selector(selectors.DefaultSelector):
    def __init__(self, loop: JumpingLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            return super().select(None)
        ready = super().select(0)
        if not ready and timeout > 0:
            # A little more than the wait, which is a difference of floats and may be rounded down.
            self._loop._now += timeout * (1 + 1e-9)
        return ready


def run(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on a `JumpingLoop`."""
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(main)
