"""How an application comes by a peer: `connect` dials, `accept` takes over a request, `serve` and `WSGIApp` do the
rest.

Every option is checked, and the codec found, before a socket is opened or a byte is written.
"""

from __future__ import annotations

import inspect
import math
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from muxws_green.codecs.envelopes import envelopes_of
from muxws_green.codecs.registry import resolve_codec
from muxws_green.errors import UpgradeRefused
from muxws_green.interfaces import IBackoffPolicy, IClock, ICodec, IErrorSerializer, IHeartbeatPolicy
from muxws_green.protocol.backoff import Reconnect
from muxws_green.protocol.fragments import MAX_FRAME_BYTES, Splitter
from muxws_green.protocol.liveness import IdleHeartbeat
from muxws_green.protocol.origin import AllowedOrigins, compile_policy
from muxws_green.protocol.subprotocol import offer
from muxws_green.runtime.clock import default_clock as default_clock
from muxws_green.runtime.closing import CloseReason
from muxws_green.runtime.handlers import StreamHandler
from muxws_green.runtime.hooks import IncomingHeadersInterceptor, OpenInterceptor, ReplyHeadersInterceptor
from muxws_green.runtime.options import Options, checked_count, checked_seconds
from muxws_green.runtime.peer import Peer
from muxws_green.runtime.stream import checked_metadata
from muxws_green.runtime.supervisor import Hello, Supervisor
from muxws_green.settings import settings
from muxws_green.transports.acceptor import Upgraded, refuse, upgrade
from muxws_green.transports.dialer import Dialer

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse


class _Default:
    """The type of `DEFAULT`."""

    def __repr__(self) -> str:
        return "DEFAULT"


#: `heartbeat=DEFAULT`: an `IdleHeartbeat` of `ping_interval` and `ping_timeout`.
DEFAULT: Final = _Default()

#: How much longer than the cap a message may be and still be read (PROTOCOL §5).
READ_FACTOR = 2


def connect(
    url: str,
    *,
    headers: Mapping[str, str] | Iterable[tuple[str, str]] | None = None,
    subprotocols: Sequence[str] | None = None,
    hello: Any = None,
    hello_headers: Mapping[str, Any] | None = None,
    hello_timeout: float = 10.0,
    reconnect: Reconnect | IBackoffPolicy | None = None,
    retry_if: Callable[[Exception], bool] | None = None,
    heartbeat: IHeartbeatPolicy | _Default | None = DEFAULT,
    ping_interval: float = 20.0,
    ping_timeout: float = 10.0,
    open_timeout: float | None = 10.0,
    ssl_context: ssl.SSLContext | None = None,
    proxy: str | bool | None = None,
    max_payload_bytes: int = 67_108_864,
    max_concurrent_streams: int = 100,
    max_frame_bytes: int = MAX_FRAME_BYTES,
    send_buffer_bytes: int = 16_777_216,
    receive_buffer_bytes: int = 16_777_216,
    receive_pause_timeout: float = 10.0,
    error_serializer: IErrorSerializer | None = None,
    codec: ICodec | str | None = None,
    clock: IClock = default_clock,
    on_stream: StreamHandler | None = None,
    on_close: Callable[[CloseReason], object] | None = None,
    on_reconnect: Callable[[int, Peer], object] | None = None,
    open_interceptors: Sequence[OpenInterceptor] = (),
    reply_headers_interceptors: Sequence[ReplyHeadersInterceptor] = (),
    incoming_headers_interceptors: Sequence[IncomingHeadersInterceptor] = (),
) -> Peer:
    """Dial `url` and return an established peer, which from then on finds its way back after every loss.

    The first attempt is never repeated: what makes it fail is raised as it is, whatever `reconnect` says (seed A).

    Args:
        url: `ws://`, `wss://`, or `ws+unix:///path.sock:/route`. User info in it is sent as Basic authentication.
        headers: Further headers of the upgrade request.
        subprotocols: Further entries to offer behind `muxws.v1.<codec>`, such as a bearer token.
        hello: A payload sent first on every socket, captured now and by value; None for none, unless there are
            `hello_headers`. It identifies; it must not hold credentials.
        hello_headers: Its headers; alone, the payload is `null`.
        hello_timeout: Seconds in which the acceptor must acknowledge it.
        reconnect: The backoff schedule; None: `Reconnect()`, which never gives up.
        retry_if: Called with the error of a failed attempt after the first connection; False gives up for good.
        heartbeat: The heartbeat policy; None sends no pings (those that arrive are answered).
        ping_interval: Without `heartbeat`: seconds after which an idle connection is pinged; 0 or less: no pings.
        ping_timeout: Without `heartbeat`: seconds in which a ping must be answered.
        open_timeout: Seconds for DNS, TCP, TLS, proxy and upgrade together, on every dial; None: no deadline.
        ssl_context: For `wss://`; None: one that checks certificates and host names.
        proxy: The URL of an HTTP proxy; True: what the environment says; None: none, whatever it says.
        max_payload_bytes: Largest payload taken from the remote.
        max_concurrent_streams: Live streams that the remote may have here.
        max_frame_bytes: For tests only.
        send_buffer_bytes: Encoded bytes that may be queued before senders wait.
        receive_buffer_bytes: Encoded bytes that may be held before the reader pauses.
        receive_pause_timeout: Seconds that a pause may last without progress.
        error_serializer: Makes the payload of a failed handler's reset.
        codec: A codec or a registered name; None: what `settings.codec` says.
        clock: The source of time.
        on_stream, on_close, on_reconnect: As the methods of `Peer`, registered before the hello is sent.
        open_interceptors, reply_headers_interceptors, incoming_headers_interceptors: As the `intercept_…` methods.

    Raises:
        TransportUrlError: The URL cannot be dialled.
        CodecNotRegistered: No codec of that name is registered.
        ValueError, TypeError, ProtocolError: An option is wrong, the hello cannot be encoded, or its headers do not fit
            one message. Nothing has been opened up to here.
        CodecMismatch: The acceptor speaks another codec.
        HandshakeRefused: It answered with another HTTP status.
        TimeoutError: `open_timeout` has passed.
        OSError: The network.
        StreamTimeout, StreamReset: The hello was not acknowledged in time, or was reset.
    """
    peer = _dialer_peer("raise", locals())
    supervisor = peer.supervisor
    assert supervisor is not None
    supervisor.start()
    try:
        supervisor.wait_first()
    except BaseException:
        # Also whatever was thrown into the caller: nobody will ever hold this peer.
        peer._abandon()
        raise
    return peer


def keep_connected(url: str, *, on_established: Callable[[Peer], object] | None = None, **options: Any) -> Peer:
    """Return at once with a peer that dials `url` until it is told to stop: the first dial is retried like any other.

    Args:
        url: As in `connect`.
        on_established: Called with the peer for each connection that is established, the first one included, before the
            `on_reconnect` callbacks and in turn with the peer's other callbacks.
        options: As in `connect`.

    Raises:
        TransportUrlError, CodecNotRegistered, ValueError, TypeError: As in `connect`; nothing has been opened.
    """
    unknown = options.keys() - _CONNECT_DEFAULTS.keys()
    if unknown:
        raise TypeError(f"connect has no option {', '.join(sorted(unknown))}")
    peer = _dialer_peer("retry", {"url": url, **_CONNECT_DEFAULTS, **options})
    supervisor = peer.supervisor
    assert supervisor is not None
    if on_established is not None:
        supervisor.on_established = on_established
    supervisor.start()
    return peer


#: The options of `connect` with their defaults, which are written once, in its signature.
_CONNECT_DEFAULTS: Final = {
    name: parameter.default
    for name, parameter in inspect.signature(connect).parameters.items()
    if parameter.kind is inspect.Parameter.KEYWORD_ONLY
}


def _dialer_peer(first_dial: str, arguments: Mapping[str, Any]) -> Peer:
    """A peer with its Supervisor, which is still to be started; `arguments` are those of `connect`."""
    codec = resolve_codec(arguments["codec"])
    heartbeat = resolve_heartbeat(arguments["heartbeat"], arguments["ping_interval"], arguments["ping_timeout"])
    options = Options(**{**{name: arguments[name] for name in _LIMITS}, "codec": codec, "heartbeat": heartbeat})
    dialer = Dialer(
        arguments["url"],
        subprotocols=offer(codec.name, list(arguments["subprotocols"] or ())),
        headers=arguments["headers"],
        ssl_context=arguments["ssl_context"],
        proxy=arguments["proxy"],
        open_timeout=arguments["open_timeout"],
        clock=options.clock,
        max_message_bytes=READ_FACTOR * options.max_frame_bytes,
    )
    hello = capture_hello(
        codec, arguments["hello"], arguments["hello_headers"], arguments["hello_timeout"], options.max_frame_bytes
    )
    policy: IBackoffPolicy = Reconnect() if arguments["reconnect"] is None else arguments["reconnect"]
    peer = Peer(options, dialer=True)
    peer._supervisor = Supervisor(
        peer, dialer, policy, hello=hello, retry_if=arguments["retry_if"], first_dial=first_dial
    )
    for register, callback in (
        (peer.on_stream, arguments["on_stream"]),
        (peer.on_close, arguments["on_close"]),
        (peer.on_reconnect, arguments["on_reconnect"]),
    ):
        if callback is not None:
            register(callback)
    _intercept(
        peer,
        arguments["open_interceptors"],
        arguments["reply_headers_interceptors"],
        arguments["incoming_headers_interceptors"],
    )
    return peer


#: The options that `connect` and `accept` share and hand on as they are.
_LIMITS: Final = (
    "max_payload_bytes",
    "max_concurrent_streams",
    "max_frame_bytes",
    "send_buffer_bytes",
    "receive_buffer_bytes",
    "receive_pause_timeout",
    "error_serializer",
    "clock",
)


def resolve_heartbeat(
    heartbeat: IHeartbeatPolicy | _Default | None, ping_interval: float, ping_timeout: float
) -> IHeartbeatPolicy | None:
    """The heartbeat policy that the three arguments mean together.

    Raises:
        ValueError: A duration is NaN, or `ping_timeout` is not above 0.
    """
    if not isinstance(heartbeat, _Default):
        return heartbeat
    if math.isnan(ping_interval):
        raise ValueError("ping_interval must be a number of seconds, not NaN")
    if not ping_timeout > 0:
        raise ValueError(f"ping_timeout must be above 0 seconds, not {ping_timeout!r}")
    if ping_interval <= 0:
        return None
    return IdleHeartbeat(ping_interval, ping_timeout)


def capture_hello(
    codec: ICodec, payload: Any, headers: Mapping[str, Any] | None, timeout: float, max_frame_bytes: int
) -> Hello | None:
    """The hello by value, encoded once; None where neither payload nor headers were given.

    Raises:
        ValueError, TypeError: It cannot be encoded, or the timeout is no duration.
        ProtocolError: Its headers do not fit one message.
    """
    checked_seconds("hello_timeout", timeout)
    if payload is None and headers is None:
        return None
    hello = Hello(codec.encode_payload(payload), deepcopy(checked_metadata("hello_headers", headers)), timeout)
    # Its frame is made here too, so that what is wrong with the headers does not show only once a socket is open.
    envelopes = envelopes_of(codec)
    if len(envelopes.wrap("open", 1, hello.encoded, hello.headers, True)) > max_frame_bytes:
        Splitter(codec, envelopes, "open", 1, hello.encoded, hello.headers, True, None, max_frame_bytes)
    return hello


def _intercept(
    peer: Peer,
    open_interceptors: Sequence[OpenInterceptor],
    reply_headers_interceptors: Sequence[ReplyHeadersInterceptor],
    incoming_headers_interceptors: Sequence[IncomingHeadersInterceptor],
) -> None:
    for of_open in open_interceptors:
        peer.intercept_open(of_open)
    for of_reply in reply_headers_interceptors:
        peer.intercept_reply_headers(of_reply)
    for of_incoming in incoming_headers_interceptors:
        peer.intercept_incoming_headers(of_incoming)


class _AcceptOptions:
    """What `accept` may be told, judged; an application judges it once for all its requests."""

    def __init__(
        self,
        *,
        allowed_origins: AllowedOrigins | None = None,
        heartbeat: IHeartbeatPolicy | _Default | None = DEFAULT,
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

    def accept(self, environ: Any, start_response: StartResponse | None) -> tuple[Peer, Upgraded]:
        """Upgrade one request."""
        options = self.options
        if self._follows_settings and settings.codec != options.codec.name:
            # The setting is read when a connection is made, so that an application may set it after this object is
            # made.
            options = self.options = replace(options, codec=resolve_codec())
        upgraded = upgrade(
            environ,
            start_response,
            codec_name=options.codec.name,
            origins=self.origins,
            max_message_bytes=READ_FACTOR * options.max_frame_bytes,
        )
        try:
            peer = Peer(options, dialer=False)
            _intercept(peer, *self._interceptors)
            peer._finish = upgraded.finish
            peer._attach(upgraded.transport)
            upgraded.enrol(peer)
        except BaseException:
            upgraded.transport.abort(1011)
            raise
        return peer, upgraded


def accept(environ: Any, start_response: StartResponse | None = None, **options: Any) -> Peer:
    """Upgrade a WSGI request and return its peer, which is not serving yet.

    Register handlers on it, then `return peer.serve()`, whose value is the WSGI body that the host needs. The request's
    greenlet must stay until then, since the host closes the socket with it.

    Args:
        environ: The WSGI environ, or `environ["wsgi.websocket"]` where gevent-websocket has made the upgrade.
        start_response: The host's; None in a view of a framework, with `upgradable` around the whole application.
        options: Those of `WSGIApp` but `max_peers`.

    Raises:
        OriginRefused: The page that asks is of an origin that is not allowed (403). Nothing has been written.
        UpgradeRefused: The request is no such upgrade, or speaks another codec (400). Nothing has been written: answer
        it. TransportUnsupportedError: This host does not hand over its socket; the message says what would help.
        CodecNotRegistered, ValueError, TypeError: An option is wrong.
    """
    return _AcceptOptions(**options).accept(environ, start_response)[0]


def serve(environ: Any, start_response: StartResponse | None = None, *, handler: StreamHandler, **options: Any) -> Any:
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
        **options: Any,
    ) -> None:
        if not callable(handler) and not (handler is None and on_connect is not None):
            raise TypeError(f"the handler is called as handler(payload, stream); {handler!r} cannot be")
        self._handler = handler
        self._max_peers = None if max_peers is None else checked_count("max_peers", max_peers)
        self._on_connect = on_connect
        self._options = _AcceptOptions(**options)
        self._peers: set[Peer] = set()

    @property
    def peers(self) -> list[Peer]:
        """The peers that are connected now."""
        return list(self._peers)

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
        peer._on_loss(self._peers.discard)
        if self._handler is not None:
            peer.on_stream(self._handler)
        if self._on_connect is not None:
            self._on_connect(peer)
        if upgraded.detach():
            peer._serve_detached()
            return upgraded.finish()
        return peer.serve()
