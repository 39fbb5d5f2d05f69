"""One end of one muxws connection, without I/O: messages in, calls on a sink; calls in, messages out.

`receive` takes what the remote sent and judges it; `open`, `send`, `reset`, `ping` and `goaway` queue frames; and
`take_batch` hands over what is to be written next. Every receive makes its changes first and calls the sink last, so
that a sink may call back. A rule broken by the remote costs its stream where both ends can still agree about all others,
and raises `Violation` where they cannot. A rule broken by the caller raises at the call and changes nothing.

One greenlet at a time may be inside; nothing here waits. Payloads are encoded by the caller (`codec.encode_payload`), who
may do so before it knows whether there is room; an envelope is built before its id is taken, so that nothing runs between
taking the id and queuing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from muxws_green.errors import (
    ConnectionGoingAway,
    ConnectionLost,
    ProtocolError,
    ResetCode,
    StreamClosed,
    StreamReset,
    error_for_reset,
)
from muxws_green.interfaces import ICodec, IConnectionSink, IEnvelopeCodec
from muxws_green.protocol.fragments import Assembler, Splitter
from muxws_green.protocol.frames import ABSENT, Frame, check_envelope, clip_utf8
from muxws_green.protocol.lanes import Lane, Lanes
from muxws_green.protocol.states import LIVE, TABLE, Event, StreamState, Verdict
from muxws_green.protocol.streams import LiveStream

#: The last id of either parity is at or below this.
MAX_STREAM_ID = 2**31 - 1
#: Pongs that may wait for a remote that pings and does not read.
MAX_QUEUED_PONGS = 64
#: Resets that may wait for a remote that makes us reset streams and does not read.
MAX_QUEUED_RESETS = 1_000
#: Unknown frame types and other oddities that are reported once each.
MAX_REPORTS = 32
#: Bytes of UTF-8 that the `reason` of a frame of ours holds at most.
MAX_REASON_BYTES = 1_000
#: What an envelope is taken to weigh when a payload that came whole is judged by its message.
ENVELOPE_BYTES = 512
#: Queued bytes of one stream past which `send` waits.
LANE_LIMIT_BYTES = 1_048_576

Observer = Callable[[Mapping[str, Any], int], None]

_RECEIVING = frozenset({StreamState.OPEN, StreamState.HALF_CLOSED_LOCAL})


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


class Connection:
    """The protocol's state for one socket.

    Args:
        codec: The codec of the connection.
        envelopes: The same codec's envelope operations.
        sink: Is told what happens.
        dialer: True for the end that dialled, which opens odd ids.
        max_frame_bytes: Cap of one encoded message, both ways.
        max_payload_bytes: Largest payload taken from the remote.
        max_concurrent_streams: Live streams that the remote may have here.
        send_buffer_bytes: Soft limit of what may be queued to be sent.
    """

    def __init__(
        self,
        codec: ICodec,
        envelopes: IEnvelopeCodec,
        sink: IConnectionSink,
        *,
        dialer: bool,
        max_frame_bytes: int,
        max_payload_bytes: int,
        max_concurrent_streams: int,
        send_buffer_bytes: int,
    ) -> None:
        self._codec = codec
        self._envelopes = envelopes
        self._wrap = envelopes.wrap
        #: A message as the dict of its fields, unchecked; `ProtocolError` if it is none.
        self.unwrap = envelopes.unwrap
        self._binary = codec.binary
        self._sink = sink
        self._cap = max_frame_bytes
        self._max_payload_bytes = max_payload_bytes
        self._max_concurrent_streams = max_concurrent_streams
        self._local_parity = 1 if dialer else 0
        self._next_id = 1 if dialer else 2
        self._highest_local = 0
        self._highest_remote = 0
        self._remote_streams = 0
        self._assembling_bytes = 0
        self._reported: set[str] = set()
        self._queued_pongs = 0
        self.streams: dict[int, LiveStream] = {}
        self.lanes = Lanes(send_buffer_bytes, min(LANE_LIMIT_BYTES, send_buffer_bytes))
        self.goaway_sent = False
        self.goaway_received = False
        #: The socket is gone; nothing can be opened or sent any more.
        self.dead = False
        #: Frames for streams that had closed here, ignored.
        self.late_frames = 0
        #: Called with every received envelope and the length of its message, before it is acted upon; None: nobody.
        self.observer: Observer | None = None

    # Receiving

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
        try:
            envelope = self.unwrap(message)
        except ProtocolError as error:
            raise Violation(f"undecodable message: {error}") from error
        stream_id = envelope.get("stream")
        # The frame that makes up nearly all traffic, told by its shape: its three fields need no further check.
        if (
            type(stream_id) is int
            and len(envelope) == 3
            and "payload" in envelope
            and envelope.get("type") == "data"
            and size <= self._cap
        ):
            live = self.streams.get(stream_id)
            if live is not None and live.heard and live.assembler is None and live.state in _RECEIVING:
                if self.observer is not None:
                    self.observer(envelope, size)
                self._deliver(live, envelope["payload"], size)
                return
        try:
            envelope = check_envelope(envelope)
        except ProtocolError as error:
            raise Violation(f"invalid frame: {error}") from error
        if self.observer is not None:
            self.observer(envelope, size)
        self._dispatch(envelope, size)

    def _dispatch(self, envelope: dict[str, Any], size: int) -> None:
        kind: str = envelope["type"]
        if size > self._cap:
            self._over_cap(kind, envelope, size)
        elif kind == "data":
            self._on_data(envelope, size)
        elif kind == "open":
            self._on_open(envelope, size)
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
            self._report(f"ignoring the unknown frame type {repr(kind)[:32]}")

    def _report(self, text: str) -> None:
        if text not in self._reported and len(self._reported) < MAX_REPORTS:
            self._reported.add(text)
            self._sink.report(text)

    def _is_local(self, stream_id: int) -> bool:
        return stream_id % 2 == self._local_parity

    def _stream_id(self, kind: str, envelope: Mapping[str, Any]) -> int:
        stream_id: int | None = envelope.get("stream")
        if stream_id is None:
            raise Violation(f"{kind} without a stream id")
        return stream_id

    def _find(self, kind: str, envelope: Mapping[str, Any]) -> LiveStream | None:
        """The live stream of a `data` or `reset`; None where the frame is late."""
        stream_id = self._stream_id(kind, envelope)
        live = self.streams.get(stream_id)
        if live is None:
            mark = self._highest_local if self._is_local(stream_id) else self._highest_remote
            if stream_id > mark:
                raise Violation(f"{kind} on stream {stream_id}, which was never opened (the mark is {mark})")
            self.late_frames += 1
        return live

    def _on_open(self, envelope: dict[str, Any], size: int) -> None:
        stream_id = self._stream_id("open", envelope)
        fragment = envelope.get("fragment")
        live = self.streams.get(stream_id)
        if live is not None and fragment is not None and not live.local:
            if live.opening:
                self._collect(live, "open", envelope)
                return
            if live.assembler is not None:
                self._violate(live, "a fragment of another type than the sequence that it continues")
                return
        if not self._admit(stream_id, fragment is not None):
            return
        if self.goaway_sent:
            self._refuse(stream_id, "going away")
            return
        if self._remote_streams >= self._max_concurrent_streams:
            self._refuse(stream_id, f"over the limit of {self._max_concurrent_streams} concurrent streams")
            return
        ended = bool(envelope.get("end")) and fragment is None
        state = TABLE[StreamState.IDLE][Event.RECV_OPEN_END if ended else Event.RECV_OPEN]
        assert isinstance(state, StreamState)
        live = LiveStream(stream_id, False, state)
        self.streams[stream_id] = live
        self._remote_streams += 1
        live.opening = fragment is not None
        self._sink.opening(live, envelope.get("headers"))
        if live.state is StreamState.CLOSED:
            return
        if fragment is not None:
            self._collect(live, "open", envelope)
            return
        if size - ENVELOPE_BYTES > self._max_payload_bytes:
            self._too_large(live)
            return
        self._sink.opened(live, envelope.get("payload"))
        if ended and live.state is not StreamState.CLOSED:
            self._sink.ended(live, envelope.get("trailers"))

    def _admit(self, stream_id: int, piece: bool) -> bool:
        """Judge the id of an `open` that continues nothing. False: a late piece, to be ignored."""
        if stream_id == 0 or self._is_local(stream_id):
            raise Violation(f"open on stream {stream_id}: not an id of the remote's parity")
        if stream_id > self._highest_remote:
            # Whatever ends in a reset of a stream of the remote's began with an `open`: the one place to stop it.
            if self.lanes.owed_resets >= MAX_QUEUED_RESETS:
                raise Violation(f"{MAX_QUEUED_RESETS} resets wait for a remote that does not read", 1008)
            self._highest_remote = stream_id
            return True
        live = self.streams.get(stream_id)
        state = live.state if live is not None else StreamState.CLOSED
        verdict = TABLE[state][Event.RECV_OPEN_PIECE if piece else Event.RECV_OPEN]
        if verdict is not Verdict.IGNORE:
            raise Violation(f"open on stream {stream_id}, not above the highest previous one, {self._highest_remote}")
        self.late_frames += 1
        return False

    def _on_data(self, envelope: dict[str, Any], size: int) -> None:
        live = self._find("data", envelope)
        if live is None:
            return
        fragment = envelope.get("fragment")
        more = fragment is not None and bool(envelope.get("more"))
        ends = bool(envelope.get("end")) and not more
        verdict = TABLE[live.state][Event.RECV_END if ends else Event.RECV_DATA]
        if verdict is Verdict.STREAM_ERROR:
            self._violate(live, "data after end")
            return
        headers = envelope.get("headers")
        if live.heard and headers is not None:
            self._violate(live, "headers after the first frame")
            return
        if live.assembler is not None:
            if fragment is None:
                self._violate(live, "a whole frame while fragments are being collected")
                return
            if live.kind != "data":
                self._violate(live, "a fragment of another type than the sequence that it continues")
                return
        if not live.heard:
            live.heard = True
            self._sink.answered(live, headers)
            if live.state not in LIVE:
                return
        if fragment is not None:
            self._collect(live, "data", envelope)
            return
        if "payload" in envelope:
            self._deliver(live, envelope["payload"], size)
        if ends:
            self._end(live, envelope)

    def _deliver(self, live: LiveStream, payload: Any, size: int) -> None:
        if size - ENVELOPE_BYTES > self._max_payload_bytes:
            self._too_large(live)
        else:
            self._sink.payload(live, payload, size)

    def _end(self, live: LiveStream, envelope: Mapping[str, Any]) -> None:
        """The remote's last frame has been acted upon."""
        if live.state not in LIVE:
            return
        state = TABLE[live.state][Event.RECV_END]
        assert isinstance(state, StreamState)
        live.state = state
        if state is StreamState.CLOSED:
            self._forget(live)
        self._sink.ended(live, envelope.get("trailers"))

    def _collect(self, live: LiveStream, kind: str, envelope: dict[str, Any]) -> None:
        """Take one fragment; hand over the payload with the last one."""
        assembler = live.assembler
        if assembler is None:
            assembler = live.assembler = Assembler()
            live.kind = kind
        if kind == "open" and live.opening and assembler.in_progress and envelope.get("headers") is not None:
            self._violate(live, "headers after the first frame")
            return
        piece: str | bytes = envelope["fragment"]
        if isinstance(piece, bytes) is not self._binary:
            self._violate(live, "a fragment of the wrong kind for the codec")
            return
        before = assembler.byte_length
        assembler.add(piece)
        self._assembling_bytes += assembler.byte_length - before
        if assembler.byte_length > self._max_payload_bytes:
            self._too_large(live)
            return
        if self._assembling_bytes > 2 * self._max_payload_bytes:
            reason = "the payloads being collected on this connection are over the limit together"
            self._fail(live, ResetCode.PAYLOAD_TOO_LARGE, reason)
            return
        if envelope.get("more"):
            return
        size = assembler.byte_length
        try:
            payload = self._codec.decode_payload(assembler.join())
        except ProtocolError:
            self._violate(live, "an undecodable payload")
            return
        finally:
            self._assembling_bytes -= size
            live.assembler = None
        if kind == "data":
            self._sink.payload(live, payload, size)
            if envelope.get("end"):
                self._end(live, envelope)
            return
        live.opening = False
        ended = bool(envelope.get("end"))
        if ended and live.state is StreamState.OPEN:
            live.state = StreamState.HALF_CLOSED_REMOTE
        self._sink.opened(live, payload)
        if ended and live.state is not StreamState.CLOSED:
            self._sink.ended(live, envelope.get("trailers"))

    def _on_reset(self, envelope: dict[str, Any]) -> None:
        live = self._find("reset", envelope)
        if live is None:
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
        self._queued_pongs += 1
        self._control(Frame("pong", nonce=nonce))
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
        self._sink.goaway(envelope.get("code") or 0, envelope.get("reason"))
        for live in refused:
            self._sink.failed(live, self._error(live, ResetCode.REFUSED, "the remote went away before this stream"))

    # Faults of the remote that cost one stream

    def _over_cap(self, kind: str, envelope: dict[str, Any], size: int) -> None:
        if kind not in ("open", "data", "reset"):
            raise Violation(f"a connection-level frame of {size} bytes, over the cap of {self._cap}")
        stream_id = self._stream_id(kind, envelope)
        live = self.streams.get(stream_id)
        piece = envelope.get("fragment") is not None
        if kind == "open" and not (live is not None and piece and (live.opening or live.assembler is not None)):
            if not self._admit(stream_id, piece):
                return
        elif self._find(kind, envelope) is None:
            return
        reason = f"a message of {size} bytes is over the cap of {self._cap}"
        if live is None:
            self._queue_reset(Lane(stream_id), ResetCode.PAYLOAD_TOO_LARGE, reason)
            self._sink.queued()
        else:
            self._fail(live, ResetCode.PAYLOAD_TOO_LARGE, reason)

    def _too_large(self, live: LiveStream) -> None:
        self._fail(live, ResetCode.PAYLOAD_TOO_LARGE, f"a payload is over the limit of {self._max_payload_bytes} bytes")

    def _violate(self, live: LiveStream, reason: str) -> None:
        self._fail(live, ResetCode.PROTOCOL_ERROR, reason)

    def _fail(self, live: LiveStream, code: ResetCode, reason: str) -> None:
        """Reset a stream for what the remote did on it."""
        self.reset(live, code, reason, asked=True)
        self._sink.failed(live, self._error(live, code, reason))

    def _error(self, live: LiveStream, code: ResetCode, reason: str) -> StreamReset:
        return error_for_reset(code, reason, stream_id=live.id)

    def _refuse(self, stream_id: int, reason: str) -> None:
        self._queue_reset(Lane(stream_id), ResetCode.REFUSED, reason)
        self._sink.queued()

    # Sending

    def fits_one_frame(self, encoded: str | bytes) -> bool:
        """Whether a payload counts as small for the send limits: its envelope is allowed for."""
        return len(encoded) <= self._cap - min(ENVELOPE_BYTES, self._cap // 2)

    def open(
        self,
        encoded: str | bytes,
        headers: Mapping[str, Any] | None = None,
        end: bool = False,
        *,
        first: bool = False,
    ) -> LiveStream:
        """Open a stream: take the next id and queue its `open`.

        Args:
            encoded: The encoded payload.
            headers: The application's.
            end: Whether nothing follows from this side.
            first: Put it before everything else, which is for the hello of a connection that has sent nothing.

        Raises:
            ConnectionLost: The socket is gone.
            ConnectionGoingAway: After a goaway of either side, or when all ids are used up.
            ProtocolError: The headers alone break the cap.
            Exception: Whatever the codec raises for the headers.
        """
        while True:
            self._check_openable()
            stream_id = self._next_id
            item, size = self._pack("open", stream_id, encoded, headers, end, None)
            # A codec of the application's may have switched, and another greenlet have taken the id.
            if self._next_id == stream_id:
                break
        self._check_openable()
        self._next_id = stream_id + 2
        self._highest_local = stream_id
        live = LiveStream(stream_id, True, StreamState.HALF_CLOSED_LOCAL if end else StreamState.OPEN)
        self.streams[stream_id] = live
        live.lane.open_unsent = True
        if first:
            self.lanes.put_first(live.lane, item, size)
        else:
            self.lanes.put(live.lane, item, size)
        return live

    def _check_openable(self) -> None:
        if self.dead:
            raise ConnectionLost("the connection is gone")
        if self.goaway_received:
            raise ConnectionGoingAway("the remote is going away; open the stream on another connection")
        if self.goaway_sent:
            raise ConnectionGoingAway("this end is going away")
        if self.ids_used_up:
            raise ConnectionGoingAway(f"all stream ids up to {MAX_STREAM_ID} are used up; dial again")

    @property
    def ids_used_up(self) -> bool:
        """Whether the last stream id of this end has been taken."""
        return self._next_id > MAX_STREAM_ID

    def send(
        self,
        live: LiveStream,
        encoded: str | bytes | None,
        headers: Mapping[str, Any] | None = None,
        end: bool = False,
        trailers: Mapping[str, Any] | None = None,
    ) -> None:
        """Queue a `data` frame.

        Args:
            live: The stream.
            encoded: The encoded payload; None for none.
            headers: Only on this side's first frame.
            end: Whether this is this side's last frame.
            trailers: Only with `end`.

        Raises:
            StreamClosed: This side has ended.
            ProtocolError: Headers after the first frame, or headers or trailers that alone break the cap.
            Exception: Whatever the codec raises for headers or trailers.
        """
        if headers is not None and live.answered:
            raise ProtocolError(
                f"stream {live.id}: headers ride this side's first frame only"
                + ("; pass them to open()" if live.local else "")
            )
        item, size = self._pack("data", live.id, encoded, headers, end, trailers)
        verdict = TABLE[live.state][Event.SEND_END if end else Event.SEND_DATA]
        if not isinstance(verdict, StreamState):
            raise StreamClosed(f"stream {live.id} has ended on this side")
        live.answered = True
        self.lanes.put(live.lane, item, size)
        if end:
            live.state = verdict
            if verdict is StreamState.CLOSED:
                self._forget(live)

    def _pack(
        self,
        kind: str,
        stream_id: int,
        encoded: str | bytes | None,
        headers: Mapping[str, Any] | None,
        end: bool,
        trailers: Mapping[str, Any] | None,
    ) -> tuple[bytes | Splitter, int]:
        """What to put into the lane for this frame, and how many bytes it counts."""
        if encoded is None or len(encoded) <= self._cap:
            message = self._wrap(kind, stream_id, encoded, headers, end, trailers)
            size = len(message)
            if size <= self._cap:
                return message, size
            if encoded is None:
                raise ProtocolError(
                    f"stream {stream_id}: headers or trailers of {size} bytes are over the cap of {self._cap} bytes of "
                    f"one message; they are never fragmented"
                )
        splitter = Splitter(
            self._codec, self._envelopes, kind, stream_id, encoded, headers, end, trailers, self._cap
        )
        return splitter, splitter.remaining_bytes

    def reset(
        self,
        live: LiveStream,
        code: int,
        reason: str | None,
        *,
        asked: bool,
        payload: Any = ABSENT,
    ) -> None:
        """End both directions of a stream; nothing on a closed one.

        Args:
            live: The stream.
            code: A reset code that may be sent.
            reason: Text for people; cut to 1,000 bytes.
            asked: True takes the place of the frames still queued on the lane (PROTOCOL §6); False is queued behind them.
            payload: An error object; left out where it cannot be encoded or does not fit beside the rest.
        """
        if live.state is StreamState.CLOSED:
            return
        if asked:
            self.lanes.discard(live.lane, keep_unsent_open=True)
        self._close(live)
        self._queue_reset(live.lane, code, reason, payload)

    def _queue_reset(self, lane: Lane, code: int, reason: str | None, payload: Any = ABSENT) -> None:
        reason = None if reason is None else clip_utf8(reason, MAX_REASON_BYTES)
        message = None
        if payload is not ABSENT:
            try:
                message = self._encode(Frame("reset", stream=lane.stream, payload=payload, code=int(code), reason=reason))
            except Exception as error:  # whatever a codec makes of an odd error object, the reset itself must go out
                self._report(f"an error payload was left out of its reset: {type(error).__name__}")
        if message is None or len(message) > self._cap:
            message = self._encode(Frame("reset", stream=lane.stream, code=int(code), reason=reason))
        if len(message) > self._cap:
            message = self._encode(Frame("reset", stream=lane.stream, code=int(code)))
        self.lanes.put_reset(lane, message, owed=not self._is_local(lane.stream))

    def ping(self, nonce: str) -> None:
        """Queue a ping ahead of all streams."""
        self._control(Frame("ping", nonce=nonce))

    def goaway(self, code: int, reason: str | None) -> None:
        """Queue a goaway once; streams that the remote opens from now on are refused."""
        if self.goaway_sent:
            return
        self.goaway_sent = True
        reason = None if reason is None else clip_utf8(reason, MAX_REASON_BYTES)
        self._control(Frame("goaway", code=int(code), reason=reason, last_stream=self._highest_remote))

    def _control(self, frame: Frame) -> None:
        self.lanes.put_control(self._encode(frame))

    def _encode(self, frame: Frame) -> bytes:
        message = self._codec.encode(frame)
        return message.encode("utf-8", "replace") if isinstance(message, str) else message

    def take_batch(self) -> list[bytes]:
        """The messages to write next; empty where nothing waits."""
        batch, failed = self.lanes.take_batch()
        self._queued_pongs = 0
        for lane in failed:
            live = self.streams.get(lane.stream)
            reason = f"a fragment could not be encoded: {type(lane.failure).__name__}"
            if live is None:
                self._queue_reset(lane, ResetCode.INTERNAL_ERROR, reason)
            else:
                self.reset(live, ResetCode.INTERNAL_ERROR, reason, asked=False)
                self._sink.failed(live, self._error(live, ResetCode.INTERNAL_ERROR, reason))
        return batch

    # Ends

    def handler_started(self, live: LiveStream) -> None:
        """A handler works on this stream of the remote's: it counts against the limit until `handler_ended`."""
        live.running = True

    def handler_ended(self, live: LiveStream) -> None:
        """The handler of this stream has ended."""
        live.running = False
        if live.state is StreamState.CLOSED:
            self._remote_streams -= 1

    def _close(self, live: LiveStream) -> None:
        live.state = StreamState.CLOSED
        self._forget(live)

    def _forget(self, live: LiveStream) -> None:
        del self.streams[live.id]
        if live.assembler is not None:
            self._assembling_bytes -= live.assembler.byte_length
            live.assembler = None
        if not live.local and not live.running:
            self._remote_streams -= 1

    def die(self) -> list[LiveStream]:
        """The socket is dead: close every stream, drop every queued frame.

        Returns:
            The streams that were live.
        """
        self.dead = True
        lost = list(self.streams.values())
        for live in lost:
            self._close(live)
        self.lanes.clear()
        return lost
