"""`MessagePeer`: calls by name, both ways, on one connection.

It is the connection's and ends with it: one that a `ReconnectingClient` had before it dialled again makes no more
calls, though the `Peer` below it lives on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from inspect import isasyncgen, isasyncgenfunction, iscoroutine, iscoroutinefunction, isgenerator
from types import TracebackType
from typing import Any, TypeVar, overload

from gevent.event import Event
from greenlet import GreenletExit

from muxws_green import CloseReason, ConnectionClosed, Peer, RemoteError, ResetCode, Stream
from muxws_green.api import Callbacks
from muxws_green.interfaces import IClock
from muxws_green.messaging.answers import Answers
from muxws_green.messaging.errors import (
    VERDICTS,
    BadAnswerError,
    UnknownMethodError,
    as_callers_see_it,
    closed_error,
)
from muxws_green.messaging.waiting import deadline, wait

logger = logging.getLogger("muxws.messaging")

#: The stream header that names what is called.
METHOD_HEADER = "method"

#: What codecs raise for a value that they cannot carry (`ICodec`).
_NOT_ENCODABLE = (TypeError, ValueError, OverflowError, RecursionError)

Handler = Callable[["Message"], Any]
Setup = Callable[["MessagePeer"], object]
H = TypeVar("H", bound=Handler)
C = TypeVar("C", bound=Callable[[ConnectionClosed | None], object])


@dataclass(frozen=True)
class Message:
    """What a handler gets, and what `request` returns.

    Args:
        name: What was called.
        body: The body of the call, or of the answer.
        peer: The end that received it: call back through it.
        headers: The headers that came with a call, `method` among them; empty for an answer.
    """

    name: str
    body: Any
    peer: MessagePeer
    headers: Mapping[str, Any] = field(default_factory=dict)


class MessagePeer:
    """One end of one connection, which calls and is called by name.

    `connect`, `MessageApp` and `ReconnectingClient` make them. A `setup` function given to those registers handlers
    before any call is handled.

    Args:
        peer: The `Peer` below, with the connection as its present one.
        clock: Measures the timeouts of `wait_closed`.
        close: Closes the connection, as `Peer.close` does with `drain`; None: that.

    Attributes:
        peer: The `Peer` below.
        id: Names the connection in logs.
    """

    def __init__(self, peer: Peer, clock: IClock, close: Callable[[float], object] | None = None) -> None:
        self.peer = peer
        self.id = peer.id
        self._clock = clock
        self._close = close
        self._handlers: dict[str, Handler] = {}
        self._callbacks: list[Callable[[ConnectionClosed | None], object]] = []
        self._turns: Callbacks | None = None
        self._ready = Event()
        self._turned_away = False
        self._ended = Event()
        self._cause: ConnectionClosed | None = None

    def __repr__(self) -> str:
        return f"<MessagePeer {self.id} {'closed' if self.is_closed else 'open'}>"

    @property
    def is_closed(self) -> bool:
        """Whether the connection has ended, whether or not anybody has been told yet."""
        return self._ended.is_set() or self.peer.is_closed

    # Being called

    @overload
    def on(self, name: str, handler: H) -> H: ...

    @overload
    def on(self, name: str, handler: None = None) -> Callable[[H], H]: ...

    def on(self, name: str, handler: H | None = None) -> H | Callable[[H], H]:
        """Have `handler(message)` answer the calls of `name`; a decorator too. Another one of that name replaces it.

        Each call has a greenlet of its own, in which the handler may block and call back through `message.peer`. What
        it returns is the body of the answer; of a push that goes nowhere. A generator's values are answers one after
        another, for `stream`. What it raises reaches the caller as RemoteError, or as BadBodyError where it raises that
        for a body that makes no sense. When the caller leaves or the connection ends, it is stopped at its next wait.

        Args:
            name: What callers name.
            handler: A plain blocking function of one `Message`; not async.

        Raises:
            TypeError: `name` is no str, or `handler` cannot be called so.
        """
        if not isinstance(name, str):
            raise TypeError(f"what is called has a str as its name, not {name!r}")

        def register(function: H) -> H:
            if not callable(function) or iscoroutinefunction(function) or isasyncgenfunction(function):
                raise TypeError(f"a handler is a plain blocking function of one message; {function!r} is none")
            self._handlers[name] = function
            return function

        return register if handler is None else register(handler)

    def _handle(self, payload: Any, stream: Stream) -> None:
        """Answer one call; the `on_stream` handler of the peer below. Before `setup` has run, calls wait here."""
        self._ready.wait()
        if self._turned_away:
            stream.reset(ResetCode.REFUSED, "this end is going away")
            return
        name = stream.headers.get(METHOD_HEADER)
        if name is None:
            raise UnknownMethodError(f"the call has no header {METHOD_HEADER!r} to say what is called")
        handler = self._handlers.get(name) if isinstance(name, str) else None
        if handler is None:
            raise UnknownMethodError(f"no method {name!r:.100}")
        try:
            _answer(handler(Message(name, payload, self, stream.headers)), stream, name)
        except VERDICTS as error:
            if error.stream_id is None:
                raise
            # Said of a call that the handler made; the caller must not take it for one of its own.
            raise RemoteError(f"{name!r:.100} made a call that failed: {type(error).__name__}: {error}") from error

    def _begin(self, setup: Setup | None) -> None:
        """Run `setup(self)` and then handle calls; a setup that raises is logged.

        What is addressed to the program, and a kill of this greenlet, passes through.
        """
        try:
            if setup is not None:
                setup(self)
        except (KeyboardInterrupt, SystemExit, GreenletExit):
            raise
        except BaseException:
            # A stray `gevent.Timeout`, which is no Exception, must not cost the connection either.
            logger.exception("muxws conn=%s setup raised; the connection goes on without the rest of it", self.id)
        finally:
            self._ready.set()

    def _turn_away(self) -> None:
        """Refuse the calls that wait for a `setup` which will not run any more."""
        self._turned_away = True
        self._ready.set()

    # Calling

    def request(self, name: str, body: Any = None, timeout: float | None = None) -> Message:
        """Call `name` and wait for its one answer.

        Args:
            name: What to call.
            body: Whatever the codec can encode.
            timeout: Seconds for everything; None for ever.

        Returns:
            The answer.

        Raises:
            UnknownMethodError: The other end has no such method.
            BadBodyError: The method refused the body.
            BadAnswerError: The method answered with what the codec cannot carry.
            RemoteError: The method raised.
            StreamTimeout: The time has passed; the other end was told to stop.
            StreamRefused: The other end did not take the call; it may be made again.
            StreamReset: It ended the call otherwise.
            ConnectionClosed: The connection has ended, before the call or during it; `__cause__` is what ended it, such
                as `HeartbeatTimeoutError`. Whether a call in flight was carried out nobody knows.
            ConnectionGoingAway: One of the ends is going away and takes no new calls.
            ProtocolError: The method answered with no body or with several; use `stream` for those.
            TypeError, ValueError, OverflowError, RecursionError: The codec cannot carry the body, or `name` is no str.
                Nothing was sent.
        """
        headers = self._headers(name)
        with as_callers_see_it:
            answer = self.peer.request(body, headers=headers, timeout=timeout)
        return Message(name, answer, self)

    def push(self, name: str, body: Any = None) -> None:
        """Call `name` and want no answer: it returns when the call is queued, and nothing tells what becomes of it.

        Args:
            name: What to call.
            body: Whatever the codec can encode.

        Raises:
            ConnectionClosed, ConnectionGoingAway, TypeError, ValueError, OverflowError, RecursionError: As `request`.
        """
        headers = self._headers(name)
        with as_callers_see_it:
            self.peer.notify(body, headers=headers)

    def stream(self, name: str, body: Any = None) -> Answers:
        """Call `name` and iterate over the bodies of its answers. Leaving the iteration stops the method.

        Args:
            name: What to call; its handler yields.
            body: Whatever the codec can encode.

        Raises:
            ConnectionClosed, ConnectionGoingAway, TypeError, ValueError, OverflowError, RecursionError: As `request`;
                what becomes of the call is raised by the iteration.
        """
        headers = self._headers(name)
        with as_callers_see_it:
            return Answers(self.peer.open(body, headers=headers, end=True))

    def _headers(self, name: str) -> dict[str, Any]:
        """The headers of a call on this connection.

        Raises:
            TypeError: `name` is no str.
            ConnectionClosed: The peer below has another connection by now.
        """
        if not isinstance(name, str):
            raise TypeError(f"what is called has a str as its name, not {name!r}")
        if self.peer.id != self.id:
            raise closed_error(f"the connection {self.id} has ended: {self._cause}", self._cause)
        return {METHOD_HEADER: name}

    # The end

    def on_close(self, callback: C) -> C:
        """Call `callback(cause)` once when the connection has ended: None after a clean close, else the error that
        ended it; a decorator too.

        Registered later than that it is called all the same, soon. Callbacks run one after another in a greenlet of
        their own and may block; what they raise is logged.
        """
        if self._turns is None:
            self._callbacks.append(callback)
        else:
            self._turns.add(partial(callback, self._told))
        return callback

    def close(self, drain: float = 10.0) -> None:
        """Take no more calls, let those in progress finish, and close the connection.

        Returns when that is done; at once where it is called from a callback of this peer. The peer of a
        `ReconnectingClient` closes this connection alone, and the client dials again.

        Args:
            drain: Seconds that calls may take to finish; 0 for none.

        Raises:
            ValueError: `drain` is negative or NaN.
        """
        if self._close is None:
            self.peer.close(drain=drain)
        else:
            self._close(drain)

    def wait_closed(self, timeout: float | None = None) -> None:
        """Wait until the connection has ended.

        Args:
            timeout: Seconds to wait; None for ever.

        Raises:
            TimeoutError: The time has passed.
            ValueError: `timeout` is negative or NaN.
        """
        if not wait(self._ended, self._clock, deadline(self._clock, timeout)):
            raise TimeoutError(f"the connection {self.id} is still open after {timeout} s")

    @property
    def _told(self) -> ConnectionClosed | None:
        """What `on_close` callbacks are told."""
        return None if self._cause is None or self._cause.was_clean else self._cause

    def _over(self, _reason: CloseReason) -> None:
        """The connection is gone, and it was the peer's only one; an `on_close` callback of the peer below."""
        self._end(self.peer.close_cause, Callbacks(self))

    def _end(self, cause: ConnectionClosed | None, turns: Callbacks) -> None:
        """The connection is gone; the callbacks are called by `turns`. Never switches."""
        self._cause = cause
        self._turns = turns
        self._ended.set()
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            turns.add(partial(callback, self._told))

    def __enter__(self) -> MessagePeer:
        """Close on leaving; after an exception, without waiting."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._close is None:
            # Besides, it stops the calls that nobody waits for.
            self.peer.__exit__(kind, error, trace)
        else:
            self.close(0.0 if error is not None else 10.0)


def _answer(answer: Any, stream: Stream, name: str) -> None:
    """Send what a handler has returned."""
    if isgenerator(answer):
        _answer_each(answer, stream, name)
    elif iscoroutine(answer) or isasyncgen(answer):
        if iscoroutine(answer):
            # Otherwise Python warns that nobody has awaited it.
            answer.close()
        raise TypeError(f"the handler of {name!r:.100} is async; handlers are plain blocking functions")
    else:
        _carried(partial(stream.reply, answer), name)


def _answer_each(bodies: Iterator[Any], stream: Stream, name: str) -> None:
    try:
        for body in bodies:
            _carried(partial(stream.send, body), name)
    finally:
        # At once, also where the generator is still referred to from a traceback.
        bodies.close()  # type: ignore[attr-defined]


def _carried(send: Callable[[], object], name: str) -> None:
    try:
        send()
    except _NOT_ENCODABLE as error:
        raise BadAnswerError(f"the answer of {name!r:.100} cannot be sent: {error}") from error
