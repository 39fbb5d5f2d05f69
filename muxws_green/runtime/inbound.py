"""What becomes of that which the protocol's machine says has arrived: streams, payloads, handlers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from zope.interface import implementer

from muxws_green.errors import ResetCode, StreamReset
from muxws_green.interfaces import IConnectionSink
from muxws_green.protocol.streams import LiveStream
from muxws_green.runtime.handlers import HandlerRun
from muxws_green.runtime.inbox import Intake
from muxws_green.runtime.stats import count_reset
from muxws_green.runtime.stream import Stream

if TYPE_CHECKING:
    from muxws_green.runtime.link import Link

logger = logging.getLogger("muxws.peer")


@implementer(IConnectionSink)
class Inbound(Intake):
    """The sink of one connection's machine, and what has arrived and was not consumed.

    What the machine calls runs in the reader, now and then in the writer, and never waits.

    Args:
        link: The connection.
    """

    def __init__(self, link: Link) -> None:
        options = link.options
        super().__init__(link, options.receive_buffer_bytes, options.receive_pause_timeout, refuse_held)
        self._link = link

    def opening(self, live: LiveStream, headers: dict[str, Any] | None) -> None:
        """The remote opens a stream."""
        link = self._link
        stream = Stream(link, live, headers, None)
        live.owner = stream
        link.streams_accepted += 1
        if link.hooks.incoming and link.owner._handler is not None:
            # Without a handler it is about to be refused.
            link.hooks.incoming_headers(link.id, headers, stream)

    def opened(self, live: LiveStream, payload: Any) -> None:
        """Start the handler of a stream whose opening payload is whole."""
        link = self._link
        stream: Stream = live.owner
        stream.payload = payload
        owner = link.owner
        handler = owner._handler
        if handler is None:
            stream._end_by_reset(ResetCode.REFUSED, "no on_stream handler", asked=False)
            return
        run = HandlerRun(link, stream, handler, owner._stops_handler)
        stream._handler = run
        run.start()

    def answered(self, live: LiveStream, headers: dict[str, Any] | None) -> None:
        """The answer's first frame has arrived."""
        link = self._link
        stream: Stream = live.owner
        stream._answer(headers)
        if link.hooks.incoming:
            link.hooks.incoming_headers(link.id, headers, stream)

    def payload(self, live: LiveStream, payload: Any, size: int) -> None:
        """A payload has arrived."""
        live.owner._inbox.deliver(payload, size)

    def ended(self, live: LiveStream, trailers: dict[str, Any] | None) -> None:
        """The remote has ended a stream."""
        live.owner._end(trailers)

    def failed(self, live: LiveStream, error: StreamReset) -> None:
        """A stream was reset by the remote, or for a fault of the remote's."""
        link = self._link
        link.resets = count_reset(link.resets, error.code)
        live.owner._fail(error)
        link.wake_writer()

    def pong(self, nonce: str) -> None:
        """A pong has arrived."""
        link = self._link
        if not link.pings.settle(nonce) and link.heartbeat is not None:
            link.heartbeat.pong(nonce)

    def goaway(self, code: int, reason: str | None) -> None:
        """The remote is going away."""
        link = self._link
        link.outlet.open_no_more()
        logger.info("muxws conn=%s the remote is going away (code %d): %.200r", link.id, code, reason)

    def queued(self) -> None:
        """An answer of the protocol's own is waiting to leave."""
        self._link.wake_writer()

    def report(self, text: str) -> None:
        """Log an oddity."""
        link = self._link
        logger.info("muxws conn=%s %s", link.id, text)


def refuse_held(live: LiveStream, reason: str) -> None:
    """End a stream for the bytes that it holds, unless it has ended by itself."""
    stream: Stream | None = live.owner
    if stream is not None:
        stream._end_by_reset(ResetCode.CANCELLED, reason, asked=True)
