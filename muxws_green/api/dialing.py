"""`connect`, and `keep_connected` for what retries from its first dial on.

Every option is checked, the codec found and the hello encoded before a socket is opened.
"""

from __future__ import annotations

import inspect
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from operator import is_, itemgetter
from typing import Any, Final
from weakref import WeakValueDictionary

from muxws_green.api.options import DEFAULT, LIMITS, READ_FACTOR, Default, intercept, resolve_heartbeat
from muxws_green.codecs.envelopes import envelopes_of
from muxws_green.codecs.registry import resolve_codec
from muxws_green.interfaces import IBackoffPolicy, IClock, ICodec, IErrorSerializer, IHeartbeatPolicy
from muxws_green.protocol.backoff import Reconnect
from muxws_green.protocol.fragments import MAX_FRAME_BYTES, Splitter
from muxws_green.protocol.subprotocol import offer
from muxws_green.runtime.checks import checked_metadata
from muxws_green.runtime.clock import default_clock
from muxws_green.runtime.closing import CloseReason
from muxws_green.runtime.handlers import StreamHandler
from muxws_green.runtime.hooks import IncomingHeadersInterceptor, OpenInterceptor, ReplyHeadersInterceptor
from muxws_green.runtime.options import Options, checked_seconds
from muxws_green.runtime.peer import Peer
from muxws_green.runtime.plan import Hello, Plan
from muxws_green.runtime.session import Session
from muxws_green.runtime.supervisor import Supervisor
from muxws_green.transports.dialer import Dialer
from muxws_green.transports.urls import may_be_shared


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
    heartbeat: IHeartbeatPolicy | Default | None = DEFAULT,
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


def keep_connected(url: str, *, on_established: Callable[[Session], object], **options: Any) -> Peer:
    """Return at once with a peer that dials `url` until it is told to stop: the first dial is retried like any other.

    Args:
        url: As in `connect`.
        on_established: Called with each connection as it is established, the first one included; it must neither
            switch nor raise.
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
    supervisor.on_established = on_established
    supervisor.start()
    return peer


#: The options of `connect` with their defaults, which are written once, in its signature.
_CONNECT_DEFAULTS: Final = {
    name: parameter.default
    for name, parameter in inspect.signature(connect).parameters.items()
    if parameter.kind is inspect.Parameter.KEYWORD_ONLY
}


#: What becomes part of the options, but for the codec.
_SETTINGS: Final = (*LIMITS, "heartbeat", "ping_interval", "ping_timeout")
#: What a plan is made of, besides the URL and the codec; with the defaults.
_PLANNED: Final = (
    *_SETTINGS,
    "headers",
    "subprotocols",
    "hello",
    "hello_headers",
    "hello_timeout",
    "reconnect",
    "open_timeout",
    "ssl_context",
    "proxy",
)
_planned: Final = itemgetter(*_PLANNED)
_PLANNED_DEFAULTS: Final = _planned(_CONNECT_DEFAULTS)
_RECONNECT: Final = Reconnect()


#: Plans in use in which all but URL and codec is at its default, by URL and the identity of the codec, which is nobody
#: else's as long as they refer to it.
_plans: WeakValueDictionary[tuple[str, int], Plan] = WeakValueDictionary()
#: Options in use, in which all but the codec is at its default, likewise.
_default_options: WeakValueDictionary[int, Options] = WeakValueDictionary()


def _dialer_peer(first_dial: str, arguments: Mapping[str, Any]) -> Peer:
    """A peer with its Supervisor, which is still to be started; `arguments` are those of `connect`."""
    plan = _plan_for(arguments)
    peer = Peer(plan.options, dialer=True)
    peer._supervisor = Supervisor(peer, plan, retry_if=arguments["retry_if"], first_dial=first_dial)
    for register, callback in (
        (peer.on_stream, arguments["on_stream"]),
        (peer.on_close, arguments["on_close"]),
        (peer.on_reconnect, arguments["on_reconnect"]),
    ):
        if callback is not None:
            register(callback)
    intercept(
        peer,
        arguments["open_interceptors"],
        arguments["reply_headers_interceptors"],
        arguments["incoming_headers_interceptors"],
    )
    return peer


def _plan_for(arguments: Mapping[str, Any]) -> Plan:
    url, codec = arguments["url"], resolve_codec(arguments["codec"])
    if not (isinstance(url, str) and may_be_shared(url) and all(map(is_, _planned(arguments), _PLANNED_DEFAULTS))):
        return _make_plan(codec, arguments)
    plan = _plans.get((url, id(codec)))
    if plan is None:
        plan = _plans[url, id(codec)] = _make_plan(codec, arguments)
    return plan


def _make_plan(codec: ICodec, arguments: Mapping[str, Any]) -> Plan:
    options = _options_for(codec, arguments)
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
    policy: IBackoffPolicy = _RECONNECT if arguments["reconnect"] is None else arguments["reconnect"]
    return Plan(options, dialer, policy, hello)


def _options_for(codec: ICodec, arguments: Mapping[str, Any]) -> Options:
    """The options that the arguments mean: where all are the defaults, those of another dialer with that codec."""
    are_defaults = all(arguments[name] is _CONNECT_DEFAULTS[name] for name in _SETTINGS)
    options = _default_options.get(id(codec)) if are_defaults else None
    if options is None:
        heartbeat = resolve_heartbeat(arguments["heartbeat"], arguments["ping_interval"], arguments["ping_timeout"])
        options = Options(**{**{name: arguments[name] for name in LIMITS}, "codec": codec, "heartbeat": heartbeat})
        if are_defaults:
            _default_options[id(codec)] = options
    return options


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
