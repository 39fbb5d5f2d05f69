"""What may stand in frames of ours, judged at the call that would send it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muxws_green.errors import ProtocolError, ResetCode

_CODES = frozenset(int(code) for code in ResetCode) - {int(ResetCode.CONNECTION_CLOSED)}


def check_code_and_reason(code: int, reason: str | None) -> None:
    """Do nothing for what may stand in a reset or a goaway of ours.

    Raises:
        ProtocolError: `code` may not be sent (PROTOCOL §3).
        TypeError: `reason` is no str.
    """
    if isinstance(code, bool) or not isinstance(code, int) or code not in _CODES:
        raise ProtocolError(f"{code!r} is not a reset code that may be sent")
    if reason is not None and not isinstance(reason, str):
        raise TypeError(f"a reason is a str, not {type(reason).__name__}")


def checked_metadata(what: str, value: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """A copy of headers or trailers whose keys are all str.

    Raises:
        TypeError: It is no mapping, or a key is not a str.
    """
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise TypeError(f"{what} are a mapping with str keys, not {type(value).__name__}")
    foreign = [key for key in value if not isinstance(key, str)]
    if foreign:
        raise TypeError(f"the keys of {what} are str, not {type(foreign[0]).__name__}")
    return dict(value)
