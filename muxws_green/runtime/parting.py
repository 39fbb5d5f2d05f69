"""How a connection ends in words: a goaway, time for what is under way, a close frame, and the remote's answer to it.

Everything here waits with a bound and comes to `Link.terminate` in the end, which may also come first: then nobody here
waits any longer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gevent import getcurrent
from greenlet import greenlet

from muxws_green.errors import ConnectionClosed, ResetCode
from muxws_green.interfaces import ITransport
from muxws_green.protocol.frames import clip_utf8
from muxws_green.runtime.waiting import WaitList

if TYPE_CHECKING:
    from muxws_green.runtime.handlers import HandlerRun
    from muxws_green.runtime.link import Link

#: Seconds that the goaway of a violation has to leave, and that the remote has to answer a close frame.
PARTING_SECONDS = 1.0
#: Seconds that streams may take to finish on a connection that has used up its ids.
RETIRING_SECONDS = 10.0
#: Bytes of UTF-8 in the reason of a close frame (RFC 6455 §5.5).
MAX_CLOSE_REASON_BYTES = 123


class Parting:
    """That of one link.

    Args:
        link: The link.
    """

    __slots__ = ("_closers", "_farewell", "_link", "_said", "cause", "progress")

    def __init__(self, link: Link) -> None:
        self._link = link
        #: What the end will be put down to; None where no parting has begun.
        self.cause: ConnectionClosed | None = None
        #: Woken when the writer has nothing left, when a stream closes, and when the farewell is written.
        self.progress = WaitList(link)
        self._farewell: tuple[int, str] | None = None
        self._said = False
        #: The greenlets that are inside `close`.
        self._closers: tuple[greenlet, ...] = ()

    @property
    def farewell_due(self) -> bool:
        """Whether the writer is to write the close frame as soon as it has nothing else."""
        return self._farewell is not None and not self._said

    def say_farewell(self, transport: ITransport) -> None:
        """Write the close frame that is due; for the writer."""
        assert self._farewell is not None
        self._said = True
        transport.close(*self._farewell)
        self.progress.wake()

    def begin_for_fault(self, cause: ConnectionClosed, code: int, reason: str) -> None:
        """Have the fault told: goaway and close frame get a second to leave, and the remote another to answer.

        Args:
            cause: What is reported.
            code: Of the close frame.
            reason: Of goaway and close frame.
        """
        link = self._link
        self.cause = self.cause or cause
        link.core.goaway(ResetCode.PROTOCOL_ERROR, reason)
        self._farewell = (code, clip_utf8(reason, MAX_CLOSE_REASON_BYTES))
        link.wake_writer()
        own = link.begin("parting", Parting._part, self, cause)
        # Whoever kills it ends the wait for the remote, not more.
        own.rawlink(lambda _: link.terminate(cause, abort_code=code))

    def close(self, code: int, reason: str | None, drain: float, close_code: int) -> None:
        """Goaway, wait for live streams and queued frames, close frame, and the remote's answer to it.

        Args:
            code: The goaway's.
            reason: The goaway's and the close frame's.
            drain: Seconds for the streams and frames.
            close_code: The close frame's.
        """
        link, current = self._link, getcurrent()
        self._spare_handler(current)
        self._closers += (current,)
        text = reason or ""
        cause = ConnectionClosed(text or "closed here", code=close_code, reason=text, was_clean=close_code == 1000)
        try:
            if link.is_alive:
                until = link.clock.now() + drain
                link.core.goaway(code, reason)
                link.outlet.open_no_more()
                link.start_reading()
                link.wake_writer()
                while link.is_alive and not self._is_quiet() and self.progress.wait(until):
                    pass
            if not link.is_alive:
                link.wait_until_over(link.clock.now() + 2 * PARTING_SECONDS)
                return
            self.cause = self.cause or cause
            self._farewell = self._farewell or (close_code, clip_utf8(text, MAX_CLOSE_REASON_BYTES))
            link.wake_writer()
            self._part(self.cause)
        except BaseException:
            if self._closers == (current,):
                # A kill, or the caller's own Timeout: nobody else sees this through, and half closed it must not stay.
                link.terminate(cause, abort_code=close_code)
            raise
        finally:
            self._closers = tuple(closer for closer in self._closers if closer is not current)

    def retire(self) -> None:
        """The last stream id has been taken: say goaway, let the streams finish, close; in the background."""
        self._link.begin(
            "retiring", Parting.close, self, ResetCode.NO_ERROR, "all stream ids are used up", RETIRING_SECONDS, 1000
        )

    def _part(self, cause: ConnectionClosed) -> None:
        """Give the farewell a second to leave and the remote another to answer, then end."""
        link = self._link
        until = link.clock.now() + PARTING_SECONDS
        while not self._said and link.cause is None and self.progress.wait(until):
            pass
        if self._said:
            link.wait_until_over(link.clock.now() + PARTING_SECONDS)
        link.terminate(cause, abort_code=self._farewell[0] if self._farewell else None)

    def _spare_handler(self, current: greenlet) -> None:
        """Do not stop the handler that closes the connection: as one that resets its stream, it wanted that."""
        for live in self._link.core.streams.values():
            run: HandlerRun | None = live.owner._handler
            if run is not None and run.greenlet is current:
                run.spare()

    def _is_quiet(self) -> bool:
        """Whether nothing is left to be waited for, but for streams whose handler waits for this itself."""
        link = self._link
        if link.core.lanes or not link.writer_rests:
            return False
        for live in link.core.streams.values():
            run: HandlerRun | None = live.owner._handler
            if run is None or run.greenlet not in self._closers:
                return False
        return True
