"""Codecs for the tests of what wraps, cuts and registers codecs."""

from __future__ import annotations

import json
from typing import Any

from muxws_green.codecs.json import JsonCodec
from muxws_green.codecs.msgpack import MsgpackCodec
from muxws_green.errors import ProtocolError
from muxws_green.protocol.frames import Frame, from_mapping, to_mapping

CODECS = [JsonCodec(), MsgpackCodec()]


class PlainText:
    """A text codec by somebody who knows nothing but `ICodec`; escapes all that is not ASCII."""

    name = "plain"
    binary = False

    def encode(self, frame: Frame) -> str:
        return json.dumps(to_mapping(frame))

    def decode(self, message: str | bytes) -> Frame:
        try:
            return from_mapping(json.loads(message))
        except (ValueError, AttributeError) as error:
            raise ProtocolError(str(error)) from error

    def encode_payload(self, value: Any) -> str:
        return json.dumps(value)

    def decode_payload(self, data: str | bytes) -> Any:
        return json.loads(data)


class PlainBinary:
    """The msgpack codec without its envelope operations."""

    name = "plainbinary"
    binary = True

    def __init__(self) -> None:
        inner = MsgpackCodec()
        self.encode = inner.encode
        self.decode = inner.decode
        self.encode_payload = inner.encode_payload
        self.decode_payload = inner.decode_payload


class Counting(JsonCodec):
    """Counts the payload bytes that were put into fragments."""

    def __init__(self) -> None:
        self.fragments = 0
        self.fragment_bytes = 0

    def wrap_fragment(self, kind, stream, piece, more, headers=None, end=False, trailers=None):
        self.fragments += 1
        self.fragment_bytes += len(piece)
        return super().wrap_fragment(kind, stream, piece, more, headers, end, trailers)


class Swelling(JsonCodec):
    """Long fragments take more room than their parts together. (White space behind a value is JSON.)"""

    def wrap_fragment(self, kind, stream, piece, more, headers=None, end=False, trailers=None):
        message = super().wrap_fragment(kind, stream, piece, more, headers, end, trailers)
        return message + b" " * max(0, len(piece) - 200)


def messages(splitter: Any) -> list[bytes]:
    """All messages of a splitter."""
    taken = []
    while not splitter.done:
        taken.append(splitter.next_message())
    return taken


def as_received(codec: Any, message: str | bytes) -> str | bytes:
    """A message that was sent, as the WebSocket layer hands it over."""
    encoded = message.encode() if isinstance(message, str) else message
    return encoded if codec.binary else encoded.decode()
