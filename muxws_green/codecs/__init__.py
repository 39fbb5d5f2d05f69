"""How values and frames become WebSocket messages: two codecs, and a registry for others."""

from __future__ import annotations

from muxws_green.codecs.json import JsonCodec
from muxws_green.codecs.msgpack import MsgpackCodec
from muxws_green.codecs.registry import get_codec, register_codec, registered_codecs

__all__ = ["JsonCodec", "MsgpackCodec", "get_codec", "register_codec", "registered_codecs"]
