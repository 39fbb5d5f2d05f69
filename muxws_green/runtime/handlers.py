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

from gevent import getcurrent
from greenlet import GreenletExit, greenlet

from muxws_green.errors import MuxwsError, ResetCode, StreamReset
from muxws_green.protocol.frames import ABSENT
from muxws_green.protocol.states import LIVE, SENDING
from muxws_green.runtime.options import default_error_serializer
from muxws_green.runtime.workers import workers_of

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

    __slots__ = ("__weakref__", "_handler", "_link", "_stop", "_stopped", "_stream", "greenlet")

    def __init__(self, link: Link, stream: Stream, handler: StreamHandler, stop: bool) -> None:
        self._link = link
        self._stream = stream
        self._handler = handler
        self._stop = stop
        self._stopped = False
        #: Where it runs; None before that, and behind it.
        self.greenlet: greenlet | None = None

    @property
    def name(self) -> str:
        """Names its greenlet."""
        return f"handler {self._link.id} stream {self._stream.id}"

    def start(self) -> None:
        """Have the handler started, soon."""
        self._link.core.handler_started(self._stream._live)
        workers_of(self._link.home.hub).submit(self)

    def stop(self, error: StreamReset) -> None:
        """The stream has ended by `error`: stop the handler at its next wait, unless it ended the stream itself."""
        if not self._stop:
            return
        self._stopped = True
        if self.greenlet is not None and self.greenlet is not getcurrent():
            self._link.home.hub.loop.run_callback(self._throw, HandlerStopped(error))

    def _throw(self, stopped: HandlerStopped) -> None:
        """In the hub: its greenlet waits there, if it is still the handler's."""
        if self.greenlet is not None:
            self.greenlet.throw(stopped)

    def spare(self) -> None:
        """Let the handler run to its end, whatever becomes of its stream."""
        self._stop = False

    def run(self, in_greenlet: greenlet) -> None:
        """Call the handler and answer for what comes of it; nothing where it was stopped before it began."""
        self.greenlet = in_greenlet
        stream = self._stream
        # It takes the opening payload, so what it waits for before it takes another one counts (DESIGN §5).
        stream._inbox.taker = in_greenlet
        try:
            if not self._stopped:
                self._work(stream)
        finally:
            # At once: its answer may leave next, and the remote reuse its place.
            self.greenlet = stream._handler = None
            stream._inbox.forget_taker(in_greenlet)
            if stream._inbox.error is not None:
                # Whoever keeps the stream by now, a log of the handler's error for one, will not read it.
                stream._inbox.drop()
            self._link.core.handler_ended(stream._live)

    def _work(self, stream: Stream) -> None:
        try:
            result = self._handler(stream.payload, stream)
            if result is not None:
                self._check_result(result)
            if stream._live.state in SENDING:
                stream.end()
        except KeyboardInterrupt as error:
            self._answer_for(error)
            raise
        except BaseException as error:  # whatever a handler leaks is answered for on its own stream, and logged
            self._answer_for(error)

    def _check_result(self, result: Any) -> None:
        kind = type(result).__name__
        if inspect.isgenerator(result) or inspect.isawaitable(result) or inspect.isasyncgen(result):
            if inspect.isgenerator(result) or inspect.iscoroutine(result):
                result.close()
            logger.error(
                "muxws: the on_stream handler %r returned a %s; handlers are plain blocking functions that call "
                "stream.send(), neither generators nor async",
                self._handler,
                kind,
            )
            raise TypeError(f"the handler returned a {kind}; handlers are plain blocking functions")
        self._link.owner._own_hooks().result_discarded(self._handler, result)

    def _answer_for(self, error: BaseException) -> None:
        """Reset the stream with APPLICATION_ERROR, behind what the handler had sent (PROTOCOL §6)."""
        stream, conn = self._stream, self._link.id
        if stream.state not in LIVE:
            # Its stream ended under it, which is what most handlers then fail with; any other failure is a bug.
            if not isinstance(error, (GreenletExit, MuxwsError)):
                what = "muxws conn=%s stream=%s the on_stream handler raised after the end"
                logger.warning(what, conn, stream.id, exc_info=error)
            return
        payload: Any = ABSENT
        reason = None
        try:
            payload, reason = describe(error, self._link.options.error_serializer)
        except KeyboardInterrupt:
            raise
        except BaseException as second:  # a serializer may leak whatever a handler may
            logger.warning("muxws conn=%s the error serializer raised", conn, exc_info=second)
        finally:
            # Before the log line of the handler's error, which is code of the application's too.
            stream._end_by_reset(ResetCode.APPLICATION_ERROR, reason, asked=False, payload=payload)
        if not isinstance(error, GreenletExit):
            logger.warning("muxws conn=%s stream=%s the on_stream handler raised", conn, stream.id, exc_info=error)


def describe(error: BaseException, serializer: IErrorSerializer | None) -> tuple[Any, str | None]:
    """The payload and the reason of the reset that reports a handler's error.

    Under a serializer of the application's the reason is the serialized value's own `"message"` where that is a str:
    one that redacts, redacts both.

    Returns:
        The payload, ABSENT for none, and the reason, None for none.

    Raises:
        BaseException: Whatever the serializer, or the `str()` of the error, raises.
    """
    value = (serializer or default_error_serializer)(error)
    message = value.get("message") if isinstance(value, dict) else None
    return (ABSENT if value is None else value), (message if isinstance(message, str) else None)
