"""The reference implementation's codecs and frames, and the way between its frames and ours."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import muxws
from muxws.codecs.msgpack_ import MsgpackCodec as ReferenceMsgpack

from muxws_green.codecs.json import JsonCodec
from muxws_green.codecs.msgpack import MsgpackCodec
from muxws_green.protocol.frames import ABSENT, Frame

#: name -> (ours, the reference's)
PAIRS: dict[str, tuple[Any, Any]] = {
    "json": (JsonCodec(), muxws.JsonCodec()),
    "msgpack": (MsgpackCodec(), ReferenceMsgpack()),
}


def to_reference(frame: Frame) -> muxws.Frame:
    """The reference's frame with the same fields."""
    return muxws.Frame(**_values(frame, ABSENT, muxws.ABSENT))


def from_reference(frame: muxws.Frame) -> Frame:
    """Our frame with the same fields."""
    return Frame(**_values(frame, muxws.ABSENT, ABSENT))


def _values(frame: Any, absent: Any, other_absent: Any) -> dict[str, Any]:
    values = {field.name: getattr(frame, field.name) for field in fields(frame)}
    if values["payload"] is absent:
        values["payload"] = other_absent
    return values
