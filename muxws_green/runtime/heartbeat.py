"""The heartbeat greenlet of one connection: tells a policy what passes, queues its pings, declares death.

The arithmetic is the policy's (`protocol.liveness`). It never writes, never waits for a write, and kills nobody: a
death is handed to `Link.terminate` like any other end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gevent.hub import Hub, Waiter

from muxws_green.errors import HeartbeatTimeoutError
from muxws_green.interfaces import IHeartbeat, IHeartbeatPolicy
from muxws_green.protocol.liveness import Outflow
from muxws_green.runtime.greenlets import OwnGreenlet
from muxws_green.runtime.pings import new_nonce
from muxws_green.runtime.waiting import Doorbell

if TYPE_CHECKING:
    from muxws_green.runtime.link import Link

#: Turns of the hub that the reader gets before a remote is believed dead. The first hands out what the loop had found
#: already when the verdict fell, the second what lay in the sockets of a hub that was blocked until then.
TURNS_BEFORE_DEATH = 2


class Heartbeat(Doorbell):
    """One connection's heartbeat, and where its greenlet rests.

    Args:
        link: The connection.
        policy: Says when to ping and when to give up.
    """

    def __init__(self, link: Link, policy: IHeartbeatPolicy) -> None:
        super().__init__(link.hub)
        self._link = link
        self._policy = policy
        self._clock = link.clock
        self._beat: IHeartbeat | None = None
        #: None before the first ping.
        self._outflow: Outflow | None = None
        #: None before it was started.
        self.greenlet: OwnGreenlet | None = None
        self._rests = False
        self._pings_queued = 0
        self._seen_bytes = 0
        self._pinged: tuple[str, float] | None = None
        #: Seconds of the last round trip; None before the first.
        self.last_round_trip: float | None = None

    def start(self) -> None:
        """Begin; the connection is established, or about to be."""
        try:
            self._beat = self._policy.start(self._clock.now(), new_nonce)
        except BaseException as error:
            # A policy of the application's; unwatched the connection must not go on.
            self._link.crashed("heartbeat", error)
            if not isinstance(error, Exception):
                raise
            return
        self.greenlet = self._link.begin("heartbeat", Heartbeat._run, self)

    def received(self) -> None:
        """The reader has messages."""
        assert self._beat is not None
        self._seen_bytes = self._link.transport.received_bytes
        self._beat.received(self._clock.now())
        if self._rests:
            self._stir()

    def resumed(self) -> None:
        """The reader had been held back; the remote may have spoken meanwhile."""
        assert self._beat is not None
        self._beat.leaving(self._clock.now())

    def sent(self, frames: int) -> None:
        """The writer has handed a batch of so many frames to the socket."""
        if self._beat is None:
            # Nobody reads yet, so that nothing could be heard.
            return
        now = self._clock.now()
        if frames > self._pings_queued:
            self._beat.sent(now)
        self._pings_queued = 0
        if self._outflow is not None and self._outflow.follows:
            self._note_outflow(now, self._outflow)
        if self._rests:
            self._stir()

    def pong(self, nonce: str) -> None:
        """A pong that nobody else waits for."""
        if self._pinged is not None and self._pinged[0] == nonce:
            self.last_round_trip = self._clock.now() - self._pinged[1]
            self._pinged = None

    def _stir(self) -> None:
        self._rests = False
        self.ring()

    def _run(self) -> None:
        link = self._link
        try:
            while link.cause is None and not self._beat_once():
                pass
        except BaseException as error:
            # Its silent end would leave a connection that is never found dead.
            link.crashed("heartbeat", error)
            if not isinstance(error, Exception):
                raise

    def _beat_once(self) -> bool:
        """Look once, do what is due, and wait for the next time. True where the connection is over."""
        link, beat = self._link, self._beat
        assert beat is not None
        now = self._clock.now()
        self._note_life(now)
        nonce, dying = None, False
        try:
            nonce = beat.look(now)
        except HeartbeatTimeoutError:
            dying = True
        if dying:
            return self._bury()
        if nonce is not None:
            self._ping(nonce, now, beat)
        due = beat.due()
        self._rests = due is None
        if due is None:
            self.rest()
        else:
            self.rest_until(due if self._outflow is None else self._outflow.look_at(now, due), self._clock)
        return link.cause is not None

    def _ping(self, nonce: str, now: float, beat: IHeartbeat) -> None:
        link, transport = self._link, self._link.transport
        if not link.is_alive:
            return
        due = beat.due()
        outflow = self._outflow = self._outflow or Outflow()
        outflow.queued(
            now,
            now if due is None else due,
            transport.received_bytes,
            transport.sent_bytes,
            transport.unacknowledged(),
        )
        self._pinged = (nonce, now)
        self._pings_queued += 1
        link.core.ping(nonce)
        link.wake_writer()

    def _note_life(self, now: float) -> None:
        """Tell the policy of whatever speaks for the remote besides whole messages."""
        beat, transport = self._beat, self._link.transport
        assert beat is not None
        if transport.received_bytes != self._seen_bytes:
            # Part of a message, on a line so slow that the rest is still to come.
            self._seen_bytes = transport.received_bytes
            beat.received(now)
        if self._link.intake.paused:
            beat.leaving(now)
        if self._outflow is not None and self._outflow.follows:
            self._note_outflow(now, self._outflow)

    def _note_outflow(self, now: float, outflow: Outflow) -> None:
        beat, transport = self._beat, self._link.transport
        assert beat is not None
        if outflow.moved(transport.received_bytes, transport.sent_bytes, transport.unacknowledged()):
            beat.leaving(now)

    def _bury(self) -> bool:
        """The policy says that the remote is dead: believe it once the reader has had its turn. True where it is so."""
        link, beat = self._link, self._beat
        assert beat is not None
        for _ in range(TURNS_BEFORE_DEATH):
            wait_for_turn(link.home.hub)
        if link.cause is not None:
            return True
        now = self._clock.now()
        self._note_life(now)
        try:
            beat.look(now)
        except HeartbeatTimeoutError as error:
            link.terminate(error, abort_code=1000)
            return True
        return False


def wait_for_turn(hub: Hub) -> None:
    """Wait until the hub has handed out every event that its loop has found, and is about to look for more."""
    waiter: Waiter[None] = Waiter(hub)
    watcher = hub.loop.prepare()
    watcher.start(lambda: waiter.switch(None))
    # Something to do at once, so that the loop does not sleep before the next turn. A timer, since a callback that is
    # added late in the phase of another `prepare` watcher does not keep it from that.
    at_once = hub.loop.timer(0.0)
    at_once.start(_nothing)
    try:
        waiter.get()
    finally:
        at_once.stop()
        at_once.close()
        watcher.stop()
        watcher.close()


def _nothing() -> None:
    pass
