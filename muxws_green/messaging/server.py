"""How a program comes by message peers: `connect` for one conversation, `MessageApp` and `serve` to be called."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gevent.event import AsyncResult

from muxws_green import CountingHeartbeat, Peer, Reconnect, Server, WSGIApp
from muxws_green import connect as connect_peer
from muxws_green.api import default_clock
from muxws_green.interfaces import IClock, IHeartbeatPolicy
from muxws_green.messaging.peer import MessagePeer

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse

Setup = Callable[[MessagePeer], object]


def counting(heartbeat_interval: float | None, max_missed_pongs: int) -> IHeartbeatPolicy | None:
    """The heartbeat that the two arguments mean: none where the interval is None.

    Raises:
        ValueError: As `CountingHeartbeat`.
    """
    policy = CountingHeartbeat(5.0 if heartbeat_interval is None else heartbeat_interval, max_missed_pongs)
    return None if heartbeat_interval is None else policy


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
        setup: Called with the peer before any call is handled, to register handlers.
        heartbeat_interval: Seconds between pings; None for no pings.
        max_missed_pongs: Pings in a row that may go unanswered.
        options: Those of `muxws_green.connect`, but `reconnect`, `heartbeat` and the callbacks.

    Raises:
        Exception: As `muxws_green.connect`.
    """
    clock: IClock = options.get("clock", default_clock)
    answering = _Answering()
    peer = connect_peer(
        url,
        heartbeat=counting(heartbeat_interval, max_missed_pongs),
        reconnect=Reconnect(max_attempts=0),
        on_stream=answering.handle,
        **options,
    )
    return answering.begin(peer, clock, setup)


class _Answering:
    """Holds back the calls that arrive before there is a message peer."""

    def __init__(self) -> None:
        self._made: AsyncResult[MessagePeer] = AsyncResult()

    def handle(self, payload: Any, stream: Any) -> None:
        """The `on_stream` handler."""
        messages = self._made.get()
        assert messages is not None
        messages.handle(payload, stream)

    def begin(self, peer: Peer, clock: IClock, setup: Setup | None) -> MessagePeer:
        """Make the message peer and let the calls go on."""
        messages = MessagePeer(peer, clock)
        self._made.set(messages)
        peer.on_close(messages.ended)
        messages.begin(setup)
        return messages


class MessageApp:
    """A WSGI application whose connections call and are called by name.

    Args:
        setup: Called with each new peer before any of its calls is handled, to register handlers; it must not wait.
        heartbeat_interval: Seconds between pings; None for no pings.
        max_missed_pongs: Pings in a row that may go unanswered.
        options: Those of `WSGIApp`, but `heartbeat`.

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
        self._setup = setup
        self._clock: IClock = options.get("clock", default_clock)
        self._app = WSGIApp(
            None, on_connect=self._connected, heartbeat=counting(heartbeat_interval, max_missed_pongs), **options
        )

    def __call__(self, environ: Any, start_response: StartResponse | None = None) -> Any:
        """Answer one request."""
        return self._app(environ, start_response)

    def _connected(self, peer: Peer) -> None:
        messages = MessagePeer(peer, self._clock)
        peer.on_stream(messages.handle)
        peer.on_close(messages.ended)
        messages.begin(self._setup)


class MessageServer(Server):
    """A `Server` of one `MessageApp`, as `serve` returns it.

    Attributes:
        port: The port that it listens on.
    """

    @property
    def port(self) -> int:
        """The port that it listens on, chosen by the kernel where 0 was asked for."""
        assert self.server_port is not None
        return self.server_port


def serve(host: str, port: int, setup: Setup | None = None, **options: Any) -> MessageServer:
    """Listen, and serve in the background; `drain` or `stop` ends it.

    Args:
        host: The address to listen on.
        port: The port; 0 lets the kernel choose.
        setup: As in `MessageApp`.
        options: As in `MessageApp`.

    Returns:
        The started server.
    """
    server = MessageServer((host, port), MessageApp(setup, **options), log=None)
    server.start()
    return server
