"""Payloads that a remote sends in fragments, and what else of the remote's costs a stream (PROTOCOL §4, §5).

`Connection` judges whether a frame may stand where it does, and is the only one to use this.
"""

from __future__ import annotations

from typing import Any

from muxws_green.errors import ProtocolError, ResetCode
from muxws_green.interfaces import IBulkCodec
from muxws_green.protocol.assembler import Assembler, keep_room
from muxws_green.protocol.frames import ABSENT
from muxws_green.protocol.sending import SendingHalf
from muxws_green.protocol.states import RECEIVING
from muxws_green.protocol.streams import LiveStream


class CollectingHalf(SendingHalf):
    """The sending half, and besides it what collects fragments."""

    #: What `Connection` was made with: whether messages are binary, and the largest payload taken from the remote.
    _binary: bool
    _max_payload_bytes: int

    def _receive_piece(self, message: bytes, bulk: IBulkCodec) -> bool:
        """Act upon a fragment from the middle of a payload that is being collected, without taking copies.

        Returns:
            False where it needs a closer look. Nothing has been done then.
        """
        found = bulk.unwrap_fragment(memoryview(message))
        if found is None:
            return False
        kind, stream_id, piece = found
        live = self.streams.get(stream_id)
        if live is None or live.assembler is None or live.state not in RECEIVING:
            return False
        if kind != ("open" if live.opening else "data"):
            return False
        self._add(live, live.assembler, piece)
        return True

    def _gather(self, live: LiveStream, piece: str | bytes, more: bool) -> tuple[Any, int]:
        """Take one fragment.

        Returns:
            With the last one the payload and its encoded bytes; else ABSENT, also where the fragment has cost the
            stream.
        """
        assembler = live.assembler
        if assembler is None:
            assembler = live.assembler = Assembler()
        if isinstance(piece, bytes) is not self._binary:
            self._violate(live, "a fragment of the wrong kind for the codec")
            return ABSENT, 0
        if not self._add(live, assembler, piece) or more:
            return ABSENT, 0
        size = assembler.byte_length
        self._assembling_bytes -= size
        live.assembler = None
        keep_room(size)
        try:
            if self._bulk is not None:
                return self._bulk.decode_pieces(assembler.take()), size
            return self._codec.decode_payload(assembler.join()), size
        except ProtocolError:
            self._violate(live, "an undecodable payload")
            return ABSENT, 0

    def _add(self, live: LiveStream, assembler: Assembler, piece: str | bytes | memoryview) -> bool:
        """Add a fragment to what is being collected. False where that is too much, and the stream has been ended."""
        before = assembler.byte_length
        assembler.add(piece)
        size = assembler.byte_length
        self._assembling_bytes += size - before
        if size > self._max_payload_bytes:
            self._too_large(live)
            return False
        if self._assembling_bytes > 2 * self._max_payload_bytes:
            reason = "the payloads being collected on this connection are over the limit together"
            self._fail(live, ResetCode.PAYLOAD_TOO_LARGE, reason)
            return False
        return True

    # Faults of the remote that cost one stream

    def _too_large(self, live: LiveStream) -> None:
        self._fail(live, ResetCode.PAYLOAD_TOO_LARGE, f"a payload is over the limit of {self._max_payload_bytes} bytes")

    def _violate(self, live: LiveStream, reason: str) -> None:
        self._fail(live, ResetCode.PROTOCOL_ERROR, reason)

    def _fail(self, live: LiveStream, code: ResetCode, reason: str) -> None:
        """Reset a stream for what the remote did on it."""
        self.reset(live, code, reason, asked=True)
        self._sink.failed(live, self._error(live, code, reason))
