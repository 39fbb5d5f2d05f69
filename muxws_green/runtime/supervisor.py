"""Keeps a dialer connected: dials, greets, establishes, backs off, gives up (seed A, PROTOCOL §8).

One greenlet per dialer. It touches no socket but that of its own attempt, and keeps one number between connections, the
count of failed attempts, which is reset at one place only: where a connection is established.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from copy import deepcopy
from enum import Enum
from typing import TYPE_CHECKING

from gevent import get_hub, getcurrent
from greenlet import GreenletExit

from muxws_green.errors import ConnectionClosed, StreamTimeout
from muxws_green.runtime.closing import CloseReason
from muxws_green.runtime.draw import uniform
from muxws_green.runtime.greenlets import OwnGreenlet
from muxws_green.runtime.guard import forget_frames, guarded
from muxws_green.runtime.options import check_callable
from muxws_green.runtime.plan import Plan
from muxws_green.runtime.session import Session
from muxws_green.runtime.turns import Waiter
from muxws_green.runtime.waiting import Doorbell, refuse_to_wait

if TYPE_CHECKING:
    from muxws_green.runtime.link import Link
    from muxws_green.runtime.peer import Peer

logger = logging.getLogger("muxws.reconnect")


class SupervisorState(str, Enum):
    """What a dialer's schedule is at."""

    CONNECTING = "connecting"
    ESTABLISHED = "established"
    BACKING_OFF = "backing_off"
    GIVEN_UP = "given_up"
    STOPPED = "stopped"


class _Stop(GreenletExit):
    """Thrown into the Supervisor's own greenlet by `stop`, to end the attempt or the wait that it is in."""


class Supervisor(Doorbell):
    """The reconnect schedule of one dialer. Its greenlet rests while a connection lives, and between two attempts.

    Args:
        peer: The dialer.
        plan: How it connects.
        retry_if: Called with the error of a failed attempt; False makes it permanent. None: all are tried again.
        first_dial: `"raise"` ends with the first failure before a connection was ever established; `"retry"` goes on.
        draw: Random numbers in [-1, 1) for the jitter.

    Raises:
        TypeError: `retry_if` cannot be called.

    Attributes:
        state: What it is at.
        attempt: Failed attempts since the last established connection.
        next_delay: Seconds of the wait that it is in; None where it is in none.
        last_error: What ended the last attempt or connection; None before any did.
        reconnects: How many times the connection was established again.
    """

    def __init__(
        self,
        peer: Peer,
        plan: Plan,
        *,
        retry_if: Callable[[Exception], bool] | None = None,
        first_dial: str = "raise",
        draw: Callable[[], float] = uniform,
    ) -> None:
        super().__init__(peer._home.hub)
        if retry_if is not None:
            check_callable("retry_if", retry_if)
        self.state = SupervisorState.CONNECTING
        self.attempt = 0
        self.next_delay: float | None = None
        self.last_error: BaseException | None = None
        self.reconnects = 0
        #: Called with each connection as it is established; must neither switch nor raise. None: nobody.
        self.on_established: Callable[[Session], object] | None = None
        self._peer = peer
        self._plan = plan
        self._retry_if = retry_if
        self._retries_first = first_dial == "retry"
        self._draw = draw
        self._was_established = False
        self._stopped = False
        self._clock = plan.options.clock
        #: Who waits in `wait_first`.
        self._first: tuple[Waiter, ...] = ()
        #: Where it runs.
        self.greenlet = OwnGreenlet(f"supervisor {peer.id}", Supervisor._run, self)

    def start(self) -> None:
        """Begin with the first attempt."""
        self.greenlet.rawlink(_left)
        self.greenlet.start()

    def wait_first(self) -> None:
        """Wait for the first connection to be established.

        Raises:
            Exception: What made the first attempt fail.
            ConnectionClosed: It was stopped before it had come to an end.
        """
        while not self._was_established and self.state is not SupervisorState.STOPPED:
            self._wait_for_first()
        if not self._was_established:
            raise self.last_error or ConnectionClosed("the first attempt was stopped")

    def _wait_for_first(self) -> None:
        hub, current = self._peer._home.hub, getcurrent()
        if current is hub or get_hub() is not hub:
            refuse_to_wait(current is hub)
        # As in `WaitList.wait`, but that nothing runs which could wake it before it waits.
        waiter = Waiter()
        self._first += (waiter,)
        waiter.greenlet = current
        try:
            self._turns.wait()
        finally:
            waiter.greenlet = None

    def stop(self) -> None:
        """No further dial, for good; an attempt in progress is ended. Does not touch an established connection."""
        if self._stopped:
            return
        self._stopped = True
        self.next_delay = None
        if self.state is not SupervisorState.GIVEN_UP:
            self._enter(SupervisorState.STOPPED)
        greenlet = self.greenlet
        if greenlet is not getcurrent() and not greenlet.dead:
            greenlet.kill(_Stop(), block=False)

    def disown(self) -> None:
        """In a forked child: the parent's copy goes on dialling, and this one does not."""
        self._stopped = True
        self.greenlet.kill(_Stop(), block=False)

    def hurry(self) -> bool:
        """End the wait between two attempts. False where it is in none."""
        if self._stopped or self.next_delay is None or not self.resting:
            return False
        self.ring()
        return True

    def link_ended(self) -> None:
        """The connection is over. Never switches."""
        self.ring()

    @property
    def reports_losses(self) -> bool:
        """Whether the loss of a socket is reported by `on_close`: not where the caller of `connect` is told instead."""
        return self._was_established or self._retries_first

    def will_retry(self) -> bool:
        """Whether the loss of the present socket is followed by another attempt. Pure; never switches."""
        if self._stopped:
            return False
        failures = self.attempt if self.state is SupervisorState.ESTABLISHED else self.attempt + 1
        # A policy that raises is asked again where that ends this greenlet, and then it is said.
        policy = self._plan.policy
        verdict = guarded(lambda: policy.should_retry(failures), "muxws conn=%s should_retry raised", self._peer.id)
        return verdict is not False

    def _enter(self, state: SupervisorState) -> None:
        self.state = state
        if state is SupervisorState.ESTABLISHED or state is SupervisorState.STOPPED:
            first, self._first = self._first, ()
            for waiter in first:
                self._turns.soon(waiter.resume, True)

    def _run(self) -> None:
        try:
            self._connect_and_wait()
            while not self._stopped and self._back_off():
                self._connect_and_wait()
        except _Stop:
            pass
        finally:
            self._ended()

    def _ended(self) -> None:
        if not self._stopped and self.state is not SupervisorState.GIVEN_UP:
            # Killed by somebody else, or it failed: nothing will dial any more, and that is said.
            self._stopped = True
            self._enter(SupervisorState.STOPPED)
            if self.reports_losses and self._peer._link is None:
                self._peer._report_close(CloseReason(1006, "the supervisor was ended", False, False))

    def _connect_and_wait(self) -> None:
        """One attempt and, if it succeeds, the life of its connection."""
        self._enter(SupervisorState.CONNECTING)
        try:
            link = self._attempt()
        except Exception as error:  # whatever makes an attempt fail counts as one failure
            self.last_error = error
            if self.reports_losses:
                # Nobody is about to raise it: it is kept for those who look.
                forget_frames(error)
            self.attempt += 1
            logger.info("muxws conn=%s attempt %d failed: %s", self._peer.id, self.attempt, error)
            if self._stopped:
                return
            if not self._was_established and not self._retries_first:
                self._stopped = True
                self._enter(SupervisorState.STOPPED)
            elif not self._is_worth_a_retry(error):
                self._give_up(f"not tried again after {type(error).__name__}")
            return
        if link is None:
            return
        while link.cause is None:
            self.rest()
        self.last_error = link.cause

    def _is_worth_a_retry(self, error: Exception) -> bool:
        """Ask the application, whose own failure changes nothing. Whatever it did with the peer meanwhile stands."""
        if self._retry_if is None:
            return True
        judge = self._retry_if
        verdict = guarded(lambda: bool(judge(error)), "muxws conn=%s retry_if raised", self._peer.id)
        return verdict is not False or self._stopped

    def _attempt(self) -> Link | None:
        """Dial, greet, establish. None where it was stopped meanwhile."""
        transport = self._plan.dialer.dial()
        if self._stopped:
            transport.abort(1000)
            return None
        link = self._peer._attach(transport)
        try:
            self._greet(link)
        except _Stop:
            # `Peer.close` is at work: it ends the link too, with the code and the reason that it was given.
            raise
        except BaseException as error:
            if isinstance(error, Exception) and not link.is_alive:
                # For a rule that the remote broke it is told so; that takes a moment.
                link.wait_until_over()
            text = f"the hello did not complete: {error}"
            lost = ConnectionClosed(text, code=1006, reason=text)
            lost.__cause__ = error
            link.terminate(lost, abort_code=1000)
            raise
        if self._stopped:
            # As above, but that the acknowledgement came first.
            return None
        if not link.is_alive:
            link.wait_until_over()
            assert link.cause is not None
            raise link.cause
        self._establish(link)
        return link

    def _greet(self, link: Link) -> None:
        hello = self._plan.hello
        if hello is None:
            link.start_reading()
            return
        # A stream shows its headers to whoever looks at it, and the next socket is to get the same ones.
        stream = link.open(hello.encoded, None, deepcopy(hello.headers), True, first=True)
        stream._discard_answers("hello")
        link.start_reading()
        stream._wait_closed(self._clock.now() + hello.timeout)
        error = stream._inbox.error
        if error is not None:
            raise error
        if not stream._inbox.ended:
            raise StreamTimeout(f"the hello was not acknowledged within {hello.timeout} s", stream_id=stream.id)

    def _establish(self, link: Link) -> None:
        self.attempt = 0
        self._peer._established = True
        again = self._was_established
        self._was_established = True
        if self.on_established is not None:
            self.on_established(Session(self._peer, link))
        if again:
            self.reconnects += 1
            self._peer._report_reconnect(self.reconnects)
        self._enter(SupervisorState.ESTABLISHED)

    def _back_off(self) -> bool:
        """Wait before the next attempt. False where there will be none."""
        if self.state is SupervisorState.GIVEN_UP:
            return False
        policy = self._plan.policy
        if not policy.should_retry(self.attempt):
            self._give_up(f"gave up reconnecting after {self.attempt} attempts")
            return False
        # Where there was no connection yet, the first failure stands in for the loss of one (seed B: 0.5 s after it).
        failures = self.attempt if self._was_established else self.attempt - 1
        self.next_delay = policy.delay(failures, self._draw)
        self._enter(SupervisorState.BACKING_OFF)
        try:
            self.rest_until(self._clock.now() + self.next_delay, self._clock)
        finally:
            self.next_delay = None
        return not self._stopped

    def _give_up(self, why: str) -> None:
        self._enter(SupervisorState.GIVEN_UP)
        self._peer._report_close(CloseReason(1006, why, False, False))


def _left(own: OwnGreenlet) -> None:
    """Called when the greenlet has ended. One that was killed before it ran had no chance to say so."""
    supervisor = own.never_served()
    if isinstance(supervisor, Supervisor):
        supervisor._ended()
