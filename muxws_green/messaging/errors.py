"""The two answers of this layer's own to a call that it cannot pass on.

They are raised by the called end and travel as any handler's error does, as `{"type", "message"}`; the calling end
raises the class of that name, which is a `RemoteError` too. Under an error serializer that redacts the type it raises
that.
"""

from __future__ import annotations

from typing import Any

from muxws_green import RemoteError


class UnknownMethodError(RemoteError):
    """The called end has no handler of that name."""


class BadBodyError(RemoteError):
    """The called end cannot make sense of the body. Handlers raise it with a text for the caller."""


_BY_NAME: dict[str, type[RemoteError]] = {cls.__name__: cls for cls in (UnknownMethodError, BadBodyError)}


def typed(error: RemoteError) -> RemoteError:
    """The error of a call as the most telling class."""
    payload: Any = error.payload
    name = payload.get("type") if isinstance(payload, dict) else None
    cls = _BY_NAME.get(name) if isinstance(name, str) else None
    if cls is None:
        return error
    return cls(error.reason, stream_id=error.stream_id, payload=payload)
