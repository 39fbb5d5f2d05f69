"""How a program comes by message peers: `connect` for one conversation, `MessageApp` and `serve` to be called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gevent import Greenlet
from gevent.event import AsyncResult

from muxws_green import CountingHeartbeat, Peer, Reconnect, Server, Stream, WSGIApp
from muxws_green import connect as connect_peer
from muxws_green.api import default_clock
from muxws_green.interfaces import IClock, IHeartbeatPolicy
from muxws_green.messaging.peer import MessagePeer, Setup

#: Options of `muxws_green.connect` that have no meaning here, or another name.
_NOT_OF_CONNECT = frozenset(
    {"reconnect", "heartbeat", "ping_interval", "ping_timeout", "retry_if", "on_stream", "on_close", "on_reconnect"}
)
#: Options of `WSGIApp` that have no meaning here, or another name.
_NOT_OF_APP = frozenset({"handler", "on_connect", "heartbeat", "ping_interval", "ping_timeout"})


def counting(heartbeat_interval: float | None, max_missed_pongs: int) -> IHeartbeatPolicy | None:
    """The heartbeat that the two arguments mean: none where the interval is None.

    Raises:
        ValueError: As `CountingHeartbeat`; a wrong count also without an interval.
    """
    policy = CountingHeartbeat(5.0 if heartbeat_interval is None else heartbeat_interval, max_missed_pongs)
    return None if heartbeat_interval is None else policy


def refuse_options(what: str, options: Mapping[str, object], refused: frozenset[str]) -> None:
    """Do nothing where none of the `options` is one that this layer sets itself.

    Raises:
        TypeError: One is.
    """
    wrong = sorted(options.keys() & refused)
    if wrong:
        raise TypeError(f"{what} has no option {', '.join(wrong)}: it is this layer's own to set")


def connect(
    url: str,
    setup: Setup | None = None,
    *,
    heartbeat_interval: float | None = 5.0,
    max_missed_pongs: int = 3,
    **options: Any,
) -> MessagePeer:
    """Dial `url` for one conversation: a lost connection is not dialled again.

    Args:
        url: As in `muxws_green.connect`.
        setup: Called with the message peer before any call is handled, to register handlers. What it raises is raised
            here, and the connection is closed.
        heartbeat_interval: Seconds between pings, above 0; None for no pings.
        max_missed_pongs: Pings in a row that may go unanswered; 0 or more.
        options: Those of `muxws_green.connect` but its callbacks, `reconnect`, `retry_if` and the options of its
            heartbeat.

    Raises:
        Exception: As `muxws_green.connect`, and what `setup` raises.
    """
    refuse_options("connect", options, _NOT_OF_CONNECT)
    clock: IClock = options.get("clock", default_clock)
    #: Calls may arrive before there is a message peer to handle them.
    made: AsyncResult[MessagePeer] = AsyncResult()

    def handle(payload: Any, stream: Stream) -> None:
        made.get()._handle(payload, stream)  # type: ignore[union-attr]

    peer = connect_peer(
        url,
        heartbeat=counting(heartbeat_interval, max_missed_pongs),
        reconnect=Reconnect(max_attempts=0),
        on_stream=handle,
        **options,
    )
    messages = MessagePeer(peer, clock)
    made.set(messages)
    peer.on_close(messages._over)
    try:
        if setup is not None:
            setup(messages)
    except BaseException:
        messages._turn_away()
        # In the background, since the caller is not to wait for what it will never hold.
        closer = Greenlet(peer.close, drain=0.0)
        closer.name = f"closer {peer.id}"
        closer.start()
        raise
    messages._begin(None)
    return messages


class MessageApp(WSGIApp):
    """A WSGI application whose connections call and are called by name.

    Args:
        setup: Called once with the message peer of each connection before any of its calls is handled, to register
            handlers; it must not wait for long. What it raises is logged, and the connection goes on.
        heartbeat_interval: Seconds between pings, above 0; None for no pings.
        max_missed_pongs: Pings in a row that may go unanswered; 0 or more.
        options: Those of `WSGIApp` but `on_connect` and the options of its heartbeat.

    Raises:
        ValueError, TypeError, CodecNotRegistered: An option is wrong.
    """

    def __init__(
        self,
        setup: Setup | None = None,
        *,
        heartbeat_interval: float | None = 5.0,
        max_missed_pongs: int = 3,
        **options: Any,
    ) -> None:
        refuse_options("MessageApp", options, _NOT_OF_APP)
        self._setup = setup
        self._clock: IClock = options.get("clock", default_clock)
        super().__init__(
            None, on_connect=self._connected, heartbeat=counting(heartbeat_interval, max_missed_pongs), **options
        )

    def _connected(self, peer: Peer) -> None:
        messages = MessagePeer(peer, self._clock)
        peer.on_stream(messages._handle)
        peer.on_close(messages._over)
        messages._begin(self._setup)


class MessageServer(Server):
    """A `Server` of one `MessageApp`, as `serve` returns it: `drain` ends it, and `start` begins again."""

    @property
    def port(self) -> int:
        """The port that it listens on, chosen by the kernel where 0 was asked for."""
        assert self.server_port is not None
        return self.server_port


def serve(host: str, port: int, setup: Setup | None = None, **options: Any) -> MessageServer:
    """Listen, and serve in the background; `drain` or `stop` ends it. For TLS and the like: `Server` of a `MessageApp`.

    Args:
        host: The address to listen on.
        port: The port; 0 lets the kernel choose.
        setup: As in `MessageApp`.
        options: As in `MessageApp`.

    Returns:
        The started server; its `port` tells where.

    Raises:
        OSError: The address cannot be listened on.
        ValueError, TypeError, CodecNotRegistered: An option is wrong.
    """
    server = MessageServer((host, port), MessageApp(setup, **options), log=None)
    server.start()
    return server
