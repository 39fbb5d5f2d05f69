"""The events of a stream, for those who wait without calling one of its methods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gevent.event import Event

from muxws_green.protocol.states import LIVE
from muxws_green.protocol.streams import LiveStream
from muxws_green.runtime.waitable import Waitable

if TYPE_CHECKING:
    from muxws_green.runtime.link import Link


class StreamEvents(Waitable):
    """That part of a `Stream`, which is the only one to use it. Events are made when somebody asks for them."""

    _link: Link
    _live: LiveStream
    #: Whether the answering side's first frame has been sent or received.
    _answer_seen: bool
    _closed: Event | None
    _replied: Event | None

    @property
    def closed(self) -> Event:
        """Set when the stream is closed: both sides have ended, it was reset, or the socket died."""
        if self._closed is None:
            self._closed = self._event(self._live.state not in LIVE)
        return self._closed

    @property
    def reply_headers_arrived(self) -> Event:
        """Set when `reply_headers` are final: at the answer's first frame, or when the stream closes."""
        if self._replied is None:
            self._replied = self._event(self._answer_seen or self._live.state not in LIVE)
        return self._replied

    def _event(self, is_set: bool) -> Event:
        event = Event()
        if is_set:
            event.set()
        else:
            # Somebody is about to wait, in a way that does not pass through here.
            self._link.start_reading()
        return event

    def _done_event(self) -> Event:
        return self.closed

    def _is_waited_for(self) -> bool:
        """Whether somebody waits for one of them."""
        return any(event is not None and event.linkcount() for event in (self._closed, self._replied))
