"""The library's own greenlets: named for stack dumps, and cheap to make."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gevent import Greenlet

if TYPE_CHECKING:
    _Base = Greenlet[..., None]
else:
    _Base = Greenlet


class CheapGreenlet(_Base):
    """A greenlet without a note of where it was spawned.

    Ours are all spawned in the same places of our own, so that gevent's note would say nothing, and for it to be taken
    costs a tenth of the greenlet.
    """

    spawning_stack_limit = 0


class OwnGreenlet(CheapGreenlet):
    """A greenlet that does one thing for the library.

    Args:
        name: What it does and for whom, such as `reader a3f-17`.
        run: Called with `arguments` once it is started.
        arguments: For `run`.
    """

    def __init__(self, name: str, run: Callable[..., None], *arguments: Any) -> None:
        super().__init__(run, *arguments)
        self.name = name
