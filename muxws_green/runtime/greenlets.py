"""The library's own greenlets: named for stack dumps, and cheap to make."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gevent import Greenlet, getcurrent

if TYPE_CHECKING:
    from muxws_green.runtime.link import Link

    _Base = Greenlet[..., None]
else:
    _Base = Greenlet


_run_greenlet: Callable[[Any], None] = Greenlet.run


class CheapGreenlet(_Base):
    """A greenlet without a note of where it was spawned.

    Ours are all spawned in the same places of our own, so that gevent's note would say nothing, and for it to be taken
    costs a tenth of the greenlet.
    """

    spawning_stack_limit = 0


class OwnGreenlet(CheapGreenlet):
    """A greenlet that does one thing for the library.

    It is given a function and its first argument, and keeps them in slots: a dict would be one more object for the
    garbage collector to look at.

    Args:
        name: What it does and for whom, such as `reader a3f-17`.
        function: Called with `of` and `arguments` once it is started.
        of: Whose it is.
        arguments: Further ones.
    """

    __slots__ = ("_arguments", "_function", "_of", "connection")

    #: The connection that is told of its end, if there is one.
    connection: Link

    def __init__(self, name: str, function: Callable[..., None], of: object, *arguments: Any) -> None:
        super().__init__()
        self.name = name
        self._function = function
        self._of: object = of
        self._arguments = arguments

    def never_served(self) -> object:
        """Whose it is, where it has ended without having run; None otherwise."""
        of, self._of = self._of, None
        return of

    @staticmethod
    def run() -> None:
        """Be the greenlet. Not a method, as it would stay bound while it runs: one object more for the collector."""
        _run_greenlet(getcurrent())

    def _formatinfo(self) -> str:
        # What gevent shows behind the name; it would be "_run" for all of them.
        return self._function.__qualname__

    @staticmethod
    def _run() -> None:
        # No method, for the same reason as `run`.
        own: Any = getcurrent()
        # What it works for may refer to it: without a circle both go as soon as nobody needs them.
        of, own._of = own._of, None
        arguments, own._arguments = own._arguments, ()
        if arguments:
            own._function(of, *arguments)
        else:
            # A call with a star keeps a tuple for as long as it lasts.
            own._function(of)
