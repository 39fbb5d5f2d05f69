"""One frame: its twelve fields, their defaults and types, and its form as an envelope (PROTOCOL §3).

An *envelope* is the dict that a codec makes of a message. `check_envelope` is the only place where the types of what a
remote sent are judged: behind it every field is absent or has its type. `Frame` is the form for people, hooks and
codecs; the connection itself works on checked envelopes and builds no frame.

Pure; anybody may call it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from muxws_green.errors import ProtocolError


class _Absent:
    """The type of `ABSENT`, which is its only instance."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "ABSENT"

    def __reduce__(self) -> str:
        # A name instead of a recipe: copy, deepcopy and pickle all give back the one object, so `is` stays true.
        return "ABSENT"


#: Says that a frame has no payload; None says that its payload is `null`. False in a condition.
ABSENT: Final[Any] = _Absent()

#: The types that a `muxws.v1` peer sends. Others are ignored on arrival.
FRAME_TYPES: Final = frozenset({"open", "data", "reset", "ping", "pong", "goaway"})


@dataclass(frozen=True, slots=True)
class Frame:
    """One protocol unit; compared by value. A field at its default is not on the wire.

    Args:
        type: One of `FRAME_TYPES`, or whatever an unknown frame carried.
        stream: The stream's id; None on a connection-level frame.
        payload: Any value that the codec can carry, None for `null`; `ABSENT` for no payload.
        fragment: A slice of an encoded payload, str under a text codec and bytes under a binary one; never together
            with `payload`.
        more: True on every fragment of a payload but the last.
        headers: The application's, with str keys.
        end: True on the last frame of a side.
        trailers: The application's, beside `end`.
        code: A reset code, on reset and goaway.
        reason: For people and logs.
        nonce: On ping and pong.
        last_stream: On goaway: the highest id of the other side's parity that the sender has seen opened.
    """

    type: str
    stream: int | None = None
    payload: Any = ABSENT
    fragment: str | bytes | None = None
    more: bool = False
    headers: dict[str, Any] | None = None
    end: bool = False
    trailers: dict[str, Any] | None = None
    code: int | None = None
    reason: str | None = None
    nonce: str | None = None
    last_stream: int | None = None


#: What stands on the wire behind `type` and `stream`, in order; `payload` follows its own rule.
_OPTIONAL_FIELDS: Final = (
    "code",
    "end",
    "fragment",
    "headers",
    "last_stream",
    "more",
    "nonce",
    "payload",
    "reason",
    "trailers",
)

#: The type that a decoder gives to a field's value as a rule; `payload` is not listed, since any value may stand there.
_USUAL_TYPES: Final[dict[str, Any]] = {
    "type": str,
    "stream": int,
    "fragment": str,
    "more": bool,
    "headers": dict,
    "end": bool,
    "trailers": dict,
    "code": int,
    "reason": str,
    "nonce": str,
    "last_stream": int,
}


def to_mapping(frame: Frame) -> dict[str, Any]:
    """The envelope of a frame: the fields that are not at their default, in the order of the wire (PROTOCOL §3).

    Returns:
        A fresh dict; the values are the frame's own.
    """
    mapping: dict[str, Any] = {"type": frame.type}
    if frame.stream is not None:
        mapping["stream"] = frame.stream
    for name in _OPTIONAL_FIELDS:
        value = getattr(frame, name)
        if name == "payload":
            if value is not ABSENT:
                mapping[name] = value
        elif value is not None and value is not False:
            mapping[name] = value
    return mapping


def from_mapping(mapping: Mapping[str, Any]) -> Frame:
    """The frame of an envelope, checked as `check_envelope` does.

    Args:
        mapping: Whatever a remote's message decoded to; it is not changed.

    Raises:
        ProtocolError: The envelope breaks PROTOCOL §3.
    """
    return Frame(**check_envelope(mapping))


def check_envelope(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Judge the fields of a decoded message and put them into one form (PROTOCOL §3).

    Unknown fields are dropped, and so are those whose `null` counts as absent; an integral float becomes an int.

    Args:
        mapping: Whatever a remote's message decoded to; it is not changed.

    Returns:
        A fresh dict of known fields, each of its type.

    Raises:
        ProtocolError: `type` is missing, a field has a wrong type, an integer is negative where it must not be, or
            `payload` and `fragment` are both present, whatever their values.
    """
    checked: dict[str, Any] = {}
    for name, value in mapping.items():
        usual = _USUAL_TYPES.get(name)
        if usual is None:
            if name == "payload":
                checked[name] = value
            continue
        # The usual type needs a closer look only where it does not settle the matter.
        if type(value) is not usual or usual is dict or (usual is int and value < 0):
            value = _check_field(name, value)
            if value is None:
                continue
        checked[name] = value
    if "type" not in checked:
        raise ProtocolError("a frame without 'type'")
    if "fragment" in mapping and "payload" in mapping:
        raise ProtocolError("a frame with both 'payload' and 'fragment'")
    return checked


def _check_field(name: str, value: Any) -> Any:
    """The value of one field other than `payload` in its proper form; None where it counts as absent."""
    usual = _USUAL_TYPES[name]
    if value is None:
        if name not in ("type", "more", "end"):
            return None
    elif usual is int:
        # JavaScript has one kind of number, so a peer may write 7 as 7.0.
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and (value >= 0 or name == "code"):
            return value
    elif usual is dict:
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            return value
    elif isinstance(value, usual) or (name == "fragment" and isinstance(value, bytes)):
        return value
    raise ProtocolError(f"frame field {name!r} has an invalid value of type {type(value).__name__}")


def clip_utf8(text: str, limit_bytes: int) -> str:
    """The longest beginning of `text` that takes at most `limit_bytes` in UTF-8, in whole characters.

    Never raises for a str: a lone surrogate, which UTF-8 cannot carry, becomes "?", so that the result can always be
    sent.

    Args:
        limit_bytes: 0 or less gives "".
    """
    limit = max(0, limit_bytes)
    # No character takes less than a byte, so what is behind `limit` characters is not looked at.
    encoded = text[:limit].encode("utf-8", "replace")
    return encoded[:limit].decode("utf-8", "ignore")
