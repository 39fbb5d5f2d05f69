"""`ReconnectingClient`: one message peer after another to one server, for a program that must find it again (seed B).

There is no reconnect loop here. One `Peer` with its Supervisor stays for the life of the client; this layer gives each
of its connections a fresh `MessagePeer`, says what happened, and refuses calls meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

from gevent import getcurrent
from gevent.event import Event

from muxws_green import CloseReason, NotConnectedError, Peer, Reconnect, Stream
from muxws_green.api import default_clock, keep_connected
from muxws_green.interfaces import IClock
from muxws_green.messaging.peer import Message, MessagePeer, wait
from muxws_green.messaging.server import Setup, counting

logger = logging.getLogger("muxws.messaging")


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

    Args:
        url: As in `muxws_green.connect`.
        setup: Called once with each new message peer before it is used, to register handlers.
        initial_backoff: Seconds before the first repeated dial; doubled for each further one.
        max_backoff: The most of these seconds.
        jitter: How much each wait may differ, as a part of it: 0 to 1.
        heartbeat_interval: Seconds between pings; None for no pings.
        max_missed_pongs: Pings in a row that may go unanswered.
        options: Those of `muxws_green.connect`, but `reconnect`, `heartbeat` and the callbacks.

    Raises:
        ValueError, TypeError, MuxwsError: `start` raises these for a wrong option, before anything is opened.
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
        self._url = url
        self._setup = setup
        self._options = options
        self._clock: IClock = options.get("clock", default_clock)
        self._reconnect = Reconnect(initial_delay=initial_backoff, max_delay=max_backoff, jitter=jitter)
        self._heartbeat = counting(heartbeat_interval, max_missed_pongs)
        self._events: list[Callable[[ConnectionEvent], object]] = []
        self._peer: Peer | None = None
        self._messages: MessagePeer | None = None
        #: The message peer of each socket that is not gone, by the peer's id of that time.
        self._of_socket: dict[str, MessagePeer] = {}
        self._was_connected = False
        self._stopped = False
        self._silent = Event()
        self._changed = Event()
        self._telling: object = None

    def __repr__(self) -> str:
        state = "stopped" if self._stopped else "connected" if self._messages else "not connected"
        return f"<ReconnectingClient {state}>"

    def start(self) -> None:
        """Begin to dial, in the background.

        Raises:
            RuntimeError: It has been started, or stopped, before.
        """
        if self._stopped or self._peer is not None:
            raise RuntimeError("a client is started once; make another")
        self._peer = keep_connected(
            self._url,
            on_established=self._established,
            on_stream=self._handle,
            on_close=self._lost,
            reconnect=self._reconnect,
            heartbeat=self._heartbeat,
            **self._options,
        )

    def stop(self) -> None:
        """Close the connection and dial no more, for good. The last event of a connection that was up is DISCONNECTED.

        Returns when that has been told; at once where it is called from a callback. Any number of times.
        """
        self._stopped = True
        self._tell_waiters()
        if self._peer is None:
            return
        self._peer.close()
        if self._telling is not getcurrent():
            self._silent.wait()

    def on_event(self, callback: Callable[[ConnectionEvent], object]) -> Callable[[ConnectionEvent], object]:
        """Call `callback(event)` for each `ConnectionEvent`; a decorator too. What it raises is logged."""
        self._events.append(callback)
        return callback

    @property
    def is_connected(self) -> bool:
        """Whether calls can be made now."""
        return self._messages is not None

    def wait_connected(self, timeout: float | None = None) -> None:
        """Wait until calls can be made.

        Args:
            timeout: Seconds to wait; None for ever.

        Raises:
            TimeoutError: The time has passed.
            NotConnectedError: The client is stopped, or not started.
        """
        until = None if timeout is None else self._clock.now() + timeout
        while self._messages is None:
            if self._stopped or self._peer is None or self._peer.is_closed:
                raise NotConnectedError("the client is stopped" if self._stopped else "the client does not dial")
            left = None if until is None else max(until - self._clock.now(), 0.0)
            wait(self._changed, self._clock, left, "not connected")

    def request(self, name: str, body: Any = None, timeout: float | None = None) -> Message:
        """As `MessagePeer.request`.

        Raises:
            NotConnectedError: There is no connection now. Nothing is kept for the next one.
            Exception: As `MessagePeer.request`.
        """
        return self._connected().request(name, body, timeout)

    def push(self, name: str, body: Any = None) -> None:
        """As `MessagePeer.push`.

        Raises:
            NotConnectedError: There is no connection now.
            Exception: As `MessagePeer.push`.
        """
        self._connected().push(name, body)

    def stream(self, name: str, body: Any = None) -> Iterator[Any]:
        """As `MessagePeer.stream`.

        Raises:
            NotConnectedError: There is no connection now.
            Exception: As `MessagePeer.stream`.
        """
        return self._connected().stream(name, body)

    def _connected(self) -> MessagePeer:
        if self._messages is None or self._peer is None or not self._peer.is_open:
            raise NotConnectedError("there is no connection at the moment; nothing is queued for the next one")
        return self._messages

    # What the peer below tells, in turn and in a greenlet of its own

    def _established(self, peer: Peer) -> None:
        if self._stopped or not peer.is_open:
            # It was lost again before its turn to be told of.
            return
        messages = self._of(peer)
        messages.begin(self._setup)
        self._messages = messages
        event = ConnectionEvent.RECONNECTED if self._was_connected else ConnectionEvent.CONNECTED
        self._was_connected = True
        self._tell_waiters()
        self._tell(event)

    def _lost(self, reason: CloseReason) -> None:
        messages, self._messages = self._messages, None
        gone, self._of_socket = self._of_socket, {}
        for each in gone.values():
            each.ended(reason)
        if messages is not None:
            self._tell(ConnectionEvent.DISCONNECTED)
        if not reason.will_retry:
            self._silent.set()
            self._tell_waiters()

    def _handle(self, payload: Any, stream: Stream) -> None:
        assert self._peer is not None
        self._of(self._peer).handle(payload, stream)

    def _of(self, peer: Peer) -> MessagePeer:
        """The message peer of the present socket, whose calls wait until `setup` has run."""
        return self._of_socket.setdefault(peer.id, MessagePeer(peer, self._clock))

    def _tell(self, event: ConnectionEvent) -> None:
        outer, self._telling = self._telling, getcurrent()
        try:
            for callback in list(self._events):
                try:
                    callback(event)
                except Exception:
                    logger.exception("muxws: an on_event callback raised")
        finally:
            self._telling = outer

    def _tell_waiters(self) -> None:
        changed, self._changed = self._changed, Event()
        changed.set()
