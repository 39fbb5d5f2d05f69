"""What an application hangs on a peer: frame observers and header interceptors (PROTOCOL §9).

They belong to the peer, not to one of its sockets. They run where frames pass, so they must not block; what they raise
never costs more than the call, or the log line, that it belongs to.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from muxws_green.interfaces import IEnvelopeCodec
from muxws_green.protocol.frames import FRAME_TYPES, Frame, from_mapping
from muxws_green.runtime.checks import checked_metadata
from muxws_green.runtime.guard import guarded
from muxws_green.runtime.options import check_callable

if TYPE_CHECKING:
    from muxws_green.runtime.stream import Stream

frame_logger = logging.getLogger("muxws.frames")
#: `logs_frames(logging.DEBUG)`: whether frames are logged at this moment.
logs_frames = frame_logger.isEnabledFor
logger = logging.getLogger("muxws.peer")

FrameHook = Callable[[str, Frame, int], object]
OpenInterceptor = Callable[[dict[str, Any], Any], object]
ReplyHeadersInterceptor = Callable[[dict[str, Any], "Stream"], object]
IncomingHeadersInterceptor = Callable[[Mapping[str, Any], "Stream"], object]

#: Handlers whose discarded return value has been logged: a server has one handler and many peers.
_discards: WeakSet[Any] = WeakSet()


class Hooks:
    """The observers and interceptors of one peer; or `NO_HOOKS`, that of all which have none."""

    __slots__ = ("_discards", "_open", "_reply", "incoming", "observers")

    def __init__(self) -> None:
        #: Of frames.
        self.observers: tuple[FrameHook, ...] = ()
        self._open: dict[object, OpenInterceptor] = {}
        self._reply: dict[object, ReplyHeadersInterceptor] = {}
        #: Interceptors of the remote's headers; `incoming_headers` calls them.
        self.incoming: dict[object, IncomingHeadersInterceptor] = {}
        self._discards: tuple[int, ...] = ()

    def on_frame(self, hook: FrameHook) -> None:
        """Call `hook(direction, frame, byte_length)` for every frame."""
        check_callable("an on_frame hook", hook)
        self.observers += (hook,)

    def intercept_open(self, interceptor: OpenInterceptor) -> Callable[[], None]:
        """Register for the headers of streams opened here."""
        return _register(self._open, interceptor)

    def intercept_reply_headers(self, interceptor: ReplyHeadersInterceptor) -> Callable[[], None]:
        """Register for the leading headers of answers sent here."""
        return _register(self._reply, interceptor)

    def intercept_incoming_headers(self, interceptor: IncomingHeadersInterceptor) -> Callable[[], None]:
        """Register for the leading headers that the remote sends."""
        return _register(self.incoming, interceptor)

    def frame(self, connection_id: str, direction: str, envelope: Mapping[str, Any], byte_length: int) -> None:
        """Show one frame to the observers and to the log."""
        frame = from_mapping(dict(envelope))
        for hook in self.observers:
            guarded(
                lambda hook=hook: hook(direction, frame, byte_length),  # type: ignore[misc]
                "muxws conn=%s an on_frame hook raised",
                connection_id,
            )
        if logs_frames(logging.DEBUG):
            line = frame_line(connection_id, direction, frame, byte_length)
            guarded(lambda: frame_logger.debug(line), "muxws conn=%s a log handler raised", connection_id)

    def sent(self, connection_id: str, batch: list[bytes], envelopes: IEnvelopeCodec, binary: bool) -> None:
        """Show what is about to be written, decoded as the remote will see it."""

        def show() -> None:
            for message in batch:
                envelope = envelopes.unwrap(message if binary else message.decode("utf-8", "surrogatepass"))
                self.frame(connection_id, "tx", envelope, len(message))

        guarded(show, "muxws conn=%s frames could not be shown", connection_id)

    def open_headers(self, headers: Mapping[str, Any] | None, payload: Any) -> dict[str, Any] | None:
        """The headers of an `open` as the interceptors leave them; None where there are none."""
        return self._outgoing(self._open, headers, payload) if self._open or headers is not None else None

    def reply_headers(self, headers: Mapping[str, Any] | None, stream: Stream) -> dict[str, Any] | None:
        """The leading headers of an answer as the interceptors leave them; None where there are none."""
        return self._outgoing(self._reply, headers, stream) if self._reply or headers is not None else None

    def _outgoing(
        self, interceptors: dict[object, Any], headers: Mapping[str, Any] | None, about: Any
    ) -> dict[str, Any] | None:
        copied = checked_metadata("headers", headers)
        if not interceptors:
            return copied
        working = copied if copied is not None else {}
        for interceptor in list(interceptors.values()):
            interceptor(working, about)
        if not working and headers is None:
            return None
        return checked_metadata("headers", working)

    def incoming_headers(self, connection_id: str, headers: Mapping[str, Any] | None, stream: Stream) -> None:
        """Show the remote's leading headers, an empty mapping where it sent none."""
        view = MappingProxyType(dict(headers or {}))
        for interceptor in list(self.incoming.values()):
            guarded(
                lambda interceptor=interceptor: interceptor(view, stream),  # type: ignore[misc]
                "muxws conn=%s stream=%s an incoming headers interceptor raised",
                connection_id,
                stream.id,
            )

    def result_discarded(self, handler: object, result: object) -> None:
        """Log once per handler that what it returned went nowhere."""
        # A bound method is made anew whenever somebody asks for it.
        function = getattr(handler, "__func__", handler)
        try:
            told = function in _discards
            _discards.add(function)
        except TypeError:
            # It can be neither hashed nor referred to weakly, so it is told of once for this peer.
            told = id(handler) in self._discards
            self._discards += (id(handler),)
        if not told:
            logger.warning(
                "muxws: the on_stream handler %r returned a %s, which is discarded; answer with stream.reply()",
                handler,
                type(result).__name__,
            )


#: Those of the peers that have none, as most do; nobody registers in it.
NO_HOOKS: Final = Hooks()


def _register(entries: dict[object, Any], entry: Any) -> Callable[[], None]:
    check_callable("an interceptor", entry)
    token = object()
    entries[token] = entry

    def remove() -> None:
        entries.pop(token, None)

    return remove


def frame_line(connection_id: str, direction: str, frame: Frame, byte_length: int) -> str:
    """The log line of one frame, never with payload contents (PROTOCOL §9)."""
    # An unknown type is the remote's own text: shown as repr, so that it cannot forge a line.
    kind = frame.type if frame.type in FRAME_TYPES else repr(frame.type)[:32]
    parts = [f"muxws conn={connection_id} dir={direction} type={kind:<6}"]
    if frame.stream is not None:
        parts.append(f"stream={frame.stream}")
    if frame.type in ("open", "data"):
        parts.append(f"end={int(frame.end)}")
    parts.append(f"bytes={byte_length}")
    if frame.fragment is not None:
        parts.append(f"frag={'more' if frame.more else 'last'}")
    if frame.headers:
        parts.append(f"headers={len(frame.headers)}")
    if frame.code is not None:
        parts.append(f"code={frame.code}")
    if frame.last_stream is not None:
        parts.append(f"last={frame.last_stream}")
    if frame.reason:
        parts.append(f"reason={frame.reason!r}")
    return " ".join(parts)
