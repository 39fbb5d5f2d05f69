"""`ReconnectingClient`: one message peer after another to one server, for a program that must find it again (seed B).

There is no reconnect loop here. One `Peer` with its Supervisor stays for the life of the client; this layer gives each
of its connections a fresh `MessagePeer`, says what happened, and refuses calls meanwhile. What a connection's beginning
and end change here changes at once, without switching; the application is told of it in turn, in a greenlet of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeVar

import gevent
from gevent import Greenlet
from gevent.event import Event
from gevent.hub import Hub

from muxws_green import CloseReason, ConnectionClosed, NotConnectedError, Peer, Reconnect, Stream
from muxws_green.api import Callbacks, Session, default_clock, keep_connected
from muxws_green.interfaces import IClock
from muxws_green.messaging.answers import Answers
from muxws_green.messaging.peer import Message, MessagePeer, Setup
from muxws_green.messaging.server import counting, refuse_options
from muxws_green.messaging.waiting import deadline, seconds, wait

logger = logging.getLogger("muxws.messaging")

#: How long `stop` waits for callbacks that do not come back, in seconds.
CALLBACK_SECONDS = 10.0

#: Options of `connect` that have no meaning here, or another name.
NOT_OURS = frozenset(
    {"reconnect", "heartbeat", "ping_interval", "ping_timeout", "on_stream", "on_close", "on_reconnect"}
)

E = TypeVar("E", bound=Callable[["ConnectionEvent"], object])


class ConnectionEvent(str, Enum):
    """What `on_event` callbacks are told."""

    #: The first connection is up.
    CONNECTED = "connected"
    #: A connection that was up has gone.
    DISCONNECTED = "disconnected"
    #: A later connection is up.
    RECONNECTED = "reconnected"

    def __str__(self) -> str:
        return self.value


class ReconnectingClient:
    """Stays connected to one server, from `start` to `stop`.

    Lost calls are the caller's to repeat or not: nothing is queued for a connection to come, and nothing is sent twice.

    Args:
        url: As in `muxws_green.connect`.
        setup: Called once with the message peer of each connection before it is used, to register handlers; calls of
            the other end wait for it, so it must not wait for long. What it raises is logged, and the client carries
            on.
        initial_backoff: Seconds before the first repeated dial, above 0; doubled for each further one.
        max_backoff: The most of these seconds, before jitter.
        jitter: How much each wait may differ, as a part of it: 0 to 1.
        heartbeat_interval: Seconds between pings, above 0; None for no pings.
        max_missed_pongs: Pings in a row that may go unanswered; 0 or more.
        options: Those of `muxws_green.connect` but its callbacks, `reconnect` and the options of its heartbeat. A
            `hello` is a call like any other: `hello_headers={"method": "hello"}` gives it a name.

    Raises:
        ValueError, TypeError: An option is wrong. Those of `connect` are looked at by `start`, where the codec and the
            URL are too.
    """

    def __init__(
        self,
        url: str,
        *,
        setup: Setup | None = None,
        initial_backoff: float = 0.5,
        max_backoff: float = 30.0,
        jitter: float = 0.1,
        heartbeat_interval: float | None = 5.0,
        max_missed_pongs: int = 3,
        **options: Any,
    ) -> None:
        refuse_options("ReconnectingClient", options, NOT_OURS)
        self._url = url
        self._setup = setup
        self._options = options
        self._clock: IClock = options.get("clock", default_clock)
        self._reconnect = Reconnect(initial_delay=initial_backoff, max_delay=max_backoff, jitter=jitter)
        self._heartbeat = counting(heartbeat_interval, max_missed_pongs)
        self._listeners: list[Callable[[ConnectionEvent], object]] = []
        self._peer: Peer | None = None
        self._hub: Hub | None = None
        #: That of the peer's present socket, which may not be established or set up yet.
        self._latest: MessagePeer | None = None
        #: That of the connection which is up: established and set up.
        self._up: MessagePeer | None = None
        self._was_up = False
        self._stopped = False
        self._changed = Event()
        self._turns = Callbacks(SimpleNamespace(id="of a client"))

    def __repr__(self) -> str:
        state = "stopped" if self._stopped else "connected" if self.is_connected else "not connected"
        return f"<ReconnectingClient {state}>"

    @property
    def peer(self) -> Peer | None:
        """The `Peer` below, which stays while its connections come and go; None before `start`."""
        return self._peer

    @property
    def is_connected(self) -> bool:
        """Whether calls can be made now."""
        return self._up is not None and not self._stopped and self._up.peer.is_open

    def start(self) -> None:
        """Begin to dial, in the background. The first dial is repeated like any other.

        Raises:
            RuntimeError: It has been started, or stopped, before.
            TransportUrlError, CodecNotRegistered, ValueError, TypeError: An option is wrong; nothing has been opened.
        """
        if self._stopped or self._peer is not None:
            raise RuntimeError("a client is started once, and not after stop(); make another")
        self._peer = keep_connected(
            self._url,
            on_established=self._established,
            on_stream=self._handle,
            on_close=self._lost_or_over,
            reconnect=self._reconnect,
            heartbeat=self._heartbeat,
            **self._options,
        )
        self._hub = gevent.get_hub()

    def stop(self, drain: float = 10.0) -> None:
        """Dial no more and close the connection, for good. If one was up, the last event is DISCONNECTED.

        From its beginning on, calls and `wait_connected` raise NotConnectedError. It returns when everything has been
        told; at once where it is called from a callback of this client or an interceptor, and goes on in the
        background. May be called in any phase and any number of times; a later call waits for the first.

        Args:
            drain: Seconds that calls in progress may take to finish; 0 for none.

        Raises:
            ValueError: `drain` is negative or NaN.
            RuntimeError: The caller is in another thread than `start` was; hand it over with `peer.run_threadsafe`.
        """
        drain = seconds("drain", drain)
        self._check_thread()
        self._stopped = True
        self._wake_waiters()
        peer = self._peer
        if peer is None:
            return
        if self._turns.is_current:
            # What comes of it is told by this same greenlet.
            closer = Greenlet(peer.close, drain=drain)
            closer.name = f"closer {peer.id}"
            closer.start()
            return
        peer.close(drain=drain)
        if not peer.is_closed:
            # Called from within one of the connection's own greenlets, it goes on in the background.
            return
        told = Event()
        self._turns.add(told.set)
        if not wait(told, self._clock, deadline(self._clock, CALLBACK_SECONDS)):
            logger.warning("muxws: stop() does not wait any longer for a callback of %r", self)

    def on_event(self, callback: E) -> E:
        """Call `callback(event)` for each `ConnectionEvent` from now on; a decorator too.

        Callbacks run one after another in a greenlet of their own, in which no frame waits for them. They may block,
        which holds up only what is to be told next, `setup` included; what they raise is logged, and the others still
        run.
        """
        self._listeners.append(callback)
        return callback

    def wait_connected(self, timeout: float | None = None) -> None:
        """Wait until calls can be made.

        Args:
            timeout: Seconds to wait; None for ever.

        Raises:
            TimeoutError: The time has passed.
            NotConnectedError: The client is stopped, before or meanwhile, or not started, or has given up (`retry_if`).
            RuntimeError: Called while down by a callback of this client or by `setup`: the connection is told of behind
                it, so it would wait for itself.
            ValueError: `timeout` is negative or NaN.
        """
        self._check_thread()
        until = deadline(self._clock, timeout)
        while not self.is_connected:
            if self._stopped or self._peer is None or self._peer.is_closed:
                raise self._not_connected()
            if self._turns.is_current:
                raise RuntimeError("a callback that waits for the connection would wait for itself; spawn a greenlet")
            if not wait(self._changed, self._clock, until):
                raise TimeoutError(f"not connected after {timeout} s") from self._last_error

    def request(self, name: str, body: Any = None, timeout: float | None = None) -> Message:
        """As `MessagePeer.request`.

        Raises:
            NotConnectedError: There is no connection now. Nothing is kept for the next one. `__cause__` is what ended
                the last one, or the last attempt.
            Exception: As `MessagePeer.request`.
        """
        return self._connected().request(name, body, timeout)

    def push(self, name: str, body: Any = None) -> None:
        """As `MessagePeer.push`.

        Raises:
            NotConnectedError: As `request`.
            Exception: As `MessagePeer.push`.
        """
        self._connected().push(name, body)

    def stream(self, name: str, body: Any = None) -> Answers:
        """As `MessagePeer.stream`.

        Raises:
            NotConnectedError: As `request`.
            Exception: As `MessagePeer.stream`.
        """
        return self._connected().stream(name, body)

    def _connected(self) -> MessagePeer:
        if self._up is None or not self.is_connected:
            raise self._not_connected()
        return self._up

    def _not_connected(self) -> NotConnectedError:
        if self._stopped:
            what = "the client is stopped"
        elif self._peer is None:
            what = "the client is not started"
        elif self._peer.is_closed:
            what = "the client dials no more"
        else:
            what = "there is no connection at the moment; nothing is kept for the next one"
        error = NotConnectedError(what)
        error.__cause__ = self._last_error
        return error

    @property
    def _last_error(self) -> BaseException | None:
        supervisor = None if self._peer is None else self._peer.supervisor
        return None if supervisor is None else supervisor.last_error

    def _check_thread(self) -> None:
        if self._hub is not None and gevent.get_hub() is not self._hub:
            raise RuntimeError("this client belongs to another thread; hand the work over with peer.run_threadsafe(fn)")

    # What happens below. None of this switches.

    def _established(self, session: Session) -> None:
        messages = self._of_present_socket()
        messages._close = partial(self._close_one, session)
        session.on_end(partial(self._lost, messages))
        # Two calls, so that a `setup` which ends the greenlet leaves a client that carries on.
        self._turns.add(partial(self._set_up, messages))
        self._turns.add(partial(self._announce, messages))

    def _of_present_socket(self) -> MessagePeer:
        """The message peer of the present socket, which may still be waiting for its hello to be acknowledged."""
        assert self._peer is not None
        if self._latest is None or self._latest.id != self._peer.id:
            self._latest = MessagePeer(self._peer, self._clock)
        return self._latest

    def _lost(self, messages: MessagePeer, cause: ConnectionClosed) -> None:
        messages._end(cause, self._turns)
        if self._up is messages:
            self._up = None
            self._tell(ConnectionEvent.DISCONNECTED)

    def _lost_or_over(self, reason: CloseReason) -> None:
        """An `on_close` callback of the peer; only the last call says something that is not known already."""
        if not reason.will_retry:
            self._wake_waiters()

    def _tell(self, event: ConnectionEvent) -> None:
        for callback in list(self._listeners):
            self._turns.add(partial(callback, event))

    def _wake_waiters(self) -> None:
        changed, self._changed = self._changed, Event()
        changed.set()

    # What is done in turn with the application's callbacks

    def _set_up(self, messages: MessagePeer) -> None:
        if self._stopped:
            messages._turn_away()
        elif not messages.is_closed:
            messages._begin(self._setup)

    def _announce(self, messages: MessagePeer) -> None:
        if self._stopped or messages.is_closed:
            # It was lost before it was used, and nobody needs to know of it.
            return
        self._up = messages
        event = ConnectionEvent.RECONNECTED if self._was_up else ConnectionEvent.CONNECTED
        self._was_up = True
        self._wake_waiters()
        self._tell(event)

    # What others call, in greenlets of theirs

    def _handle(self, payload: Any, stream: Stream) -> None:
        """The `on_stream` handler of the peer. One that starts belongs to the present socket: others are stopped."""
        self._of_present_socket()._handle(payload, stream)

    def _close_one(self, session: Session, drain: float) -> None:
        """`MessagePeer.close` of one connection."""
        if self._turns.is_current:
            closer = Greenlet(session.close, drain)
            closer.name = f"closer {self!r}"
            closer.start()
        else:
            session.close(drain)
