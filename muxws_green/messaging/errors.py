"""The answers of this layer's own to a call that it cannot pass on, and the errors of streams as callers see them.

The first are raised by the called end and travel as any handler's error does, as `{"type", "message"}`; the calling end
raises the class of that name, which is a `RemoteError` too. Under an error serializer that redacts the type it raises
a plain `RemoteError`.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

from muxws_green.errors import ConnectionClosed, ConnectionLost, RemoteError


class UnknownMethodError(RemoteError):
    """The called end has no handler of that name, or the call names none."""


class BadBodyError(RemoteError):
    """The called end cannot make sense of the body. Handlers raise it with a text for the caller."""


class BadAnswerError(RemoteError):
    """The codec cannot carry what the handler answered with."""


#: What the called end says about the call itself.
VERDICTS = (UnknownMethodError, BadBodyError, BadAnswerError)

_BY_NAME: dict[str, type[RemoteError]] = {cls.__name__: cls for cls in VERDICTS}


def typed(error: RemoteError) -> RemoteError:
    """The error of a call as the most telling class; the same object where that is its own."""
    payload: Any = error.payload
    name = payload.get("type") if isinstance(payload, dict) else None
    cls = _BY_NAME.get(name) if isinstance(name, str) else None
    if cls is None:
        return error
    return cls(error.reason, stream_id=error.stream_id, payload=payload)


def closed_error(text: str, cause: BaseException | None) -> ConnectionClosed:
    """The `ConnectionClosed` that a call raises, with the code and the reason of what ended the connection."""
    if isinstance(cause, ConnectionClosed):
        error = ConnectionClosed(text, code=cause.code, reason=cause.reason, was_clean=cause.was_clean)
    else:
        error = ConnectionClosed(text)
    error.__cause__ = cause
    return error


class AsCallersSeeIt:
    """A context in which the errors of streams become those of calls."""

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, ConnectionLost):
            raise closed_error(str(error), error.__cause__)
        if isinstance(error, RemoteError):
            told = typed(error)
            if told is not error:
                raise told from None


#: It keeps no state.
as_callers_see_it = AsCallersSeeIt()
