"""`Stream`: one independent, cancellable, two-way exchange of payloads, as blocking code uses it (PROTOCOL §6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from gevent import getcurrent
from gevent.event import Event
from zope.interface import implementer

from muxws_green.errors import (
    ProtocolError,
    ResetCode,
    StreamAlreadyConsumed,
    StreamClosed,
    StreamReset,
    StreamTimeout,
    error_for_reset,
)
from muxws_green.interfaces import IStream
from muxws_green.protocol.frames import ABSENT
from muxws_green.protocol.longbytes import LongBytes
from muxws_green.protocol.states import CLOSED, LIVE, SENDING, StreamState
from muxws_green.protocol.streams import LiveStream
from muxws_green.runtime.checks import check_code_and_reason, checked_metadata
from muxws_green.runtime.inbox import Inbox
from muxws_green.runtime.iteration import Iteration
from muxws_green.runtime.loops import last_queued
from muxws_green.runtime.options import deadline
from muxws_green.runtime.stats import count_reset
from muxws_green.runtime.stream_events import StreamEvents

if TYPE_CHECKING:
    from muxws_green.runtime.handlers import HandlerRun
    from muxws_green.runtime.link import Link


@implementer(IStream)
class Stream(StreamEvents):
    """One exchange with the other end. Made by `Peer.open` and handed to `on_stream` handlers; never by applications.

    A stream has one consumer: the first of `result()` and iteration (or `receive()`) claims it. Leaving an iteration
    early, or a `with` over the stream while it is live, cancels it. In `gevent.wait` it is ready once it is closed.

    Attributes:
        id: The id on the wire; odd where the dialer opened it.
        headers: The opener's headers, the same at both ends; empty where there were none.
        reply_headers: The answering side's leading headers; final once `reply_headers_arrived` is set.
        payload: The opening payload.
        trailers: What the remote sent with its end; None before that, or without any.
    """

    def __init__(self, link: Link, live: LiveStream, headers: Mapping[str, Any] | None, payload: Any) -> None:
        self._link = link
        self._live = live
        self.id = live.id
        self.headers: dict[str, Any] = dict(headers) if headers else {}
        self.reply_headers: dict[str, Any] = {}
        self.payload = payload
        self.trailers: dict[str, Any] | None = None
        self._inbox = Inbox(link.intake, live)
        self._claim = ""
        self._iterated = False
        self._iterating = False
        self._first: Any = ABSENT
        self._answer_seen = False
        self._closed: Event | None = None
        self._replied: Event | None = None
        self._handler: HandlerRun | None = None

    def __repr__(self) -> str:
        return f"<Stream {self.id} {self.state.value} of {self._link.id}>"

    @property
    def state(self) -> StreamState:
        """Where the stream stands, from this end."""
        return self._live.state

    @property
    def local(self) -> bool:
        """Whether this end opened it."""
        return self._live.local

    # Sending

    def send(self, payload: Any, *, end: bool = False, headers: Mapping[str, Any] | None = None) -> None:
        """Send one payload; wait while there is no room for it, which is how a slow remote slows its sender.

        Args:
            payload: Whatever the codec can encode.
            end: Whether this is the last frame of this side.
            headers: Only on the answering side's first frame.

        Raises:
            StreamClosed: This side, or the whole stream, has ended normally.
            StreamReset: The stream was reset (`ConnectionLost` where the socket died).
            ProtocolError: Headers after the first frame, or over the cap by themselves.
            TypeError, ValueError: The codec cannot encode the payload; nothing is sent and the stream lives on.
        """
        self._link.home.check()
        if self._live.state not in SENDING:
            self._check_sendable()
        self._queue(self._encode(payload), headers, end, None)

    def end(
        self,
        payload: Any = ABSENT,
        *,
        trailers: Mapping[str, Any] | None = None,
        headers: Mapping[str, Any] | None = None,
    ) -> None:
        """End this side. Without a payload it never waits.

        Args:
            payload: A last payload; ABSENT for none.
            trailers: Metadata after the body.
            headers: Only on the answering side's first frame.

        Raises:
            StreamClosed: This side has ended before.
            StreamReset: The stream was reset.
            ProtocolError: Headers after the first frame; headers or trailers over the cap by themselves.
            TypeError, ValueError: The codec cannot encode the payload or the trailers.
        """
        self._check_sendable()
        encoded = None
        if payload is not ABSENT:
            encoded = self._encode(payload)
        self._queue(encoded, headers, True, trailers)

    def reply(
        self,
        payload: Any,
        *,
        trailers: Mapping[str, Any] | None = None,
        headers: Mapping[str, Any] | None = None,
    ) -> None:
        """The only payload of an answer and its end; otherwise as `end`."""
        self.end(payload, trailers=trailers, headers=headers)

    def send_headers(self, headers: Mapping[str, Any]) -> None:
        """Announce this side's leading headers before there is a payload; only as its first frame.

        Raises:
            ProtocolError: This side has sent a frame already.
            StreamClosed, StreamReset: As `send`.
        """
        self._check_sendable()
        self._queue(None, headers, False, None)

    def _check_sendable(self) -> None:
        self._link.home.check()
        if self._live.state in SENDING:
            return
        error = self._inbox.error
        if error is not None:
            raise error.clone()
        raise StreamClosed(f"stream {self.id} has ended on this side; nothing more can be sent on it")

    def _encode(self, payload: Any) -> str | bytes | LongBytes:
        """The encoded form of a payload, once there is room for it."""
        link = self._link
        encoded = link.core.encode(payload) if type(payload) is bytes else link.codec.encode_payload(payload)
        size = len(encoded)
        whole = size <= link.core.small_bytes
        if not link.outlet.takes(self._live, size, whole):
            try:
                link.outlet.wait_for_room(self._live, size, whole, None)
            except BaseException:
                self._cancel_if_live("the sender was interrupted")
                raise
        return encoded

    def _queue(
        self,
        encoded: str | bytes | LongBytes | None,
        headers: Mapping[str, Any] | None,
        end: bool,
        trailers: Mapping[str, Any] | None,
    ) -> None:
        link = self._link
        live = self._live
        answers = not live.answered
        if answers:
            headers = link.hooks.reply_headers(headers, self)
        if headers is not None or trailers is not None:
            headers, trailers = checked_metadata("headers", headers), checked_metadata("trailers", trailers)
        if live.state not in SENDING:
            # It has ended since the call began, in a wait, a hook or a codec.
            self._check_sendable()
        link.core.send(live, encoded, headers, end, trailers)
        if answers:
            self._answer(headers)
        try:
            if end:
                last_queued(link)
            else:
                bell = link.bell
                if bell is None or bell.resting:
                    link.wake_writer()
        finally:
            # Also where the program is interrupted in the middle of a write.
            if live.state is CLOSED:
                self._finish()

    # Ending early

    def cancel(self, reason: str | None = None) -> None:
        """Tell the remote to stop: `reset(CANCELLED)`. Takes the place of what is still queued on this stream.

        Args:
            reason: Text for people; cut to 1,000 bytes.
        """
        self.reset(ResetCode.CANCELLED, reason)

    def reset(self, code: int, reason: str | None = None) -> None:
        """End both directions at once, without waiting; nothing on a closed stream.

        Args:
            code: A `ResetCode` other than CONNECTION_CLOSED.
            reason: Text for people; cut to 1,000 bytes.

        Raises:
            ProtocolError: A code that may not be sent.
            TypeError: A reason that is no str.
        """
        self._link.home.check()
        check_code_and_reason(code, reason)
        self._end_by_reset(code, reason, asked=True)

    def _end_by_reset(self, code: int, reason: str | None, *, asked: bool, payload: Any = ABSENT) -> None:
        live = self._live
        if live.state not in LIVE:
            return
        link = self._link
        link.resets = count_reset(link.resets, code)
        try:
            link.core.reset(live, code, reason, asked=asked, payload=payload)
        finally:
            # Whatever a codec of the application's makes of the frame, nobody waits on this stream any longer.
            link.wake_writer()
            self._fail(error_for_reset(code, reason, stream_id=self.id, payload=None if payload is ABSENT else payload))

    def _cancel_if_live(self, reason: str) -> None:
        self._end_by_reset(ResetCode.CANCELLED, reason, asked=True)

    def __enter__(self) -> Stream:
        """Cancel the stream on leaving if it is still live."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cancel_if_live("left by its user")

    # Receiving

    def result(self, timeout: float | None = None) -> Any:
        """The first payload, as soon as it is there; the same again on each call. What follows it is dropped.

        Args:
            timeout: Seconds to wait; None for ever, 0 not at all.

        Raises:
            StreamTimeout: The time has passed; the remote was told to stop.
            StreamReset: The stream was reset before this was first called, or while it waited.
            ProtocolError: The remote ended without a payload.
            StreamAlreadyConsumed: The stream is being iterated.
        """
        until = self._claim_for("result", timeout)
        if self._first is not ABSENT:
            return self._first
        inbox = self._inbox
        if inbox.error is not None:
            raise inbox.error.clone()
        while True:
            if self._first is not ABSENT:
                return self._first
            if inbox.items:
                self._first = inbox.take()
                inbox.drop()
                return self._first
            self._raise_if_over("ended without a payload")
            if not self._wait(until) and not self._has_news():
                self._expire(timeout)

    def receive(self, timeout: float | None = None) -> Any:
        """The next payload.

        Args:
            timeout: Seconds to wait; None for ever. 0 polls: where nothing has arrived StreamTimeout is raised and
                the stream goes on.

        Raises:
            StreamTimeout: The time has passed; the remote was told to stop (not by a poll).
            StreamClosed: The remote has ended and everything was received.
            StreamReset: The stream was reset; raised after everything that had arrived.
            StreamAlreadyConsumed: `result()` has been called.
        """
        until = self._claim_for("iteration", timeout)
        inbox = self._inbox
        while not inbox.items:
            if inbox.error is not None:
                raise inbox.error.clone()
            if inbox.ended:
                raise StreamClosed(f"stream {self.id} has ended; there are no more payloads")
            if timeout == 0:
                raise StreamTimeout(f"stream {self.id}: no payload has arrived yet", stream_id=self.id)
            if not self._wait(until) and not self._has_news():
                self._expire(timeout)
        return inbox.take()

    def __iter__(self) -> Iterator[Any]:
        """Every payload until the remote ends. Ends by raising where the stream was reset, never as if complete.

        Raises:
            StreamAlreadyConsumed: The stream has been claimed by `result()` or another iteration.
        """
        self._claim_for("iteration", None)
        if self._iterated:
            raise StreamAlreadyConsumed(f"stream {self.id} is being iterated already; two would share its payloads out")
        self._iterated = self._iterating = True
        return Iteration(self)

    def _leave(self) -> None:
        """The iteration was left before its end: nobody will ask for what is here, nor for what would still come."""
        self._iterating = False
        # Also where the remote has ended by now, or a race with its last frame would decide.
        self._cancel_if_live("the iteration was left")
        self._inbox.drop()

    def _collect_one(self, until: float | None, timeout: float | None) -> Any:
        """What `Peer.request` returns: exactly one payload, when the remote has ended."""
        self._claim = "request"
        inbox = self._inbox
        # It takes nothing before the end, for which reading has to go on however much there is.
        inbox.taker = getcurrent()
        while True:
            if len(inbox.items) > 1:
                self._end_by_reset(ResetCode.PROTOCOL_ERROR, "a request takes exactly one payload", asked=True)
                inbox.drop()
                raise ProtocolError(f"stream {self.id}: the remote answered a request with more than one payload")
            if inbox.ended and inbox.items and inbox.error is None:
                payload = inbox.take()
                inbox.taker = None
                return payload
            if inbox.ended or inbox.error is not None:
                self._raise_if_over("was answered without a payload")
            if not self._wait(until) and not (inbox.ended or inbox.error or len(inbox.items) > 1):
                self._expire(timeout)

    def _raise_if_over(self, how: str) -> None:
        inbox = self._inbox
        if inbox.error is not None:
            raise inbox.error.clone()
        if inbox.ended:
            raise ProtocolError(f"stream {self.id} {how}")

    def _claim_for(self, use: str, timeout: float | None) -> float | None:
        """Claim the stream, check the caller and the timeout; return the clock's time at which to give up."""
        self._link.home.check()
        until = None if timeout is None else deadline(self._link.clock, timeout)
        if self._claim != use:
            if self._claim:
                raise StreamAlreadyConsumed(f"stream {self.id} is consumed by {self._claim}; it has one consumer")
            self._claim = use
        return until

    def _wait(self, until: float | None) -> bool:
        """Wait for something to arrive; False where the time came first."""
        try:
            return self._inbox.wait(until)
        except BaseException:
            self._cancel_if_live("the consumer was interrupted")
            raise

    def _wait_closed(self, until: float) -> None:
        """Wait until the stream is closed, or the clock's time `until`."""
        while self.state in LIVE and self._wait(until):
            pass

    def _has_news(self) -> bool:
        inbox = self._inbox
        return bool(inbox.items or inbox.error or inbox.ended)

    def _expire(self, timeout: float | None) -> NoReturn:
        self._end_by_reset(ResetCode.TIMEOUT, f"no answer within {timeout} s", asked=True)
        raise StreamTimeout(f"stream {self.id} was not answered within {timeout} s", stream_id=self.id)

    def _is_unattended(self) -> bool:
        """Whether nobody waits on it, sends on it or iterates it, and it is no `notify`, whose answer nobody wanted."""
        return not (
            self._claim in ("notify", "request")
            or self._iterating
            or self._inbox.waiters
            or self._is_waited_for()
            or self._link.outlet.is_awaited(self._live)
        )

    def _discard_answers(self, use: str) -> None:
        """Nobody will ask for what the remote answers."""
        self._claim = use
        self._inbox.drop()

    # What the connection tells

    def _answer(self, headers: Mapping[str, Any] | None) -> None:
        """The answering side's first frame has been sent or received."""
        self._answer_seen = True
        if headers is not None:
            self.reply_headers = dict(headers)
        if self._replied is not None:
            self._replied.set()

    def _end(self, trailers: dict[str, Any] | None) -> None:
        self.trailers = trailers
        self._inbox.close(None)
        if self._live.state is CLOSED:
            self._finish()

    def _fail(self, error: StreamReset) -> None:
        self._inbox.close(error)
        self._finish()
        if self._handler is not None:
            # Last: one that waits on this very stream gets `error` from there, and is stopped at its next wait.
            self._handler.stop(error)

    def _finish(self) -> None:
        self._live.owner = None
        if self._closed is not None:
            self._closed.set()
        if self._replied is not None:
            self._replied.set()
        self._link.stream_closed(self._live)

    def __del__(self) -> None:
        inbox = self._inbox
        if inbox.items:
            # Nobody can ask for these any more.
            self._link.tidy_up(inbox.drop)
