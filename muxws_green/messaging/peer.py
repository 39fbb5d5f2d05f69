"""`MessagePeer`: calls by name, both ways, on one connection."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from inspect import isgenerator
from types import TracebackType
from typing import Any, TypeVar, overload

from gevent.event import Event

from muxws_green import CloseReason, ConnectionClosed, ConnectionLost, Peer, RemoteError, Stream
from muxws_green.interfaces import IClock
from muxws_green.messaging.errors import UnknownMethodError, typed

logger = logging.getLogger("muxws.messaging")

#: The stream header that names what is called.
METHOD_HEADER = "method"

Handler = Callable[["Message"], Any]
H = TypeVar("H", bound=Handler)


@dataclass(frozen=True)
class Message:
    """What a handler gets, and what `request` returns.

    Args:
        name: What was called.
        body: The body of the call, or of the answer.
        peer: The end that received it: call back through it.
        headers: The headers that came with it.
    """

    name: str
    body: Any
    peer: MessagePeer
    headers: Mapping[str, Any] = field(default_factory=dict)


class MessagePeer:
    """One end of one connection, which calls and is called by name.

    `connect`, `MessageApp` and `ReconnectingClient` make them. A `setup` function given to those registers handlers
    before any call is handled.

    Attributes:
        peer: The `Peer` below.
    """

    def __init__(self, peer: Peer, clock: IClock) -> None:
        self.peer = peer
        self._clock = clock
        self._handlers: dict[str, Handler] = {}
        self._callbacks: list[Callable[[ConnectionClosed | None], object]] = []
        self._ready = Event()
        self._closed = Event()
        self._cause: ConnectionClosed | None = None

    def __repr__(self) -> str:
        return f"<MessagePeer of {self.peer!r}>"

    # Being called

    @overload
    def on(self, name: str, handler: H) -> H: ...

    @overload
    def on(self, name: str, handler: None = None) -> Callable[[H], H]: ...

    def on(self, name: str, handler: H | None = None) -> H | Callable[[H], H]:
        """Have `handler(message)` answer the calls of `name`; a decorator too. Another one of that name replaces it.

        What it returns is the body of the answer. A generator's values are answers one after another, for `stream`.
        What it
        raises reaches the caller as RemoteError.
        """

        def register(function: H) -> H:
            self._handlers[name] = function
            return function

        return register if handler is None else register(handler)

    def handle(self, payload: Any, stream: Stream) -> None:
        """Answer one call; the `on_stream` handler of the peer below."""
        self._ready.wait()
        name = stream.headers.get(METHOD_HEADER)
        handler = self._handlers.get(name) if isinstance(name, str) else None
        if handler is None or not isinstance(name, str):
            raise UnknownMethodError(f"no method {name!r:.100}")
        answer = handler(Message(name, payload, self, stream.headers))
        if not isgenerator(answer):
            stream.reply(answer)
            return
        try:
            for item in answer:
                stream.send(item)
        finally:
            answer.close()

    def begin(self, setup: Callable[[MessagePeer], object] | None) -> None:
        """Run `setup(self)` and then handle calls; a setup that raises is logged."""
        try:
            if setup is not None:
                setup(self)
        except Exception:
            logger.exception("muxws conn=%s setup raised; the connection goes on without it", self.peer.id)
        finally:
            self._ready.set()

    # Calling

    def request(self, name: str, body: Any = None, timeout: float | None = None) -> Message:
        """Call `name` and wait for its one answer.

        Args:
            name: What to call.
            body: The body of the call.
            timeout: Seconds to wait; None for ever.

        Returns:
            The answer.

        Raises:
            UnknownMethodError: The other end has no such method.
            BadBodyError: The method refused the body.
            RemoteError: The method raised.
            StreamTimeout: The time has passed; the other end was told to stop.
            StreamRefused: The other end did not take the call; it may be made again.
            ConnectionClosed: The connection ended; `__cause__` is what ended it, such as `HeartbeatTimeoutError`.
            ProtocolError: The method answered with none or with several bodies; use `stream` for those.
            TypeError, ValueError: The codec cannot carry the body.
        """
        with _as_caller_sees_it():
            answer = self.peer.request(body, headers={METHOD_HEADER: name}, timeout=timeout)
        return Message(name, answer, self)

    def push(self, name: str, body: Any = None) -> None:
        """Call `name` and want no answer.

        Raises:
            ConnectionClosed: There is no connection.
            TypeError, ValueError: The codec cannot carry the body.
        """
        with _as_caller_sees_it():
            self.peer.notify(body, headers={METHOD_HEADER: name})

    def stream(self, name: str, body: Any = None) -> Iterator[Any]:
        """Call `name` and iterate over the bodies of its answers. Leaving the iteration stops the method.

        Raises:
            ConnectionClosed, RemoteError, StreamRefused: As `request`, also while iterating.
        """
        with _as_caller_sees_it():
            stream = self.peer.open(body, headers={METHOD_HEADER: name}, end=True)
        return self._bodies(stream)

    def _bodies(self, stream: Stream) -> Iterator[Any]:
        with stream:
            rows = iter(stream)
            while True:
                with _as_caller_sees_it():
                    try:
                        row = next(rows)
                    except StopIteration:
                        return
                yield row

    # The end

    def on_close(self, callback: Callable[[ConnectionClosed | None], object]) -> None:
        """Call `callback(cause)` once when the connection has ended: None after a clean close, else the error that
        ended it. Registered later than that it is called at once.
        """
        if self._closed.is_set():
            self._call(callback)
        else:
            self._callbacks.append(callback)

    def close(self) -> None:
        """Let calls in progress finish, for 10 seconds, and close the connection."""
        self.peer.close()

    def wait_closed(self, timeout: float | None = None) -> None:
        """Wait until the connection has ended.

        Args:
            timeout: Seconds to wait; None for ever.

        Raises:
            TimeoutError: The time has passed.
        """
        wait(self._closed, self._clock, timeout, "the connection is still open")

    def ended(self, reason: CloseReason) -> None:
        """The connection is gone; an `on_close` callback of the peer below."""
        if self._closed.is_set():
            return
        self._cause = None if reason.was_clean else self.peer.close_cause
        self._ready.set()
        self._closed.set()
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            self._call(callback)

    def _call(self, callback: Callable[[ConnectionClosed | None], object]) -> None:
        try:
            callback(self._cause)
        except Exception:
            logger.exception("muxws conn=%s an on_close callback raised", self.peer.id)

    def __enter__(self) -> MessagePeer:
        """Close on leaving; after an exception, without waiting."""
        self.peer.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.peer.__exit__(kind, error, trace)


class _as_caller_sees_it:  # noqa: N801 - used like a function
    """Turns the errors of streams into those of calls."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, ConnectionLost):
            raise closed_error(error) from error.__cause__
        if isinstance(error, RemoteError):
            told = typed(error)
            if told is not error:
                raise told from None


def closed_error(lost: ConnectionLost) -> ConnectionClosed:
    """The `ConnectionClosed` that a call raises for a lost stream; its cause is to be the lost stream's."""
    cause = lost.__cause__
    if isinstance(cause, ConnectionClosed):
        return ConnectionClosed(str(lost), code=cause.code, reason=cause.reason, was_clean=cause.was_clean)
    return ConnectionClosed(str(lost))


def wait(event: Event, clock: IClock, timeout: float | None, what: str) -> None:
    """Wait for `event`, for `timeout` seconds of `clock`.

    Raises:
        TimeoutError: It has not been set by then; `what` is the text.
    """
    if timeout is None or event.is_set():
        event.wait()
        return
    woken = Event()
    event.rawlink(lambda _event: woken.set())
    timer = clock.call_later(timeout, woken.set)
    try:
        woken.wait()
    finally:
        timer.cancel()
    if not event.is_set():
        raise TimeoutError(f"{what} after {timeout} s")
