"""What an application hangs on a peer, and how it is told: handlers, callbacks, hooks, interceptors and tags.

All of it belongs to the peer and outlives its sockets. `Peer` is the only one to use this.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar, overload

from gevent.event import Event

from muxws_green.runtime.closing import Callbacks, CloseReason
from muxws_green.runtime.guard import guarded
from muxws_green.runtime.handlers import StreamHandler
from muxws_green.runtime.hooks import (
    NO_HOOKS,
    FrameHook,
    Hooks,
    IncomingHeadersInterceptor,
    OpenInterceptor,
    ReplyHeadersInterceptor,
)
from muxws_green.runtime.identity import new_connection_id
from muxws_green.runtime.options import check_callable
from muxws_green.runtime.waitable import Waitable

logger = logging.getLogger("muxws.peer")

T = TypeVar("T")
H = TypeVar("H", bound=Callable[..., Any])


class Registrations(Waitable):
    """The registering half of `Peer`."""

    def __init__(self) -> None:
        self.id = new_connection_id()
        self._hooks = NO_HOOKS
        #: None where nobody has asked for them yet.
        self._tags: dict[str, Any] | None = None
        self._handler: StreamHandler | None = None
        self._stops_handler = True
        self._close_callbacks: tuple[Callable[[CloseReason], object], ...] = ()
        self._reconnect_callbacks: tuple[Callable[[int, Any], object], ...] = ()
        # Most peers have nobody to call, and nobody who waits for their end.
        self._callbacks: Callbacks | None = None
        self._final: CloseReason | None = None
        self._closed: Event | None = None

    @property
    def tags(self) -> dict[str, Any]:
        """The application's dict; the library never reads it, but for a registry that the peer is registered in."""
        if self._tags is None:
            self._tags = {}
        return self._tags

    @tags.setter
    def tags(self, tags: dict[str, Any]) -> None:
        self._tags = tags

    def _done_event(self) -> Event:
        if self._closed is None:
            self._closed = Event()
            if self._final is not None:
                self._closed.set()
        return self._closed

    @overload
    def on_stream(self, handler: H, *, stop: bool = True) -> H: ...

    @overload
    def on_stream(self, handler: None = None, *, stop: bool = True) -> Callable[[H], H]: ...

    def on_stream(self, handler: H | None = None, *, stop: bool = True) -> H | Callable[[H], H]:
        """Register the handler of streams that the remote opens; a decorator too.

        It is called as `handler(payload, stream)`, each time in a greenlet of its own. What it raises reaches the
        opener as RemoteError; a stream that it leaves open is ended for it. There is one handler: another replaces it
        and is logged.

        Args:
            handler: A plain blocking function.
            stop: Whether a handler whose stream ends under it is stopped, by `HandlerStopped` at its next wait.
        """

        def register(function: H) -> H:
            check_callable("the on_stream handler", function)
            if self._handler is not None:
                logger.warning("muxws conn=%s the on_stream handler is replaced by %r", self.id, function)
            self._handler, self._stops_handler = function, stop
            return function

        return register if handler is None else register(handler)

    def on_close(self, callback: Callable[[CloseReason], T]) -> Callable[[CloseReason], T]:
        """Call `callback(CloseReason)` at each loss of a socket; a decorator too.

        Registered on a peer that `is_closed`, it is called before this returns, with the last reason. Callbacks run one
        after another in a greenlet of their own and may block; what they raise is logged.
        """
        check_callable("an on_close callback", callback)
        self._close_callbacks += (callback,)
        final = self._final
        if final is not None:
            guarded(lambda: callback(final), "muxws conn=%s the on_close callback %r raised", self.id, callback)
        return callback

    def on_reconnect(self, callback: Callable[[int, Any], T]) -> Callable[[int, Any], T]:
        """Call `callback(attempt, peer)` for each connection that is established again, counted from 1; a decorator
        too.

        When it runs the hello has been acknowledged. No stream survived; open anew what is needed.
        """
        check_callable("an on_reconnect callback", callback)
        self._reconnect_callbacks += (callback,)
        return callback

    def on_frame(self, hook: FrameHook) -> FrameHook:
        """Call `hook(direction, frame, byte_length)` for every frame, `"tx"` or `"rx"`; a decorator too.

        It runs in the reader and the writer and must not block. What it raises is logged.
        """
        self._own_hooks().on_frame(hook)
        return hook

    def intercept_open(self, interceptor: OpenInterceptor) -> Callable[[], None]:
        """Call `interceptor(headers, payload)` for each stream opened here; it changes `headers` in place.

        One that raises fails that call, and nothing is sent. Not called for the hello.

        Returns:
            A function that removes exactly this registration.
        """
        return self._own_hooks().intercept_open(interceptor)

    def intercept_reply_headers(self, interceptor: ReplyHeadersInterceptor) -> Callable[[], None]:
        """Call `interceptor(headers, stream)` before this end's first frame on a stream of the remote's; it changes
        `headers` in place. One that raises fails that call, and nothing is sent.

        Returns:
            A function that removes exactly this registration.
        """
        return self._own_hooks().intercept_reply_headers(interceptor)

    def intercept_incoming_headers(self, interceptor: IncomingHeadersInterceptor) -> Callable[[], None]:
        """Call `interceptor(headers, stream)` with the remote's leading headers, read-only, once for each stream.

        It runs in the reader and must not block. What it raises is logged.

        Returns:
            A function that removes exactly this registration.
        """
        return self._own_hooks().intercept_incoming_headers(interceptor)

    def _own_hooks(self) -> Hooks:
        """Where to register something."""
        if self._hooks is NO_HOOKS:
            self._hooks = Hooks()
        return self._hooks

    def _report_close(self, reason: CloseReason) -> None:
        """Tell the `on_close` callbacks; the last time, once, with `will_retry=False`. Never switches."""
        if self._final is not None:
            return
        if not reason.will_retry:
            self._final = reason
            if self._closed is not None:
                self._closed.set()
        for callback in self._close_callbacks:
            self._call_back(lambda callback=callback: callback(reason))  # type: ignore[misc]

    def _report_reconnect(self, attempt: int) -> None:
        for callback in self._reconnect_callbacks:
            self._call_back(lambda callback=callback: callback(attempt, self))  # type: ignore[misc]

    def _call_back(self, callback: Callable[[], object]) -> None:
        self._callbacks = self._callbacks or Callbacks(self)
        self._callbacks.add(callback)

    @property
    def _in_callback(self) -> bool:
        """Whether the caller is a callback of this peer."""
        return self._callbacks is not None and self._callbacks.is_current
