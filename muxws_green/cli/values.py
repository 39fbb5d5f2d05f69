"""Payloads as one line of JSON, in both directions, also where a codec carries more than JSON has words for.

Under a binary codec an object with the one key `$base64` stands for bytes, wherever a payload is typed or shown; shown
only: `$ext` (an extension type of msgpack), `$timestamp`, and `$float` for NaN and infinities. Under a text codec
nothing has such a meaning.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from typing import Any, NoReturn

import msgpack

from muxws_green.cli.escape import escaped


def from_json(text: str, *, binary: bool) -> Any:
    """The payload that somebody typed.

    Args:
        text: One JSON document.
        binary: Whether it is for a binary codec.

    Raises:
        ValueError: It is none; the message says what is wrong and where.
    """
    try:
        value = json.loads(text, parse_constant=_refuse)
        return _with_bytes(value) if binary else value
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def to_json(value: Any, *, ascii_only: bool = False) -> str:
    """One line of JSON without anything that a terminal would obey.

    Args:
        value: What a codec decoded.
        ascii_only: Whether every other character is escaped too.
    """
    text = json.dumps(_plain(value), ensure_ascii=ascii_only, allow_nan=False, separators=(", ", ": "))
    return escaped(text)


def _refuse(token: str) -> NoReturn:
    raise ValueError(f"{token} is not JSON")


def _with_bytes(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"$base64"} and isinstance(value["$base64"], str):
            try:
                return base64.b64decode(value["$base64"], validate=True)
            except binascii.Error as error:
                raise ValueError(f"what $base64 stands for is no base64: {error}") from None
        return {key: _with_bytes(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_bytes(item) for item in value]
    return value


def _plain(value: Any) -> Any:
    """The same in types that JSON has. Loops, since a comprehension takes a level more of a deep value."""
    if isinstance(value, dict):
        fields = {}
        for key, item in value.items():
            fields[_key(key)] = _plain(item)
        return fields
    if isinstance(value, msgpack.ExtType):
        return {"$ext": [value.code, _text(value.data)]}
    if isinstance(value, list | tuple):
        items = []
        for item in value:
            items.append(_plain(item))  # noqa: PERF401
        return items
    if isinstance(value, bytes | bytearray | memoryview):
        return {"$base64": _text(bytes(value))}
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": str(value)}
    if isinstance(value, msgpack.Timestamp):
        return {"$timestamp": [value.seconds, value.nanoseconds]}
    return value


def _key(key: Any) -> Any:
    if isinstance(key, bytes):
        return f"$base64:{_text(key)}"
    if key is None or (isinstance(key, str | int | float) and not (isinstance(key, float) and not math.isfinite(key))):
        return key
    return repr(key)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
