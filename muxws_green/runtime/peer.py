"""`Peer`: one end of a connection, as an application uses it. Both ends are of this type (PROTOCOL §1)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from gevent import getcurrent
from zope.interface import implementer

from muxws_green.errors import (
    ConnectionClosed,
    ConnectionLost,
    ResetCode,
    StreamTimeout,
)
from muxws_green.interfaces import IPeer, ITransport
from muxws_green.protocol.longbytes import LongBytes
from muxws_green.protocol.sending import MAX_STREAM_ID
from muxws_green.runtime.checks import check_code_and_reason
from muxws_green.runtime.closing import CloseReason
from muxws_green.runtime.greenlets import OwnGreenlet
from muxws_green.runtime.guard import guarded
from muxws_green.runtime.home import disown_in_children, home
from muxws_green.runtime.hooks import Hooks
from muxws_green.runtime.identity import new_connection_id
from muxws_green.runtime.link import Link
from muxws_green.runtime.options import Options, checked_seconds, deadline
from muxws_green.runtime.registration import Registrations
from muxws_green.runtime.stats import LinkStats, Stats, figures
from muxws_green.runtime.stream import Stream

if TYPE_CHECKING:
    from muxws_green.runtime.supervisor import Supervisor

logger = logging.getLogger("muxws.peer")

T = TypeVar("T")
H = TypeVar("H", bound=Callable[..., Any])


@implementer(IPeer)
class Peer(Registrations):
    """One end of a connection. `connect` and `accept` make peers; applications do not.

    A peer belongs to the hub and the process that made it. As a context manager it closes on leaving: own streams that
    nobody waits for are cancelled and the rest drained; after an exception nothing is waited for. In `gevent.wait` it
    is ready once it `is_closed`.

    Attributes:
        id: Names the present socket in logs, such as `a3f-17`; each socket has a new one.
        close_cause: The exception that ended the last socket; None while the first one lives.
    """

    def __init__(self, options: Options, *, dialer: bool, enrol: Callable[[Any], object] = disown_in_children) -> None:
        super().__init__()
        self.close_cause: ConnectionClosed | None = None
        self._options = options
        self._dialer = dialer
        self._home = home()
        self._link: Link | None = None
        self._fresh_id = True
        self._served: Link | None = None
        self._established = False
        self._closing = False
        self._forgetting: tuple[Callable[[Peer], object], ...] = ()
        self._supervisor: Supervisor | None = None
        self._finish: Callable[[], Any] = list
        #: What sockets have counted that are gone; None before there was one.
        self._past: LinkStats | None = None
        enrol(self)

    def __repr__(self) -> str:
        role = "dialer" if self._dialer else "acceptor"
        state = "open" if self.is_open else "closed" if self.is_closed else "between sockets"
        return f"<Peer {self.id} {role} {state}>"

    # What it is

    @property
    def is_open(self) -> bool:
        """Whether the socket is open and, where a hello is configured, the hello acknowledged."""
        link = self._link
        return self._established and link is not None and link.is_alive

    @property
    def is_closed(self) -> bool:
        """Whether it is over for good: the `on_close` with `will_retry=False` has been reported."""
        return self._final is not None

    @property
    def is_dialer(self) -> bool:
        """Whether this end dialled; it opens odd stream ids then."""
        return self._dialer

    @property
    def streams(self) -> Mapping[int, Stream]:
        """The live streams by id, as they are now; read-only."""
        link = self._link
        if link is None:
            return MappingProxyType({})
        return MappingProxyType({live.id: live.owner for live in link.core.streams.values()})

    @property
    def supervisor(self) -> Supervisor | None:
        """A dialer's reconnect schedule: `state`, `attempt`, `next_delay`, `last_error`. None for an acceptor."""
        return self._supervisor

    @property
    def stats(self) -> Stats:
        """The figures of this moment."""
        return figures(self._link, self._past, 0 if self._supervisor is None else self._supervisor.reconnects)

    def rawlink(self, callback: Callable[[Any], object]) -> None:
        """Call `callback(self)` in the hub once it `is_closed`; soon, where it is already."""
        if self._link is not None:
            # Somebody is about to wait, and without a reader nothing would ever end.
            self._link.start_reading()
        super().rawlink(callback)

    # Streams

    def open(
        self,
        payload: Any = None,
        *,
        headers: Mapping[str, Any] | None = None,
        end: bool = False,
        wait: bool = True,
    ) -> Stream:
        """Open a stream with its first payload.

        Args:
            payload: Whatever the codec can encode; None is sent as `null`.
            headers: Metadata with str keys.
            end: Whether this side sends nothing more.
            wait: Whether to wait for room in the send buffer, which is done before an id is taken.

        Raises:
            ConnectionLost: There is no established connection.
            ConnectionGoingAway: Either side is going away.
            BlockingIOError: There is no room and `wait` is False.
            ProtocolError: The headers alone are over the cap.
            TypeError, ValueError: The codec cannot encode the payload or the headers.
        """
        return self._open(payload, headers, end, wait, None, None)

    def _open(
        self,
        payload: Any,
        headers: Mapping[str, Any] | None,
        end: bool,
        wait: bool,
        until: float | None,
        timeout: float | None,
    ) -> Stream:
        link = self._usable_link()
        sent_headers = self._hooks.open_headers(headers, payload)
        encoded = link.core.encode(payload)
        return self._open_encoded(link, encoded, payload, sent_headers, end, wait, until, timeout)

    def _open_encoded(
        self,
        link: Link,
        encoded: str | bytes | LongBytes,
        payload: Any,
        headers: dict[str, Any] | None,
        end: bool,
        wait: bool,
        until: float | None,
        timeout: float | None,
    ) -> Stream:
        core = link.core
        size = len(encoded)
        whole = size <= core.small_bytes
        if not wait:
            if not core.lanes.has_room(None, size, whole):
                raise BlockingIOError(f"no room for {size} bytes: {core.lanes.queued_bytes} bytes wait to be sent")
        elif not link.outlet.wait_for_room(None, size, whole, until):
            raise StreamTimeout(f"no room in the send buffer within {timeout} s")
        if self._link is not link or link.failing:
            raise self._lost()
        stream = link.open(encoded, payload, headers, end)
        if stream.id > MAX_STREAM_ID - 2:
            # That was the last one.
            link.parting.retire()
        return stream

    def _usable_link(self) -> Link:
        """The established connection.

        Raises:
            ConnectionLost: There is none.
        """
        self._home.check()
        link = self._link
        if link is None or not self._established or link.failing:
            raise self._lost()
        return link

    def _lost(self) -> ConnectionLost:
        what = (
            "the peer is closed" if self.is_closed else "the peer is between sockets; nothing is kept for the next one"
        )
        error = ConnectionLost(what)
        error.__cause__ = self.close_cause
        return error

    def notify(self, payload: Any = None, *, headers: Mapping[str, Any] | None = None, wait: bool = True) -> None:
        """Send one payload of which no answer is wanted; whatever the remote answers is discarded.

        Args:
            payload: Whatever the codec can encode.
            headers: Metadata with str keys.
            wait: As in `open`.

        Raises:
            MuxwsError, BlockingIOError, TypeError, ValueError: As `open`.
        """
        self._open(payload, headers, True, wait, None, None)._discard_answers("notify")

    def request(
        self, payload: Any = None, *, headers: Mapping[str, Any] | None = None, timeout: float | None = None
    ) -> Any:
        """Send one payload and wait for the end of the answer, which must be exactly one payload.

        Args:
            payload: Whatever the codec can encode.
            headers: Metadata with str keys.
            timeout: Seconds for everything, the wait for room included; None for ever.

        Returns:
            The payload of the answer.

        Raises:
            StreamTimeout: The time has passed; the remote was told to stop.
            RemoteError: The remote's handler raised.
            StreamRefused: The remote did not take it; it may be tried again.
            StreamReset: The remote ended it otherwise (`ConnectionLost` where the socket died).
            ProtocolError: The answer was no payload, or more than one.
            MuxwsError, TypeError, ValueError: As `open`.
        """
        until = None if timeout is None else deadline(self._options.clock, timeout)
        stream = self._open(payload, headers, True, True, until, timeout)
        return stream._collect_one(until, timeout)

    def _notify_encoded(self, encoded: str | bytes, payload: Any, headers: Mapping[str, Any] | None) -> None:
        """`notify(wait=False)` of a payload that somebody has encoded already with this peer's codec."""
        link = self._usable_link()
        sent_headers = self._hooks.open_headers(headers, payload)
        self._open_encoded(link, encoded, payload, sent_headers, True, False, None, None)._discard_answers("notify")

    # The connection

    def ping(self, timeout: float = 5.0) -> float:
        """Measure a round trip.

        Args:
            timeout: Seconds to wait.

        Returns:
            Seconds from queuing the ping to its pong.

        Raises:
            ConnectionClosed: No pong came in time (1006; the connection is left alone), or the connection ended.
            ConnectionLost: There is no socket.
        """
        self._home.check()
        checked_seconds("timeout", timeout)
        link = self._link
        if link is None or not link.is_alive:
            raise self._lost()
        nonce = link.pings.begin()
        link.core.ping(nonce)
        link.wake_writer()
        return link.pings.wait(nonce, timeout)

    def serve(self) -> Any:
        """Wait until the connection is over; in an acceptor, be its reader meanwhile.

        Returns:
            In an acceptor the WSGI body that the host needs: `return peer.serve()`. In a dialer None, once it
            `is_closed`.
        """
        self._home.check()
        if self._dialer:
            self._done_event().wait()
            return None
        served, self._served = self._served, None
        if served is not None:
            served.serve()
        self._done_event().wait()
        finish, self._finish = self._finish, list
        return finish()

    def _serve_detached(self) -> None:
        """Serve in a greenlet of our own: the request that brought the socket is about to end."""
        if self._link is not None:
            self._link.start_reading()

    def close(self, code: int = ResetCode.NO_ERROR, reason: str | None = None, drain: float = 10.0) -> None:
        """Send goaway, let streams and queued frames finish, close the socket with 1000, and dial no more.

        Returns when that is done; at once where it is called from a callback of this peer, and goes on in the
        background. A stream whose handler is the caller is not waited for, and that handler is not stopped. Calling it
        again waits for the first.

        Args:
            code: The code of the goaway.
            reason: Text for people, in goaway, close frame and `on_close`.
            drain: Seconds that streams and frames may take; 0 for none.

        Raises:
            ValueError: `drain` is negative or NaN.
            ProtocolError: A code that may not be sent.
            TypeError: A reason that is no str.
        """
        self._close(ws_code=1000, reason=reason, drain=drain, code=code)

    def _close(self, *, ws_code: int, reason: str | None, drain: float, code: int = ResetCode.NO_ERROR) -> None:
        self._home.check()
        check_code_and_reason(code, reason)
        drain = checked_seconds("drain", drain) or 0.0
        self._closing = True
        if self._supervisor is not None:
            self._supervisor.stop()
        link = self._link
        if self._in_callback or (link is not None and link.runs_in(getcurrent())):
            OwnGreenlet(f"closer {self.id}", Peer._close_link, self, ws_code, reason, drain, code).start()
        else:
            self._close_link(ws_code, reason, drain, code)

    def _close_link(self, ws_code: int, reason: str | None, drain: float, code: int) -> None:
        link = self._link
        if link is not None:
            link.parting.close(code, reason, drain if self._established else 0.0, ws_code)
        self._report_close(CloseReason(ws_code, reason or "", ws_code == 1000, False))

    def _abandon(self) -> None:
        """End everything without waiting, and tell nobody: `connect` is about to raise. Never switches."""
        self._closing = True
        self._close_callbacks = ()
        assert self._supervisor is not None
        self._supervisor.stop()
        if self._link is not None:
            self._link.terminate(ConnectionClosed("closed here", code=1000, was_clean=True), abort_code=1000)
        self._report_close(CloseReason(1000, "", True, False))

    def reconnect_now(self) -> bool:
        """End a wait between two attempts of a dialer early.

        Returns:
            Whether there was one.
        """
        self._home.check()
        return self._supervisor is not None and self._supervisor.hurry()

    def run_threadsafe(self, function: Callable[[], T]) -> Future[T]:
        """Run `function()` in a greenlet of this peer's hub; the one method that other threads may call.

        Returns:
            A future; its `result()` blocks the calling thread.
        """
        return self._home.run_threadsafe(function)

    def __enter__(self) -> Peer:
        """Close the peer on leaving."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._home.forked:
            # A child that leaves on its own way has nothing of its parent's to close.
            return
        if error is not None:
            self.close(drain=0.0)
            return
        for stream in self.streams.values():
            if stream.local and stream._is_unattended():
                stream.cancel("the peer is closing")
        self.close()

    # What links and the supervisor tell

    def _attach(self, transport: ITransport) -> Link:
        """Make a link of an open socket; it is the present one from now on."""
        if not self._fresh_id:
            self.id = new_connection_id()
        self._fresh_id = False
        link = Link(
            self.id,
            transport,
            self._options,
            self._hooks,
            self._home,
            owner=self,
        )
        self._link = link
        if not self._dialer:
            self._served = link
            self._established = True
        return link

    def _own_hooks(self) -> Hooks:
        hooks = super()._own_hooks()
        if self._link is not None:
            self._link.hooks = hooks
        return hooks

    def disown(self) -> None:
        """In a forked child: let go of the parent's socket and dial no more. Not for applications."""
        if self._supervisor is not None:
            self._supervisor.disown()
        if self._link is not None:
            self._link.disown()

    def _link_ended(self, link: Link) -> None:
        """From within `Link.terminate`: never switches."""
        self._established = False
        counts = link.counts()
        if self._past is not None:
            counts.add(self._past)
        self._past = counts
        self._link = None
        cause = link.cause
        assert cause is not None
        self.close_cause = cause
        forgetting, self._forgetting = self._forgetting, ()
        supervisor = self._supervisor
        if supervisor is not None:
            supervisor.link_ended()
        if supervisor is None or supervisor.reports_losses:
            will_retry = not self._closing and supervisor is not None and supervisor.will_retry()
            self._report_close(CloseReason(cause.code, cause.reason, cause.was_clean, will_retry))
        for forget in forgetting:
            guarded(lambda forget=forget: forget(self), "muxws conn=%s the end could not be told", self.id)  # type: ignore[misc]

    def _on_loss(self, forget: Callable[[Peer], object]) -> None:
        """Call `forget(self)` at the end of the present socket, from within `Link.terminate`: it must not switch."""
        if forget not in self._forgetting:
            self._forgetting += (forget,)
