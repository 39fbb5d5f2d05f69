"""One socket's life: its reader, its writer, and the one way in which everything about it ends.

A `Peer` has one link at a time; a dialer's next socket is a new link. The reader judges what arrives and never writes;
the writer is the only greenlet that writes bytes. Whatever ends either of them, the heartbeat or the socket goes
through `terminate`, which runs once: its body never switches, so that no kill and no timeout can cut it in half.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import gevent
from gevent import getcurrent
from greenlet import GreenletExit, greenlet

from muxws_green.codecs.envelopes import bulk_of, envelopes_of
from muxws_green.errors import ConnectionClosed, ConnectionLost, ResetCode
from muxws_green.interfaces import ITransport
from muxws_green.protocol.connection import Connection, Violation
from muxws_green.protocol.lanes import BATCH_BYTES
from muxws_green.protocol.longbytes import LongBytes
from muxws_green.protocol.streams import LiveStream
from muxws_green.runtime.greenlets import OwnGreenlet
from muxws_green.runtime.guard import forget_frames
from muxws_green.runtime.handlers import StreamHandler
from muxws_green.runtime.heartbeat import Heartbeat
from muxws_green.runtime.home import Home, disown_in_children
from muxws_green.runtime.hooks import Hooks
from muxws_green.runtime.inbound import Inbound
from muxws_green.runtime.inbox import Intake
from muxws_green.runtime.options import Options
from muxws_green.runtime.outlet import Outlet
from muxws_green.runtime.parting import Parting
from muxws_green.runtime.pings import Pings
from muxws_green.runtime.stats import LinkStats
from muxws_green.runtime.stream import Stream
from muxws_green.runtime.waiting import Doorbell, Parking, WaitList

logger = logging.getLogger("muxws.peer")


class Owner(Protocol):
    """What a link needs of its peer."""

    #: The `on_stream` handler, and whether it may be stopped.
    _handler: tuple[StreamHandler, bool] | None

    @property
    def is_dialer(self) -> bool:
        """Whether this end dialled."""

    def _link_ended(self, link: Link) -> None:
        """Everything of the link has been failed and closed. Called once, from within `terminate`; must not switch."""


class Link:
    """One open socket of a peer.

    Args:
        connection_id: Names it in logs and greenlets.
        transport: The socket.
        options: The peer's settings.
        hooks: The peer's observers and interceptors.
        home: Where it may be used.
        owner: The peer.
    """

    __slots__ = (
        "__weakref__",
        "_failing",
        "_nudged",
        "_over",
        "_reader",
        "_served_in",
        "_serving",
        "_watch",
        "_work",
        "_writer",
        "cause",
        "clock",
        "codec",
        "core",
        "heartbeat",
        "home",
        "hooks",
        "id",
        "intake",
        "options",
        "outlet",
        "owner",
        "parking",
        "parting",
        "pings",
        "stats",
        "transport",
    )

    def __init__(
        self,
        connection_id: str,
        transport: ITransport,
        options: Options,
        hooks: Hooks,
        home: Home,
        owner: Owner,
    ) -> None:
        self.id = connection_id
        self.options = options
        self.hooks = hooks
        self.home = home
        self.clock = options.clock
        self.codec = options.codec
        self.transport = transport
        self.parking = Parking(home.hub, options.clock)
        self.intake = Intake(self.parking, options.receive_buffer_bytes, options.receive_pause_timeout, refuse_held)
        self.core = Connection(
            options.codec,
            envelopes_of(options.codec),
            bulk_of(options.codec),
            Inbound(self),
            dialer=owner.is_dialer,
            max_frame_bytes=options.max_frame_bytes,
            max_payload_bytes=options.max_payload_bytes,
            max_concurrent_streams=options.max_concurrent_streams,
            send_buffer_bytes=options.send_buffer_bytes,
        )
        self.outlet = Outlet(self.parking, self.core.lanes)
        self.pings = Pings(self.parking)
        self.stats = LinkStats()
        #: What ended the socket; None while it lives.
        self.cause: ConnectionClosed | None = None
        self.owner = owner
        self._reader: OwnGreenlet | None = None
        self._served_in: greenlet | None = None
        self._serving = False
        self._writer: OwnGreenlet | None = None
        self._work = Doorbell(home.hub)
        self._over = WaitList(self.parking)
        self._nudged = False
        self.parting = Parting(self)
        self._failing = False
        self.heartbeat = Heartbeat(self, options.heartbeat) if options.heartbeat is not None else None
        self.parking.on_park = self.start_reading
        self._watch = options.clock.watch(transport.unacknowledged)
        transport.attach(self._nudge)
        disown_in_children(self)

    def __repr__(self) -> str:
        return f"<Link {self.id} {'open' if self.cause is None else repr(self.cause)}>"

    @property
    def is_alive(self) -> bool:
        """Whether the socket is open and nothing has gone wrong on it."""
        return self.cause is None and not self._failing

    @property
    def last_round_trip(self) -> float | None:
        """Seconds of the last answered ping of anybody's; None before the first."""
        if self.pings.last_round_trip is None and self.heartbeat is not None:
            return self.heartbeat.last_round_trip
        return self.pings.last_round_trip

    def counts(self) -> LinkStats:
        """What has been counted up to now."""
        stats = self.stats
        stats.bytes_sent = self.transport.sent_bytes
        stats.bytes_received = self.transport.received_bytes
        stats.late_frames = self.core.late_frames
        return stats

    # Reading

    def start_reading(self) -> None:
        """Have a greenlet of ours read, unless somebody does already."""
        if self._serving or self.cause is not None or not self.home.here:
            return
        self._serving = True
        self.parking.on_park = None
        self._reader = self.begin("reader", self._read)
        self._start_heartbeat()

    def serve(self) -> None:
        """Be the reader, or wait for the one there is, until the socket is gone and all its greenlets with it."""
        if self._serving:
            self.wait_until_over()
        elif self.cause is None:
            self._serving = True
            self.parking.on_park = None
            self._start_heartbeat()
            self._served_in = getcurrent()
            try:
                self._read()
            finally:
                self._served_in = None
            # After a broken WebSocket rule there is nothing to read while the farewell leaves.
            self.wait_until_over()
        for own in (self._reader, self._writer):
            if own is not None and own is not getcurrent():
                own.join()

    def runs_in(self, current: greenlet) -> bool:
        """Whether that greenlet must not wait for the end of the connection: its reader, its writer, the hub."""
        return current in (self._reader, self._writer, self._served_in, self.parking.hub)

    def tidy_up(self, call: Callable[[], object]) -> None:
        """Run `call()`, which must not switch, for the garbage collector, which runs in any thread and any greenlet.

        The reader and the writer may be in the middle of changing what it is to change, so there it comes a turn later.
        """
        if sys.is_finalizing():
            # No greenlet runs any more.
            return  # pragma: no cover - what measures has ended before
        if self.runs_in(getcurrent()):
            self.parking.hub.loop.run_callback(call)
        else:
            self.home.run_here(call)

    def begin(self, job: str, run: Callable[..., None], *arguments: Any) -> OwnGreenlet:
        """Start one of the connection's greenlets."""
        own = OwnGreenlet(f"{job} {self.id}", run, *arguments)
        own.rawlink(self.left)
        own.start()
        return own

    def left(self, own: OwnGreenlet) -> None:
        """One of the connection's greenlets has ended. One that was killed before it ran had no chance to say so."""
        if self.is_alive and self.parting.cause is None:
            self.crashed(own.name.partition(" ")[0], GreenletExit("killed before it ran"))

    def wait_until_over(self, until: float | None = None) -> None:
        """Wait until the socket is gone, or for the clock's time `until`."""
        while self.cause is None and self._over.wait(until):
            pass

    def _start_heartbeat(self) -> None:
        if self.heartbeat is not None:
            self.heartbeat.start()

    def _read(self) -> None:
        try:
            self._read_on()
        except ConnectionClosed as closed:
            self._read_ended(closed)
        except BaseException as error:
            # Whoever killed the reader, or whatever fault of ours this is: the connection must not outlive it in
            # silence.
            served = self._served_in is not None
            self.crashed("reader", error, tell=not served)
            if served or not isinstance(error, Exception):
                # What is thrown into the caller of `serve` comes out of it.
                raise

    def _read_on(self) -> None:
        transport, core, stats, intake, heartbeat = self.transport, self.core, self.stats, self.intake, self.heartbeat
        while True:
            messages = transport.receive()
            if self.cause is not None:
                return
            if heartbeat is not None:
                heartbeat.received()
            if self._failing:
                continue
            stats.frames_received += len(messages)
            core.observer = self._show_received if self.hooks.watching else None
            try:
                for message in messages:
                    core.receive(message)
                    if self._failing:
                        break
            except Violation as violation:
                self._violated(violation)
                continue
            # Nothing of it is kept while the remote is silent.
            del messages
            if intake.held_bytes > intake.soft_bytes:
                intake.pause()
                if heartbeat is not None:
                    heartbeat.resumed()

    def _read_ended(self, closed: ConnectionClosed) -> None:
        """The transport has nothing more: the remote closed, the socket died, or a WebSocket rule was broken."""
        if closed.code in (1002, 1007, 1009) and self.transport.violated:
            self.fail(closed, closed.code, closed.reason)
        else:
            self.terminate(closed)

    def _violated(self, violation: Violation) -> None:
        code = violation.close_code
        self.fail(ConnectionClosed(violation.reason, code=code, reason=violation.reason), code, violation.reason)
        logger.warning("muxws conn=%s connection-level protocol error: %s", self.id, violation.reason)

    # Writing

    def wake_writer(self) -> None:
        """Something has been queued."""
        if self._work.resting:
            self._work.ring()
        elif self._writer is None and self.cause is None:
            self._writer = self.begin("writer", self._write)

    @property
    def writer_rests(self) -> bool:
        """Whether the writer has written all there was."""
        return self._work.resting

    def _nudge(self) -> None:
        """The transport has something of its own to write."""
        self._nudged = True
        self.wake_writer()

    def _write(self) -> None:
        try:
            self._write_on()
        except ConnectionClosed as closed:
            self.terminate(closed)
        except BaseException as error:
            # As for the reader: one of two loops must not end alone.
            self.crashed("writer", error)
            if not isinstance(error, Exception):
                raise

    def _write_on(self) -> None:
        transport, core, outlet, stats = self.transport, self.core, self.outlet, self.stats
        binary, heartbeat, parting = self.codec.binary, self.heartbeat, self.parting
        yielded_at = transport.sent_bytes
        while self.cause is None:
            batch = core.take_batch()
            if batch or self._nudged:
                self._nudged = False
                if batch and self.hooks.watching:
                    self.hooks.sent(self.id, batch, core.envelopes, binary)
                transport.send(batch, binary)
                stats.frames_sent += len(batch)
                if heartbeat is not None and batch:
                    heartbeat.sent(len(batch))
                outlet.batch_left()
                if transport.sent_bytes - yielded_at >= BATCH_BYTES:
                    # A remote that reads as fast as this writes would leave no turn to anybody else.
                    yielded_at = transport.sent_bytes
                    gevent.sleep(0)
            elif parting.farewell_due:
                parting.say_farewell(transport)
            else:
                parting.progress.wake()
                self._work.rest()

    def crashed(self, who: str, error: BaseException, *, tell: bool = True) -> None:
        """One of the connection's greenlets was killed or has failed: the others must not go on without it.

        Args:
            who: Its job.
            error: What ended it.
            tell: Whether an error is to be logged, as nobody else hears of it.
        """
        text = f"the {who} ended with {type(error).__name__}"
        closed = ConnectionClosed(text, code=1011, reason=text)
        closed.__cause__ = error
        self.terminate(closed, abort_code=1011)
        if tell and isinstance(error, Exception):
            logger.error("muxws conn=%s %s", self.id, text, exc_info=error)

    def _show_received(self, envelope: Mapping[str, Any], size: int) -> None:
        self.hooks.frame(self.id, "rx", envelope, size)

    # Opening

    def open(
        self,
        encoded: str | bytes | LongBytes,
        payload: Any,
        headers: Mapping[str, Any] | None,
        end: bool,
        *,
        first: bool = False,
    ) -> Stream:
        """Open a stream for which there is room; see `Connection.open`."""
        live = self.core.open(encoded, headers, end, first=first)
        stream = Stream(self, live, headers, payload)
        live.owner = stream
        self.stats.streams_opened += 1
        self.wake_writer()
        return stream

    # Ending

    def terminate(self, cause: ConnectionClosed, abort_code: int | None = None) -> None:
        """The socket is over. Runs once and never switches.

        Args:
            cause: Why; gives way to a parting that had begun before.
            abort_code: A close frame to try once, without waiting.
        """
        if self.cause is not None:
            return
        self.cause = cause = self.parting.cause or cause
        forget_frames(cause)
        self._failing = True
        self._fail_streams(cause)
        self.pings.fail(cause)
        self.outlet.close()
        self.intake.close()
        if self.heartbeat is not None:
            self.heartbeat.stop()
        failure = None
        try:
            self.transport.abort(abort_code)
        except Exception as error:  # a transport of somebody else's must not keep the rest from ending
            failure = error
        self._work.ring()
        self.parting.progress.wake()
        self._over.wake()
        self._watch.cancel()
        self.owner._link_ended(self)
        if failure is not None:
            logger.error("muxws conn=%s the transport could not be aborted", self.id, exc_info=failure)

    def disown(self) -> None:
        """In a forked child: the socket and all of this are the parent's."""
        if self.cause is not None:
            return
        self.cause = ConnectionClosed("this process was forked from the one that owns the connection")
        self._failing = True
        self.core.die()
        self._watch.cancel()
        if self.heartbeat is not None:
            self.heartbeat.stop()
        self.transport.disown()

    def _fail_streams(self, cause: ConnectionClosed) -> None:
        for live in self.core.die():
            stream: Stream = live.owner
            error = ConnectionLost(f"connection closed: {cause}", stream_id=live.id)
            error.__cause__ = cause
            stream._fail(error)

    def fail(self, cause: ConnectionClosed, code: int, reason: str) -> None:
        """End the connection for a fault: streams fail at once; goaway and close frame get a second to leave.

        Args:
            cause: What is reported.
            code: Of the close frame.
            reason: Of goaway and close frame.
        """
        if not self.is_alive:
            return
        self._failing = True
        self._fail_streams(cause)
        self.pings.fail(cause)
        self.outlet.close()
        self.intake.close()
        self.parting.begin_for_fault(cause, code, reason)

    def stream_closed(self, live: LiveStream) -> None:
        """A stream has closed: a drain or a sender may have waited for that."""
        self.parting.progress.wake()
        self.outlet.stream_closed(live)

    def handler_ended(self, live: LiveStream) -> None:
        """The handler of a stream has ended."""
        self.core.handler_ended(live)


def refuse_held(live: LiveStream, reason: str) -> None:
    """End a stream for the bytes that it holds, unless it has ended by itself."""
    stream: Stream | None = live.owner
    if stream is not None:
        stream._end_by_reset(ResetCode.CANCELLED, reason, asked=True)
