"""Calling code of the application's where its failure must change nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from greenlet import GreenletExit

logger = logging.getLogger("muxws.peer")

T = TypeVar("T")


#: Errors of a chain that `forget_frames` looks at.
_CHAIN = 16


def forget_frames(error: BaseException) -> None:
    """Drop the tracebacks of an error that is kept, and of what caused it.

    They hold the frames of the greenlets that met it, and with those whole connections that are long gone.
    """
    chained: BaseException | None = error
    for _ in range(_CHAIN):
        if chained is None:
            return
        chained.__traceback__ = None
        chained = chained.__cause__ or chained.__context__


def guarded(call: Callable[[], T], what: str, *values: object) -> T | None:
    """Call `call()`; what it raises is logged.

    A stray `gevent.Timeout` is no Exception and would end the greenlet that it passes through, so everything is caught
    but what is addressed to somebody else: KeyboardInterrupt and SystemExit to the program, GreenletExit to this
    greenlet.

    Args:
        call: The call.
        what: A text for the log, with the places of `values`.
        values: As in `Logger.exception`.

    Returns:
        Its value; None where it raised.
    """
    try:
        return call()
    except (KeyboardInterrupt, SystemExit, GreenletExit):
        raise
    except BaseException:
        logger.exception(what, *values)
        return None
