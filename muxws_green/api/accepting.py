"""`accept`, `serve`, `WSGIApp` and `Server`: how a server comes by peers.

Options are checked when an application is made, or at the call, before a byte is written.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from muxws_green.api.options import DEFAULT, READ_FACTOR, Default, intercept, resolve_heartbeat
from muxws_green.codecs.registry import resolve_codec
from muxws_green.errors import ConnectionClosed, UpgradeRefused
from muxws_green.interfaces import IClock, ICodec, IErrorSerializer, IHeartbeatPolicy
from muxws_green.protocol.fragments import MAX_FRAME_BYTES
from muxws_green.protocol.origin import AllowedOrigins, compile_policy
from muxws_green.protocol.subprotocol import offer
from muxws_green.runtime import roster
from muxws_green.runtime.clock import default_clock
from muxws_green.runtime.handlers import StreamHandler
from muxws_green.runtime.hooks import IncomingHeadersInterceptor, OpenInterceptor, ReplyHeadersInterceptor
from muxws_green.runtime.options import Options, checked_count
from muxws_green.runtime.peer import Peer
from muxws_green.settings import settings
from muxws_green.transports import server
from muxws_green.transports.acceptor import Upgraded, refuse, upgrade
from muxws_green.transports.descriptors import make_room

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse


class AcceptOptions(TypedDict, total=False):
    """The keyword arguments of `accept`, `serve` and `WSGIApp`, as editors and type checkers see them.

    What they mean is told by `WSGIApp`; their defaults are those of `_AcceptOptions`, which takes and judges them.
    """

    allowed_origins: AllowedOrigins | None
    heartbeat: IHeartbeatPolicy | Default | None
    ping_interval: float
    ping_timeout: float
    max_payload_bytes: int
    max_concurrent_streams: int
    max_frame_bytes: int
    send_buffer_bytes: int
    receive_buffer_bytes: int
    receive_pause_timeout: float
    error_serializer: IErrorSerializer | None
    codec: ICodec | str | None
    clock: IClock
    open_interceptors: Sequence[OpenInterceptor]
    reply_headers_interceptors: Sequence[ReplyHeadersInterceptor]
    incoming_headers_interceptors: Sequence[IncomingHeadersInterceptor]


class _AcceptOptions:
    """What `accept` may be told, judged; an application judges it once for all its requests."""

    def __init__(
        self,
        *,
        allowed_origins: AllowedOrigins | None = None,
        heartbeat: IHeartbeatPolicy | Default | None = DEFAULT,
        ping_interval: float = 20.0,
        ping_timeout: float = 10.0,
        max_payload_bytes: int = 67_108_864,
        max_concurrent_streams: int = 100,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        send_buffer_bytes: int = 16_777_216,
        receive_buffer_bytes: int = 16_777_216,
        receive_pause_timeout: float = 10.0,
        error_serializer: IErrorSerializer | None = None,
        codec: ICodec | str | None = None,
        clock: IClock = default_clock,
        open_interceptors: Sequence[OpenInterceptor] = (),
        reply_headers_interceptors: Sequence[ReplyHeadersInterceptor] = (),
        incoming_headers_interceptors: Sequence[IncomingHeadersInterceptor] = (),
    ) -> None:
        self.options = Options(
            codec=resolve_codec(codec),
            max_payload_bytes=max_payload_bytes,
            max_concurrent_streams=max_concurrent_streams,
            max_frame_bytes=max_frame_bytes,
            send_buffer_bytes=send_buffer_bytes,
            receive_buffer_bytes=receive_buffer_bytes,
            receive_pause_timeout=receive_pause_timeout,
            error_serializer=error_serializer,
            heartbeat=resolve_heartbeat(heartbeat, ping_interval, ping_timeout),
            clock=clock,
        )
        self._follows_settings = codec is None
        self.origins = compile_policy(allowed_origins)
        self._interceptors = (open_interceptors, reply_headers_interceptors, incoming_headers_interceptors)

    def current(self) -> Options:
        """The options of a connection that is made now."""
        options = self.options
        if self._follows_settings and settings.codec != options.codec.name:
            # The setting is read when a connection is made, so that an application may set it after this object is
            # made.
            options = self.options = replace(options, codec=resolve_codec())
        return options

    def accept(self, environ: Any, start_response: StartResponse | None) -> tuple[Peer, Upgraded]:
        """Upgrade one request."""
        options = self.current()
        upgraded = upgrade(
            environ,
            start_response,
            codec_name=options.codec.name,
            origins=self.origins,
            max_message_bytes=READ_FACTOR * options.max_frame_bytes,
        )
        try:
            peer = Peer(options, dialer=False, enrol=roster.add)
            intercept(peer, *self._interceptors)
            peer._finish = upgraded.finish
            peer._attach(upgraded.transport)
            upgraded.enrol(peer)
        except BaseException:
            upgraded.transport.abort(1011)
            raise
        return peer, upgraded


def accept(environ: Any, start_response: StartResponse | None = None, **options: Unpack[AcceptOptions]) -> Peer:
    """Upgrade a WSGI request and return its peer, which is not serving yet.

    Register handlers on it, then `return peer.serve()`, whose value is the WSGI body that the host needs. The request's
    greenlet must stay until then, since the host closes the socket with it.

    Args:
        environ: The WSGI environ, or `environ["wsgi.websocket"]` where gevent-websocket has made the upgrade.
        start_response: The host's; None in a view of a framework, with `upgradable` around the whole application.
        options: Those of `WSGIApp` but `max_peers`.

    Raises:
        OriginRefused: The page that asks is of an origin that is not allowed (403). Nothing has been written.
        UpgradeRefused: The request is no such upgrade, or speaks another codec (400). Nothing has been written;
            answer it.
        TransportUnsupportedError: This host does not hand over its socket; the message says what would help.
        CodecNotRegistered, ValueError, TypeError: An option is wrong.
    """
    return _AcceptOptions(**options).accept(environ, start_response)[0]


def serve(
    environ: Any,
    start_response: StartResponse | None = None,
    *,
    handler: StreamHandler,
    **options: Unpack[AcceptOptions],
) -> Any:
    """Upgrade a WSGI request and serve it until the connection is over: the one-line WSGI body.

    A refused upgrade is answered here.

    Args:
        environ: As in `accept`.
        start_response: As in `accept`.
        handler: The `on_stream` handler, called as `handler(payload, stream)`.
        options: As in `accept`.

    Returns:
        The WSGI body.
    """
    return WSGIApp(handler, **options)(environ, start_response)


class WSGIApp:
    """A WSGI application that serves muxws with one handler.

    Args:
        handler: The `on_stream` handler, called as `handler(payload, stream)`; None where `on_connect` registers one.
        max_peers: Connections at a time; one more is answered with 503. None: no bound of its own.
        on_connect: Called with each new peer before it serves, to register further handlers; it must not wait.
        options: `allowed_origins`, `heartbeat`, `ping_interval`, `ping_timeout`, `max_payload_bytes`,
            `max_concurrent_streams`, `max_frame_bytes`, `send_buffer_bytes`, `receive_buffer_bytes`,
            `receive_pause_timeout`, `error_serializer`, `codec`, `clock`, `open_interceptors`,
            `reply_headers_interceptors`, `incoming_headers_interceptors`: as `connect` has them; `allowed_origins` is
            an iterable of origins, a `SameOrigin`, or a callable on the Origin value.

    Raises:
        CodecNotRegistered, ValueError, TypeError: An option is wrong.
    """

    def __init__(
        self,
        handler: StreamHandler | None,
        *,
        max_peers: int | None = None,
        on_connect: Callable[[Peer], object] | None = None,
        **options: Unpack[AcceptOptions],
    ) -> None:
        if not callable(handler) and not (handler is None and on_connect is not None):
            raise TypeError(f"the handler is called as handler(payload, stream); {handler!r} cannot be")
        make_room()
        self._handler = handler
        self._max_peers = None if max_peers is None else checked_count("max_peers", max_peers)
        self._on_connect = on_connect
        self._options = _AcceptOptions(**options)
        self._peers: set[Peer] = set()
        # Each peer keeps it, and all of them the same object.
        self._forget = self._peers.discard

    @property
    def peers(self) -> list[Peer]:
        """The peers that are connected now."""
        return list(self._peers)

    def app_protocol(self, _path: str) -> str:
        """The subprotocol that gevent-websocket's handler is to select where it makes the upgrade itself."""
        return offer(self._options.current().codec.name)[0]

    def __call__(self, environ: Any, start_response: StartResponse | None = None) -> Any:
        """Answer one request, by serving it or by refusing it."""
        try:
            if self._max_peers is not None and len(self._peers) >= self._max_peers:
                raise UpgradeRefused(503, "too many connections", headers=[("Retry-After", "1")])
            peer, upgraded = self._options.accept(environ, start_response)
        except UpgradeRefused as error:
            if start_response is None:
                raise
            return refuse(error, environ, start_response)
        self._peers.add(peer)
        peer._on_loss(self._forget)
        if self._handler is not None:
            peer.on_stream(self._handler)
        if self._on_connect is not None:
            try:
                self._on_connect(peer)
            except BaseException as error:
                # The host logs it, and would close the socket without a word and behind the back of the peer.
                cause = ConnectionClosed(f"on_connect raised {type(error).__name__}", code=1011)
                cause.__cause__ = error
                if peer._link is not None:
                    peer._link.terminate(cause, abort_code=1011)
                raise
        if upgraded.detach():
            peer._serve_detached()
            return upgraded.finish()
        # What it took to get here need not live for as long as the connection.
        del upgraded
        return peer.serve()


class Server(server.Server):
    """A WSGI server for gevent that knows its peers: it can drain, and does not wait for ever for half a request.

    Args:
        listener: An address, or a listening gevent socket, TCP or Unix.
        app_or_handler: A WSGI application, or an `on_stream` handler, which is served by a `WSGIApp`. They are told
            apart by the names of their parameters: `environ` or `env` first, or `start_response` second, makes an
            application.
        head_timeout: Seconds for the TLS handshake and for the head of each request; 0 or None: for ever.
        options: What `gevent.pywsgi.WSGIServer` takes, such as `ssl_context`, `log` and `spawn`; beside a handler also
            the options of `WSGIApp`.

    Raises:
        TypeError: Nobody can tell what `app_or_handler` is; wrap it in `WSGIApp` or `upgradable`.
        CodecNotRegistered, ValueError, TypeError: An option is wrong.
    """

    def __init__(
        self,
        listener: Any,
        app_or_handler: Callable[..., Any],
        head_timeout: float | None = 10.0,
        **options: Any,
    ) -> None:
        if not isinstance(app_or_handler, WSGIApp) and not server.is_wsgi(app_or_handler):
            own = {name: options.pop(name) for name in list(options) if name in _WSGI_APP_OPTIONS}
            app_or_handler = WSGIApp(app_or_handler, **own)
        super().__init__(listener, app_or_handler, head_timeout, **options)


_WSGI_APP_OPTIONS = {
    *inspect.signature(_AcceptOptions).parameters,
    *inspect.signature(WSGIApp).parameters,
} - {"handler", "options"}
