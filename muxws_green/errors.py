"""Every error of this library, on one screen.

Whose fault it is shows in the type: `ProtocolError` and its kin report a broken rule, `ConnectionClosed` the end
of a connection, `StreamReset` the end of one stream, `CodecError` and the transport errors a wrong configuration.
PROTOCOL §12 is the source of the tree, PROTOCOL §3 of the reset codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any


class ResetCode(IntEnum):
    """The numbers that `reset` and `goaway` frames carry. 5 is retired; any other number is an unknown code."""

    NO_ERROR = 0
    CANCELLED = 1
    APPLICATION_ERROR = 2
    PROTOCOL_ERROR = 3
    REFUSED = 4
    TIMEOUT = 6
    PAYLOAD_TOO_LARGE = 7
    INTERNAL_ERROR = 8
    #: Made here when the socket dies; never on the wire.
    CONNECTION_CLOSED = 9


class MuxwsError(Exception):
    """Root of every error that this library raises."""


class ProtocolError(MuxwsError):
    """A rule of `muxws.v1` was broken, by this end's caller or by the remote."""


class ConnectionClosed(MuxwsError):
    """The connection ended. Raised by calls on a peer; a stream raises `ConnectionLost` instead.

    Args:
        message: What to show; `reason` where empty.
        code: The WebSocket close code; 1006 where no close frame was seen.
        reason: The text beside the code, for people.
        was_clean: True where both ends agreed to close (code 1000).
    """

    def __init__(self, message: str = "", *, code: int = 1006, reason: str = "", was_clean: bool = False) -> None:
        super().__init__(message or reason or f"connection closed with code {code}")
        self.code = code
        self.reason = reason
        self.was_clean = was_clean


class HeartbeatTimeoutError(ConnectionClosed):
    """The remote gave no sign of life within the bound of the heartbeat policy."""


class NotConnectedError(MuxwsError):
    """A call of the `messaging` layer while there is no connection. Nothing is queued."""


class ConnectionGoingAway(MuxwsError):
    """`open()` after a `goaway` of either side, or after the last stream id."""


class StreamAlreadyConsumed(MuxwsError):
    """`result()` and iteration on one stream, or two iterations: a stream has one consumer."""


class StreamClosed(MuxwsError):
    """Sending on, or receiving from, a stream that has ended normally."""


class UpgradeRefused(MuxwsError):
    """At an acceptor: the upgrade was, or is to be, answered with this HTTP status.

    Args:
        status: The HTTP status, such as 400.
        reason: The text of the answer's body; holds nothing secret.
        headers: Further headers that the answer needs, as (name, value).
    """

    def __init__(self, status: int, reason: str, *, headers: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(f"upgrade refused with {status}: {reason}")
        self.status = status
        self.reason = reason
        self.headers = list(headers)


class OriginRefused(UpgradeRefused):
    """The `Origin` of the request is not allowed here; answered with 403.

    Args:
        origin: The header's value; several joined with ", "; None where the request had none.
    """

    def __init__(self, origin: str | None) -> None:
        super().__init__(403, "origin not allowed")
        self.origin = origin


class HandshakeRefused(MuxwsError, OSError):
    """At a dialer: the server answered the upgrade with something else than 101 (400 is `CodecMismatch`).

    Args:
        status: The HTTP status of the answer.
        headers: The headers of the answer, as (name, value) in their order.
    """

    def __init__(self, status: int, headers: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(f"the server answered the WebSocket upgrade with HTTP {status}")
        self.status = status
        self.headers = list(headers)


class TransportUrlError(MuxwsError, ValueError):
    """A URL that cannot be dialled; raised before anything is opened."""


class TransportUnsupportedError(MuxwsError, RuntimeError):
    """This host or this platform cannot give the transport that was asked for; the message says what would."""


class CodecError(MuxwsError):
    """The two ends, or the application and its registry, disagree about the codec.

    Args:
        configured: The codec's name as configured here.
        available: The registered names.
    """

    def __init__(self, message: str, *, configured: str | None = None, available: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.configured = configured
        self.available = list(available)


class CodecNotRegistered(CodecError):
    """The configured name is not in the registry; raised before any socket is opened."""


class CodecMismatch(CodecError):
    """The acceptor does not speak our codec: it answered 400, or selected another subprotocol."""


class StreamReset(MuxwsError):
    """One stream ended early.

    Args:
        reason: Text for people, never parsed.
        code: A `ResetCode`, or the plain int where the wire carried an unknown one.
        stream_id: The stream that ended.
    """

    code: ResetCode | int = ResetCode.NO_ERROR

    def __init__(
        self, reason: str | None = None, *, code: ResetCode | int | None = None, stream_id: int | None = None
    ) -> None:
        if code is not None:
            self.code = known_reset_code(code)
        label = self.code.name if isinstance(self.code, ResetCode) else f"reset code {self.code}"
        super().__init__(reason or label)
        self.reason = reason
        self.stream_id = stream_id

    def clone(self) -> StreamReset:
        """A fresh instance of the same failure, so that raising it again and again grows no traceback."""
        fresh = type(self).__new__(type(self), *self.args)
        fresh.__dict__.update(self.__dict__)
        fresh.args = self.args
        fresh.__cause__ = self.__cause__
        return fresh


class RemoteError(StreamReset):
    """The remote's handler raised.

    Args:
        payload: What its error serializer made of the exception, by default `{"type", "message"}`; None where
            the reset carried nothing.
    """

    code = ResetCode.APPLICATION_ERROR

    def __init__(self, reason: str | None = None, *, stream_id: int | None = None, payload: Any = None) -> None:
        super().__init__(reason, stream_id=stream_id)
        self.payload = payload


class StreamTimeout(StreamReset):
    """A deadline passed: ours, and the remote was told to stop, or the remote's."""

    code = ResetCode.TIMEOUT


class StreamRefused(StreamReset):
    """Definitely not processed by the remote: no handler, over its limit, or going away. Safe to try again."""

    code = ResetCode.REFUSED


class ConnectionLost(StreamReset):
    """The socket died under the stream, or there is none now. `__cause__` tells why."""

    code = ResetCode.CONNECTION_CLOSED


_CLASSES: dict[int, type[StreamReset]] = {
    ResetCode.TIMEOUT: StreamTimeout,
    ResetCode.REFUSED: StreamRefused,
}


def known_reset_code(code: int) -> ResetCode | int:
    """The `ResetCode` of this number, or the number itself where it has none."""
    try:
        return ResetCode(code)
    except ValueError:
        return int(code)


def error_for_reset(code: int, reason: str | None, *, stream_id: int, payload: Any = None) -> StreamReset:
    """The exception for a reset with this code, sent or received (PROTOCOL §3).

    A 9 is a plain `StreamReset`: a remote cannot make a live connection look lost.
    """
    if code == ResetCode.APPLICATION_ERROR:
        return RemoteError(reason, stream_id=stream_id, payload=payload)
    return _CLASSES.get(code, StreamReset)(reason, code=code, stream_id=stream_id)
