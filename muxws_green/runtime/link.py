"""One socket's life: its reader, its writer, and the one way in which everything about it ends.

A `Peer` has one link at a time; a dialer's next socket is a new link. What its reader and its writer do is in `loops`.
Whatever ends either of them, the heartbeat or the socket goes through `terminate`, which runs once: its body never
switches, so that no kill and no timeout can cut it in half.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from gevent import getcurrent
from greenlet import GreenletExit, greenlet

from muxws_green.errors import ConnectionClosed, ConnectionLost
from muxws_green.interfaces import ITransport
from muxws_green.protocol.connection import Connection
from muxws_green.protocol.longbytes import LongBytes
from muxws_green.protocol.streams import LiveStream
from muxws_green.runtime.greenlets import OwnGreenlet
from muxws_green.runtime.guard import forget_frames
from muxws_green.runtime.handlers import StreamHandler
from muxws_green.runtime.heartbeat import Heartbeat
from muxws_green.runtime.home import Home
from muxws_green.runtime.hooks import Hooks
from muxws_green.runtime.inbound import Inbound
from muxws_green.runtime.loops import last_queued, read, write
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

    #: The `on_stream` handler, and whether one whose stream ends is stopped.
    _handler: StreamHandler | None
    _stops_handler: bool

    def _own_hooks(self) -> Hooks:
        """Hooks that are the peer's own."""

    @property
    def is_dialer(self) -> bool:
        """Whether this end dialled."""

    def _link_ended(self, link: Link) -> None:
        """Everything of the link has been failed and closed. Called once, from within `terminate`; must not switch."""


class Link(Parking):
    """One open socket of a peer.

    It is itself what the waits on it share, and its intake is the sink of its machine: each object less counts, as the
    garbage collector looks at all that idle connections have.

    Args:
        connection_id: Names it in logs and greenlets.
        transport: The socket.
        options: The peer's settings.
        hooks: The peer's observers and interceptors. A peer that comes by its own while it is connected sets `hooks`.
        home: Where it may be used.
        owner: The peer.
    """

    __slots__ = (
        "__weakref__",
        "_over",
        "_parting",
        "_pings",
        "_reader",
        "_served_in",
        "_serving",
        "_watch",
        "_writer",
        "bell",
        "cause",
        "codec",
        "core",
        "failing",
        "frames_received",
        "frames_sent",
        "heartbeat",
        "home",
        "hooks",
        "id",
        "intake",
        "nudged",
        "options",
        "outlet",
        "owner",
        "resets",
        "streams_accepted",
        "streams_opened",
        "transport",
        "writes_at_once",
        "wrote_at",
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
        super().__init__(home.hub, options.clock)
        self.id = connection_id
        self.options = options
        self.hooks = hooks
        self.home = home
        self.codec = options.codec
        self.transport = transport
        self.intake = Inbound(self)
        self.outlet = Outlet(self, options.send_buffer_bytes)
        self.core = Connection(
            options.codec,
            options.envelopes,
            options.bulk,
            self.intake,
            self.outlet,
            dialer=owner.is_dialer,
            max_frame_bytes=options.max_frame_bytes,
            max_payload_bytes=options.max_payload_bytes,
            max_concurrent_streams=options.max_concurrent_streams,
        )
        # Counted here rather than in an object of their own, as each object is one more for the garbage collector.
        self.frames_sent = self.frames_received = self.streams_opened = self.streams_accepted = 0
        #: By code, as in `LinkStats`; None before the first.
        self.resets: dict[int, int] | None = None
        #: What ended the socket; None while it lives.
        self.cause: ConnectionClosed | None = None
        self.owner = owner
        self._reader: OwnGreenlet | None = None
        self._served_in: greenlet | None = None
        self._serving = False
        self._writer: OwnGreenlet | None = None
        #: `Turns.waits` when a frame left without the writer.
        self.wrote_at = -1
        #: Whether somebody other than the writer is taking what is queued, at this moment.
        self.writes_at_once = False
        # What an idle connection does without, and most never need, is made when somebody needs it.
        #: Where the writer rests; None before there is one.
        self.bell: Doorbell | None = None
        self._over: WaitList | None = None
        self._parting: Parting | None = None
        self._pings: Pings | None = None
        #: The transport has something of its own to write.
        self.nudged = False
        #: The remote broke a rule, or it is over: nothing that arrives matters any more.
        self.failing = False
        self.heartbeat = Heartbeat(self, options.heartbeat) if options.heartbeat is not None else None
        self.on_park = self.start_reading
        self._watch = options.clock.watch(transport.unacknowledged)
        transport.attach(self._nudge)

    def __repr__(self) -> str:
        return f"<Link {self.id} {'open' if self.cause is None else repr(self.cause)}>"

    @property
    def serves_caller(self) -> bool:
        """Whether its reader is whoever has called `serve`."""
        return self._served_in is not None

    @property
    def is_alive(self) -> bool:
        """Whether the socket is open and nothing has gone wrong on it."""
        return not self.failing

    @property
    def last_round_trip(self) -> float | None:
        """Seconds of the last answered ping of anybody's; None before the first."""
        asked_for = None if self._pings is None else self._pings.last_round_trip
        return self.heartbeat.last_round_trip if asked_for is None and self.heartbeat is not None else asked_for

    @property
    def parting(self) -> Parting:
        """How it ends in words."""
        self._parting = self._parting or Parting(self)
        return self._parting

    @property
    def pings(self) -> Pings:
        """The pings that somebody has asked for."""
        self._pings = self._pings or Pings(self)
        return self._pings

    def counts(self) -> LinkStats:
        """What has been counted up to now."""
        return LinkStats(
            frames_sent=self.frames_sent,
            frames_received=self.frames_received,
            bytes_sent=self.transport.sent_bytes,
            bytes_received=self.transport.received_bytes,
            late_frames=self.core.late_frames,
            streams_opened=self.streams_opened,
            streams_accepted=self.streams_accepted,
            resets=dict(self.resets or {}),
        )

    # Its greenlets

    def start_reading(self) -> None:
        """Have a greenlet of ours read, unless somebody does already."""
        if self._serving or self.cause is not None or not self.home.here:
            return
        self._serving = True
        self.on_park = None
        self._reader = self.begin("reader", read, self)
        self._start_heartbeat()

    def serve(self) -> None:
        """Be the reader, or wait for the one there is, until the socket is gone and all its greenlets with it."""
        if self._serving:
            self.wait_until_over()
        elif self.cause is None:
            self._serving = True
            self.on_park = None
            self._start_heartbeat()
            self._served_in = getcurrent()
            try:
                read(self)
            finally:
                self._served_in = None
            # After a broken WebSocket rule there is nothing to read while the farewell leaves.
            self.wait_until_over()
        for own in (self._reader, self._writer):
            if own is not None and own is not getcurrent():
                own.join()

    def runs_in(self, current: greenlet) -> bool:
        """Whether that greenlet must not wait for the end of the connection: its reader, its writer, the hub."""
        return current in (self._reader, self._writer, self._served_in, self.hub)

    def tidy_up(self, call: Callable[[], object]) -> None:
        """Run `call()`, which must not switch, for the garbage collector, which runs in any thread and any greenlet.

        The reader and whoever writes may be in the middle of changing what it is to change: then it comes a turn later.
        """
        if sys.is_finalizing():
            # No greenlet runs any more.
            return  # pragma: no cover - what measures has ended before
        if self.writes_at_once or self.runs_in(getcurrent()):
            self.hub.loop.run_callback(call)
        else:
            self.home.run_here(call)

    def begin(self, job: str, function: Callable[..., None], of: object, *arguments: Any) -> OwnGreenlet:
        """Start one of the connection's greenlets, for `function(of, *arguments)`."""
        own = OwnGreenlet(f"{job} {self.id}", function, of, *arguments)
        own.connection = self
        own.rawlink(_left)
        own.start()
        return own

    def _lost_one(self, own: OwnGreenlet) -> None:
        """One of the connection's greenlets has ended. One that was killed before it ran had no chance to say so."""
        if self.is_alive and (self._parting is None or self._parting.cause is None):
            self.crashed(own.name.partition(" ")[0], GreenletExit("killed before it ran"))

    def wait_until_over(self, until: float | None = None) -> None:
        """Wait until the socket is gone, or for the clock's time `until`."""
        over = self._over = self._over or WaitList(self)
        while self.cause is None and over.wait(until):
            pass

    def _start_heartbeat(self) -> None:
        if self.heartbeat is not None:
            self.heartbeat.start()

    def wake_writer(self) -> None:
        """Something has been queued."""
        work = self.bell
        if work is not None:
            if work.resting:
                work.ring()
        elif self.cause is None:
            bell = Doorbell(self.home.hub)
            # The collector may have run, and let go of a stream that had something to say.
            if self.bell is None:
                self.bell = bell
                self._writer = self.begin("writer", write, self, bell)

    @property
    def writer_rests(self) -> bool:
        """Whether the writer has written all there was."""
        return self.bell is None or self.bell.resting

    def _nudge(self) -> None:
        """The transport has something of its own to write."""
        self.nudged = True
        self.wake_writer()

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

    def show_received(self, envelope: Mapping[str, Any], size: int) -> None:
        """Show a frame of the remote's to whoever watches."""
        self.hooks.frame(self.id, "rx", envelope, size)

    def say_farewell(self) -> bool:
        """Write the close frame that a parting has announced, for the writer. False where none is due."""
        if self._parting is None or not self._parting.farewell_due:
            return False
        self._parting.say_farewell(self.transport)
        return True

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
        self.streams_opened += 1
        if end:
            last_queued(self)
        else:
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
        self.cause = cause = (self._parting and self._parting.cause) or cause
        forget_frames(cause)
        self.failing = True
        self._fail_streams(cause)
        if self._pings is not None:
            self._pings.fail(cause)
        self.outlet.close()
        self.intake.close()
        if self.heartbeat is not None:
            self.heartbeat.ring()
        failure = None
        try:
            self.transport.abort(abort_code)
        except Exception as error:  # a transport of somebody else's must not keep the rest from ending
            failure = error
        if self.bell is not None:
            self.bell.ring()
        self.show_progress()
        if self._over is not None:
            self._over.wake()
        self._watch.cancel()
        self.owner._link_ended(self)
        if failure is not None:
            logger.error("muxws conn=%s the transport could not be aborted", self.id, exc_info=failure)

    def disown(self) -> None:
        """In a forked child: the socket and all of this are the parent's."""
        self.cause = ConnectionClosed("this process was forked from the one that owns the connection")
        self.failing = True
        self.core.die()
        self._watch.cancel()
        if self.heartbeat is not None:
            self.heartbeat.ring()
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
        self.failing = True
        self._fail_streams(cause)
        if self._pings is not None:
            self._pings.fail(cause)
        self.outlet.close()
        self.intake.close()
        self.parting.begin_for_fault(cause, code, reason)

    def stream_closed(self, live: LiveStream) -> None:
        """A stream has closed: a drain or a sender may have waited for that."""
        if self._parting is not None:
            self._parting.progress.wake()
        self.outlet.stream_closed(live)

    def show_progress(self) -> None:
        """Something that a parting may wait for has happened."""
        if self._parting is not None:
            self._parting.progress.wake()


def _left(own: OwnGreenlet) -> None:
    """Called when a greenlet has ended. A function, as a bound method would be one more object for each of them."""
    link = own.connection
    del own.connection
    link._lost_one(own)
