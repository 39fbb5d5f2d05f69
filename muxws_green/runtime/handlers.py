"""Runs the application's `on_stream` handler, one greenlet a stream, and answers for whatever comes of it (PROTOCOL
§6).

Nothing that a handler raises or leaks, be it a stray `gevent.Timeout`, GreenletExit or SystemExit, costs more than its
own stream. A stream that ends under its handler stops it.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gevent import Greenlet, getcurrent
from greenlet import GreenletExit

from muxws_green.errors import ResetCode, StreamReset
from muxws_green.protocol.frames import ABSENT
from muxws_green.protocol.states import LIVE, StreamState
from muxws_green.runtime.guard import guarded
from muxws_green.runtime.options import default_error_serializer

if TYPE_CHECKING:
    from muxws_green.interfaces import IErrorSerializer
    from muxws_green.runtime.link import Link
    from muxws_green.runtime.stream import Stream

logger = logging.getLogger("muxws.peer")

StreamHandler = Callable[[Any, "Stream"], Any]


class HandlerStopped(GreenletExit):
    """Raised in a handler's greenlet, at its next wait, when its stream has ended under it.

    A GreenletExit, so that a handler which lets it pass ends in silence.

    Args:
        cause: The `StreamReset` that ended the stream.
    """

    def __init__(self, cause: StreamReset) -> None:
        super().__init__(str(cause))
        self.cause = cause


class HandlerRun:
    """One handler at work on one stream.

    Args:
        link: The connection.
        stream: The stream, whose opening payload is whole.
        handler: The application's function.
        stop: Whether it may be stopped when the stream ends under it.
    """

    __slots__ = ("_handler", "_link", "_stop", "_stream", "greenlet")

    def __init__(self, link: Link, stream: Stream, handler: StreamHandler, stop: bool) -> None:
        self._link = link
        self._stream = stream
        self._handler = handler
        self._stop = stop
        self.greenlet = Greenlet(self._run)
        self.greenlet.name = f"handler {link.id} stream {stream.id}"

    def start(self) -> None:
        """Start the handler's greenlet."""
        self._link.core.handler_started(self._stream._live)
        # Also told of a greenlet that was stopped before it started and so never ran.
        self.greenlet.rawlink(self._ended)
        self.greenlet.start()

    def stop(self, error: StreamReset) -> None:
        """The stream has ended by `error`: stop the handler at its next wait, unless it ended the stream itself."""
        if not self._stop or getcurrent() is self.greenlet or self.greenlet.dead:
            return
        self.greenlet.kill(HandlerStopped(error), block=False)

    def spare(self) -> None:
        """Let the handler run to its end, whatever becomes of its stream."""
        self._stop = False

    def _ended(self, _greenlet: object) -> None:
        stream = self._stream
        stream._handler = None
        self._link.handler_ended(stream._live)

    def _run(self) -> None:
        stream = self._stream
        try:
            result = self._handler(stream.payload, stream)
            if result is not None:
                self._check_result(result)
            if stream.state in (StreamState.OPEN, StreamState.HALF_CLOSED_REMOTE):
                stream.end()
        except KeyboardInterrupt as error:
            self._answer_for(error)
            raise
        except BaseException as error:  # whatever a handler leaks is answered for on its own stream, and logged
            self._answer_for(error)

    def _check_result(self, result: Any) -> None:
        if inspect.isgenerator(result) or inspect.iscoroutine(result) or inspect.isasyncgen(result):
            if not inspect.isasyncgen(result):
                result.close()
            raise TypeError(
                f"the on_stream handler {self._handler!r} returned a {type(result).__name__}; handlers are plain "
                f"blocking functions that call stream.send(), they are neither generators nor async"
            )
        self._link.hooks.result_discarded(self._handler, result)

    def _answer_for(self, error: BaseException) -> None:
        """Reset the stream with APPLICATION_ERROR, behind what the handler had sent (PROTOCOL §6)."""
        stream = self._stream
        if stream.state not in LIVE:
            # It has ended under the handler; what the handler made of that is nobody's business any more.
            return
        if not isinstance(error, GreenletExit):
            logger.warning(
                "muxws conn=%s stream=%s the on_stream handler raised", self._link.id, stream.id, exc_info=error
            )
        payload, reason = describe(error, self._link.options.error_serializer)
        stream._end_by_reset(ResetCode.APPLICATION_ERROR, reason, asked=False, payload=payload)


def describe(error: BaseException, serializer: IErrorSerializer | None) -> tuple[Any, str | None]:
    """The payload and the reason of the reset that reports a handler's error.

    Under a serializer of the application's the reason is the serialized value's own `"message"` where that is a str:
    one that redacts, redacts both. A serializer or a `str()` that raises still leaves a reset to send.

    Returns:
        The payload, ABSENT for none, and the reason, None for none.
    """
    value = guarded(
        lambda: (serializer or default_error_serializer)(error),
        "muxws: the error serializer raised; the reset goes without a payload",
    )
    message = value.get("message") if isinstance(value, dict) else None
    return (ABSENT if value is None else value), (message if isinstance(message, str) else None)
