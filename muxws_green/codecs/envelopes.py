"""What a codec offers besides `ICodec`, and the envelope operations of one that has none of its own.

The connection builds messages around encoded payloads. A codec that offers only `ICodec` is asked to decode such a
payload and to encode the whole frame: slower, with the same result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from zope.interface import implementer

from muxws_green.errors import ProtocolError
from muxws_green.interfaces import IBulkCodec, ICodec, IEnvelopeCodec
from muxws_green.protocol.frames import ABSENT, Frame, to_mapping

_OPERATIONS = ("wrap", "wrap_fragment", "unwrap")
_BULK_OPERATIONS = ("bytes_header", "unwrap_fragment", "decode_pieces")
#: What a codec cannot have in a way of its own if the operations for long bytes are to stand in for it.
_REPLACED = (*_OPERATIONS, "encode_payload", "decode_payload")


def envelopes_of(codec: ICodec) -> IEnvelopeCodec:
    """The codec itself where it has all operations of `IEnvelopeCodec`, else an adapter around it."""
    return cast("IEnvelopeCodec", codec) if _has(codec, _OPERATIONS) else FrameEnvelopes(codec)


def bulk_of(codec: ICodec) -> IBulkCodec | None:
    """The codec itself where it has all operations of `IBulkCodec` and `IEnvelopeCodec`, else None.

    They stand in for the encoding and decoding of payloads and messages. So a class that has inherited them and does
    one of those in its own way, an object that hands on what it does not know, and one with attributes that hide
    methods have none: long bytes would go past what they do.
    """
    if not codec.binary or not _has(codec, _BULK_OPERATIONS + _REPLACED):
        return None
    bulk, replaced = _makers(codec, _BULK_OPERATIONS), _makers(codec, _REPLACED)
    if bulk is None or replaced is None or max(bulk) > min(replaced):
        return None
    return cast("IBulkCodec", codec)


def _makers(codec: ICodec, operations: tuple[str, ...]) -> list[int] | None:
    """How far up each of its methods is inherited from, 0 for the class itself; None where one is no method of it."""
    hidden = getattr(codec, "__dict__", {})
    found = []
    for name in operations:
        places = [at for at, kind in enumerate(type(codec).__mro__) if name in vars(kind)]
        if name in hidden or not places:
            return None
        found.append(places[0])
    return found


def _has(codec: ICodec, operations: tuple[str, ...]) -> bool:
    return all(callable(getattr(codec, name, None)) for name in operations)


@implementer(IEnvelopeCodec)
class FrameEnvelopes:
    """Does by whole frames what a codec cannot do around an encoded payload.

    Args:
        codec: Any codec.
    """

    def __init__(self, codec: ICodec) -> None:
        self._codec = codec

    def wrap(
        self,
        kind: str,
        stream: int,
        encoded: str | bytes | None,
        headers: Mapping[str, Any] | None = None,
        end: bool = False,
        trailers: Mapping[str, Any] | None = None,
    ) -> bytes:
        """The message of an `open` or `data` frame around an encoded payload."""
        payload = ABSENT if encoded is None else self._codec.decode_payload(encoded)
        return self._encode(
            Frame(kind, stream, payload=payload, headers=_own(headers), end=end, trailers=_own(trailers))
        )

    def wrap_fragment(
        self,
        kind: str,
        stream: int,
        piece: bytes | memoryview,
        more: bool,
        headers: Mapping[str, Any] | None = None,
        end: bool = False,
        trailers: Mapping[str, Any] | None = None,
    ) -> bytes:
        """The message of a fragment."""
        fragment = bytes(piece) if self._codec.binary else str(piece, "utf-8")
        return self._encode(
            Frame(kind, stream, fragment=fragment, more=more, headers=_own(headers), end=end, trailers=_own(trailers))
        )

    def unwrap(self, message: str | bytes) -> dict[str, Any]:
        """The envelope of a message; ProtocolError where it is none."""
        if isinstance(message, str) is self._codec.binary:
            kind = "text" if isinstance(message, str) else "binary"
            raise ProtocolError(f"a {kind} message under the {self._codec.name} codec")
        return to_mapping(self._codec.decode(message))

    def _encode(self, frame: Frame) -> bytes:
        message = self._codec.encode(frame)
        return message.encode() if isinstance(message, str) else message


def _own(mapping: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if mapping is None else dict(mapping)
