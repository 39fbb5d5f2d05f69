"""One end of one muxws connection, without I/O: messages in, calls on a sink; calls in, messages out.

`receive` takes what the remote sent and judges it; fragments are collected in `CollectingHalf`, and what this end does
is in `SendingHalf`. Every receive makes its changes first and calls the sink last, so that a sink may call back. A rule
broken by the remote costs its stream where both ends can still agree about all others, and raises `Violation` where
they cannot.

One greenlet at a time may be inside; nothing here waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from muxws_green.errors import ProtocolError, ResetCode, error_for_reset
from muxws_green.interfaces import IBulkCodec, ICodec, IConnectionSink, IEnvelopeCodec
from muxws_green.protocol.assembler import LONG_PIECE_BYTES
from muxws_green.protocol.collecting import CollectingHalf
from muxws_green.protocol.frames import ABSENT, Frame, check_envelope, clip_utf8
from muxws_green.protocol.lanes import Lane, Lanes
from muxws_green.protocol.sending import ENVELOPE_BYTES, MAX_REASON_BYTES, MAX_STREAM_ID
from muxws_green.protocol.states import CLOSED, LIVE, RECEIVING, TABLE, Event, StreamState, Verdict, column, state_after
from muxws_green.protocol.streams import LiveStream

#: Pongs that may wait for a remote that pings and does not read.
MAX_QUEUED_PONGS = 64
#: Unknown frame types that are reported, once each.
MAX_UNKNOWN_TYPES = 32
#: Goaways of the remote that the sink is told of. One is usual, a second may follow it with a fault.
MAX_TOLD_GOAWAYS = 4
#: What the opening payloads of all running handlers may weigh together, in bytes, if twice the limit of one payload is
#: not more. They are consumed as soon as they are given, so that no other bound holds them.
HANDED_BYTES = 67_108_864

Observer = Callable[[Mapping[str, Any], int], None]

_RECV_DATA = column(Event.RECV_DATA)
_RECV_END = column(Event.RECV_END)
_OPENED = state_after(StreamState.IDLE, Event.RECV_OPEN)
_OPENED_ENDED = state_after(StreamState.IDLE, Event.RECV_OPEN_END)


class Violation(ProtocolError):
    """The remote broke a rule in a way that ends the connection.

    Args:
        reason: What was wrong; goes into the goaway and the close frame, so it holds nothing local.
        close_code: The WebSocket close code, 1002 or 1008.
    """

    def __init__(self, reason: str, close_code: int = 1002) -> None:
        super().__init__(reason)
        self.reason = clip_utf8(reason, MAX_REASON_BYTES)
        self.close_code = close_code


class Connection(CollectingHalf):
    """The protocol's state for one socket.

    Args:
        codec: The codec of the connection.
        envelopes: The same codec's envelope operations.
        bulk: The same codec's operations for long bytes; None where it has none.
        sink: Is told what happens.
        lanes: Where to queue what is to be sent; empty.
        dialer: True for the end that dialled, which opens odd ids.
        max_frame_bytes: Cap of one encoded message, both ways.
        max_payload_bytes: Largest payload taken from the remote.
        max_concurrent_streams: Live streams that the remote may have here.
    """

    def __init__(
        self,
        codec: ICodec,
        envelopes: IEnvelopeCodec,
        bulk: IBulkCodec | None,
        sink: IConnectionSink,
        lanes: Lanes,
        *,
        dialer: bool,
        max_frame_bytes: int,
        max_payload_bytes: int,
        max_concurrent_streams: int,
    ) -> None:
        super().__init__(
            codec,
            envelopes,
            bulk,
            sink,
            lanes,
            dialer=dialer,
            max_frame_bytes=max_frame_bytes,
        )
        self._binary = codec.binary
        self._max_payload_bytes = max_payload_bytes
        #: How long the message of a whole payload may be.
        self._max_message_bytes = max_payload_bytes + ENVELOPE_BYTES
        self._max_concurrent_streams = max_concurrent_streams
        self._max_handed_bytes = max(HANDED_BYTES, 2 * max_payload_bytes)
        self._told_goaways = 0
        #: Frames for streams that had closed here, ignored.
        self.late_frames = 0
        #: Called with every received envelope and the length of its message, before it is acted upon; None: nobody.
        self.observer: Observer | None = None

    def receive(self, message: str | bytes) -> None:
        """Act upon one message of the remote.

        Raises:
            Violation: The connection cannot go on; nothing more may be received.
        """
        if isinstance(message, str):
            if self._binary:
                raise Violation("a text message on a connection with a binary codec")
            size = len(message) if message.isascii() else len(message.encode("utf-8", "surrogatepass"))
        else:
            if not self._binary:
                raise Violation("a binary message on a connection with a text codec")
            size = len(message)
            bulk = self._bulk
            if (
                bulk is not None
                and LONG_PIECE_BYTES < size <= self._cap
                and self.observer is None
                and self._receive_piece(message, bulk)
            ):
                return
        try:
            envelope = self.envelopes.unwrap(message)
        except ProtocolError as error:
            raise Violation(f"undecodable message: {error}") from error
        stream_id = envelope.get("stream")
        # The frames that make up nearly all traffic, told by their shape: a type, a stream, a payload and maybe an end,
        # which need no further check.
        if type(stream_id) is int and "payload" in envelope and size <= self._cap:
            fields = len(envelope)
            if (fields == 3 or (fields == 4 and envelope.get("end") is True)) and self._receive_plain(
                envelope, envelope.get("type"), stream_id, size, fields == 4
            ):
                return
        try:
            envelope = check_envelope(envelope)
        except ProtocolError as error:
            raise Violation(f"invalid frame: {error}") from error
        if self.observer is not None:
            self.observer(envelope, size)
        if not self.dead:
            self._dispatch(envelope, size)

    def _receive_plain(self, envelope: dict[str, Any], kind: Any, stream_id: int, size: int, ends: bool) -> bool:
        """Act upon an `open` or `data` frame of a whole payload and nothing else but its end.

        Returns:
            False where it needs a closer look. Nothing has been done then.
        """
        if kind == "data":
            live = self.streams.get(stream_id)
            if live is None or live.assembler is not None or live.state not in RECEIVING:
                return False
            if self.observer is not None:
                self.observer(envelope, size)
                if live.state not in RECEIVING:
                    # The observer has reset the stream: the frame is late now.
                    self.late_frames += 1
                    return True
            if not live.heard:
                live.heard = True
                self._sink.answered(live, None)
                if live.state is CLOSED:
                    return True
            if size > self._max_message_bytes:
                self._too_large(live)
            else:
                self._sink.payload(live, envelope["payload"], size)
            if ends:
                self._end(live, None)
            return True
        if kind != "open" or stream_id <= self._highest_remote:
            return False
        if self.observer is not None:
            self.observer(envelope, size)
        if not self.dead:
            self._on_open(stream_id, envelope, size)
        return True

    def _dispatch(self, envelope: dict[str, Any], size: int) -> None:
        kind: str = envelope["type"]
        if size > self._cap:
            self._over_cap(kind, envelope, size)
        elif kind == "data":
            self._on_data(envelope, size)
        elif kind == "open":
            self._on_open(self._stream_id("open", envelope), envelope, size)
        elif kind == "reset":
            self._on_reset(envelope)
        elif kind == "ping":
            self._on_ping(envelope)
        elif kind == "pong":
            nonce = envelope.get("nonce")
            if nonce is not None:
                self._sink.pong(nonce)
        elif kind == "goaway":
            self._on_goaway(envelope)
        else:
            self._report(f"ignoring the unknown frame type {repr(kind[:32])[:32]}", MAX_UNKNOWN_TYPES)

    # Which stream a frame is for

    def _is_local(self, stream_id: int) -> bool:
        return stream_id % 2 == self._local_parity

    def _stream_id(self, kind: str, envelope: Mapping[str, Any]) -> int:
        stream_id: int | None = envelope.get("stream")
        if stream_id is None:
            raise Violation(f"{kind} without a stream id")
        return stream_id

    def _find(self, kind: str, stream_id: int) -> LiveStream | None:
        """The live stream of a `data` or `reset`; None where the frame is late."""
        live = self.streams.get(stream_id)
        if live is None:
            mark = self._highest_local if self._is_local(stream_id) else self._highest_remote
            if stream_id > mark:
                raise Violation(f"{kind} on stream {stream_id}, which was never opened (the mark is {mark})")
            self.late_frames += 1
        return live

    def _admit(self, stream_id: int, live: LiveStream | None, piece: bool) -> bool:
        """Judge the id of an `open` that continues nothing.

        Args:
            live: The live stream of that id, if there is one.
            piece: Whether the frame is a fragment.

        Returns:
            True for a new id, which is the mark from now on; False for a late piece.
        """
        if stream_id == 0 or stream_id > MAX_STREAM_ID or stream_id % 2 == self._local_parity:
            raise Violation(f"open on stream {stream_id}: not an id that the remote may open")
        if stream_id > self._highest_remote:
            # Whatever a remote can have us answer begins with an `open`, so this is the one place to stop it.
            if self.lanes.queued_bytes and self.lanes.overdue:
                raise Violation("too many answers wait for a remote that does not read", 1008)
            self._highest_remote = stream_id
            return True
        state = live.state if live is not None else CLOSED
        if TABLE[state][Event.RECV_OPEN_PIECE if piece else Event.RECV_OPEN] is not Verdict.IGNORE:
            raise Violation(f"open on stream {stream_id}, not above the highest previous one, {self._highest_remote}")
        self.late_frames += 1
        return False

    # What the frames do

    def _on_open(self, stream_id: int, envelope: dict[str, Any], size: int) -> None:
        piece = envelope.get("fragment") is not None
        live = self.streams.get(stream_id)
        if live is not None and piece and live.assembler is not None and not live.local:
            if not live.opening:
                self._violate(live, "a fragment of another type than the sequence that it continues")
            elif envelope.get("headers") is not None:
                self._violate(live, "headers after the first frame")
            else:
                self._collect(live, envelope)
            return
        if not self._admit(stream_id, live, piece):
            return
        if self._goaway_code is not None:
            self._refuse(stream_id, ResetCode.REFUSED, "going away")
            return
        if self._remote_streams >= self._max_concurrent_streams:
            reason = f"over the limit of {self._max_concurrent_streams} concurrent streams"
            self._refuse(stream_id, ResetCode.REFUSED, reason)
            return
        ended = bool(envelope.get("end")) and not piece
        live = LiveStream(stream_id, False, _OPENED_ENDED if ended else _OPENED)
        live.opening = piece
        self.streams[stream_id] = live
        self._remote_streams += 1
        self._sink.opening(live, envelope.get("headers"))
        if live.state is CLOSED:
            return
        if piece:
            self._collect(live, envelope)
        elif size > self._max_message_bytes:
            self._too_large(live)
        else:
            self._opened(live, envelope.get("payload"), size, envelope, ended)

    def _opened(self, live: LiveStream, payload: Any, size: int, envelope: Mapping[str, Any], ended: bool) -> None:
        """The opening payload is whole. A sink that closes the stream over that is not told of the remote's end."""
        if self._handed_bytes and self._handed_bytes + size > self._max_handed_bytes:
            reason = f"the handlers at work here have been given {self._handed_bytes} bytes, and may have no more"
            self._fail(live, ResetCode.REFUSED, reason)
            return
        live.opening_bytes = size
        self._sink.opened(live, payload)
        if ended and live.state is not CLOSED:
            self._sink.ended(live, envelope.get("trailers"))

    def _on_data(self, envelope: dict[str, Any], size: int) -> None:
        live = self._find("data", self._stream_id("data", envelope))
        if live is None:
            return
        piece = envelope.get("fragment") is not None
        headers = envelope.get("headers")
        ends = bool(envelope.get("end"))
        if (_RECV_END if ends else _RECV_DATA)[live.state] is Verdict.STREAM_ERROR:
            self._violate(live, "data after end")
        elif live.heard and headers is not None:
            self._violate(live, "headers after the first frame")
        elif live.assembler is not None and not piece:
            self._violate(live, "a whole frame while fragments are being collected")
        elif live.opening:
            self._violate(live, "a fragment of another type than the sequence that it continues")
        else:
            if not live.heard:
                live.heard = True
                self._sink.answered(live, headers)
                if live.state is CLOSED:
                    return
            if piece:
                self._collect(live, envelope)
                return
            if "payload" in envelope:
                if size > self._max_message_bytes:
                    self._too_large(live)
                else:
                    self._sink.payload(live, envelope["payload"], size)
            if ends:
                self._end(live, envelope.get("trailers"))

    def _end(self, live: LiveStream, trailers: dict[str, Any] | None) -> None:
        """The remote's last frame has been acted upon."""
        if live.state in LIVE:
            self._note_end(live)
            self._sink.ended(live, trailers)

    def _note_end(self, live: LiveStream) -> None:
        state = _RECV_END[live.state]
        assert isinstance(state, StreamState)
        live.state = state
        if state is CLOSED:
            self._forget(live)

    def _collect(self, live: LiveStream, envelope: dict[str, Any]) -> None:
        """Take one fragment; hand over the payload with the last one."""
        payload, size = self._gather(live, envelope["fragment"], bool(envelope.get("more")))
        if payload is ABSENT:
            return
        if not live.opening:
            self._sink.payload(live, payload, size)
            if envelope.get("end"):
                self._end(live, envelope.get("trailers"))
            return
        live.opening = False
        ended = bool(envelope.get("end"))
        if ended:
            self._note_end(live)
            if live.state is CLOSED:
                # This side had ended before the opening payload was whole, so nobody is to work on it.
                self._sink.ended(live, envelope.get("trailers"))
                return
        self._opened(live, payload, size, envelope, ended)

    def _on_reset(self, envelope: dict[str, Any]) -> None:
        stream_id = self._stream_id("reset", envelope)
        live = self._find("reset", stream_id)
        if live is None:
            self.lanes.abandon(stream_id)
            return
        payload = envelope.get("payload")
        code = envelope.get("code") or 0
        error = error_for_reset(code, envelope.get("reason"), stream_id=live.id, payload=payload)
        self._close(live)
        self.lanes.discard(live.lane, keep_unsent_open=False)
        self._sink.failed(live, error)

    def _on_ping(self, envelope: dict[str, Any]) -> None:
        nonce = envelope.get("nonce")
        if nonce is None:
            self._report("ignoring a ping without a nonce")
            return
        if self._queued_pongs >= MAX_QUEUED_PONGS:
            raise Violation(f"more than {MAX_QUEUED_PONGS} pongs wait for a remote that does not read", 1008)
        try:
            message = self._encode(Frame("pong", nonce=nonce))
        except (TypeError, ValueError, OverflowError, RecursionError):
            # JSON can carry half a surrogate pair to us, and no text message can carry it back.
            self._report("ignoring a ping whose nonce cannot be sent back")
            return
        self._queued_pongs += 1
        self.lanes.put_control(message)
        self._sink.queued()

    def _on_goaway(self, envelope: dict[str, Any]) -> None:
        self.goaway_received = True
        last = envelope.get("last_stream")
        refused: list[LiveStream] = []
        if last is not None:
            refused = [live for live in self.streams.values() if live.local and live.id > last]
        for live in refused:
            self._close(live)
            self.lanes.discard(live.lane, keep_unsent_open=False)
        if self._told_goaways < MAX_TOLD_GOAWAYS:
            self._told_goaways += 1
            reason = envelope.get("reason")
            self._sink.goaway(
                envelope.get("code") or 0, None if reason is None else clip_utf8(reason, MAX_REASON_BYTES)
            )
        for live in refused:
            self._sink.failed(live, self._error(live, ResetCode.REFUSED, "the remote went away before this stream"))

    # Faults of the remote that cost one stream

    def _over_cap(self, kind: str, envelope: dict[str, Any], size: int) -> None:
        if kind not in ("open", "data", "reset"):
            raise Violation(f"a connection-level frame of {size} bytes, over the cap of {self._cap}")
        stream_id = self._stream_id(kind, envelope)
        live = self.streams.get(stream_id)
        if kind == "open":
            piece = envelope.get("fragment") is not None
            continues = live is not None and piece and live.assembler is not None and not live.local
            if not continues and not self._admit(stream_id, live, piece):
                return
        elif self._find(kind, stream_id) is None:
            return
        reason = f"a message of {size} bytes is over the cap of {self._cap}"
        if live is None:
            self._refuse(stream_id, ResetCode.PAYLOAD_TOO_LARGE, reason)
        else:
            self._fail(live, ResetCode.PAYLOAD_TOO_LARGE, reason)

    def _refuse(self, stream_id: int, code: ResetCode, reason: str) -> None:
        """Answer an `open` that becomes no stream here."""
        self._queue_reset(Lane(stream_id), code, reason)
        self._sink.queued()
