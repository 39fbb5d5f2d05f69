"""The half of a connection that its own end drives: what may be opened, sent and reset, and what is then queued.

`open`, `send`, `reset`, `ping` and `goaway` queue frames; `take_batch` hands over what is to be written next. A rule
broken by the caller raises at the call and changes nothing. `Connection` adds the half that the remote drives, and is
the only one to use this.

Payloads are encoded by the caller (`codec.encode_payload`), who may do so before it knows whether there is room; an
envelope is built before its id is taken, so that nothing runs between taking the id and queuing.
"""

from __future__ import annotations

from collections.abc import Mapping
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
from muxws_green.interfaces import IBulkCodec, ICodec, IConnectionSink, IEnvelopeCodec
from muxws_green.protocol.fragments import Splitter
from muxws_green.protocol.frames import ABSENT, Frame, clip_utf8
from muxws_green.protocol.lanes import Lane, Lanes
from muxws_green.protocol.longbytes import LongBytes
from muxws_green.protocol.states import CLOSED, HALF_CLOSED_LOCAL, OPEN, Event, StreamState, column
from muxws_green.protocol.streams import LiveStream

#: The last id of either parity is at or below this.
MAX_STREAM_ID = 2**31 - 1
#: Oddities that are reported, once each.
MAX_REPORTS = 64
#: Bytes of UTF-8 that the `reason` of a frame of ours holds at most.
MAX_REASON_BYTES = 1_000
#: What an envelope is taken to weigh where only it or only its payload is known.
ENVELOPE_BYTES = 512

_SEND_DATA = column(Event.SEND_DATA)
_SEND_END = column(Event.SEND_END)


class SendingHalf:
    """The streams of one socket, and what this end does to them.

    Args:
        codec: The codec of the connection.
        envelopes: The same codec's envelope operations.
        bulk: The same codec's operations for long bytes; None where it has none.
        sink: Is told what happens.
        lanes: Where to queue what is to be sent; empty.
        dialer: True for the end that dialled, which opens odd ids.
        max_frame_bytes: Cap of one encoded message.
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
    ) -> None:
        self._codec = codec
        #: Makes and takes apart the messages.
        self.envelopes = envelopes
        self._bulk = bulk
        self._sink = sink
        self._cap = max_frame_bytes
        #: Up to how many encoded bytes a payload counts as small for the send limits: its envelope is allowed for.
        self.small_bytes = max_frame_bytes - min(ENVELOPE_BYTES, max_frame_bytes // 2)
        self._local_parity = 1 if dialer else 0
        self._next_id = 1 if dialer else 2
        self._highest_local = 0
        self._highest_remote = 0
        #: Streams of the remote's that are live, or closed with their handler still running.
        self._remote_streams = 0
        #: Bytes of all payloads that are being collected.
        self._assembling_bytes = 0
        #: Bytes of the opening payloads of all handlers that are running.
        self._handed_bytes = 0
        #: Oddities that the sink was told of; None before the first.
        self._reported: dict[str, None] | None = None
        self._queued_pongs = 0
        self._goaway_code: int | None = None
        #: The live streams.
        self.streams: dict[int, LiveStream] = {}
        #: What waits to be sent.
        self.lanes = lanes
        self.goaway_received = False
        #: The socket is gone; nothing can be opened or sent any more.
        self.dead = False

    def encode(self, payload: Any) -> str | bytes | LongBytes:
        """A payload as `open` and `send` take it. Raises whatever the codec does."""
        if type(payload) is bytes and self._bulk is not None and len(payload) > self._cap:
            return LongBytes(self._bulk.bytes_header(len(payload)), payload)
        return self._codec.encode_payload(payload)

    def open(
        self,
        encoded: str | bytes | LongBytes,
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
        if self.dead or self.goaway_received or self._goaway_code is not None:
            self._check_openable()
        self._next_id = stream_id + 2
        self._highest_local = stream_id
        live = LiveStream(stream_id, True, HALF_CLOSED_LOCAL if end else OPEN)
        self.streams[stream_id] = live
        live.lane.open_unsent = True
        if first:
            self.lanes.put_first(live.lane, item, size)
        else:
            self.lanes.put(live.lane, item, size)
        return live

    def _check_openable(self) -> None:
        if not (self.dead or self.goaway_received or self._goaway_code is not None or self._next_id > MAX_STREAM_ID):
            return
        if self.dead:
            raise ConnectionLost("the connection is gone")
        if self.goaway_received:
            raise ConnectionGoingAway("the remote is going away; open the stream on another connection")
        if self.goaway_sent:
            raise ConnectionGoingAway("this end is going away")
        raise ConnectionGoingAway(f"all stream ids up to {MAX_STREAM_ID} are used up; dial again")

    def send(
        self,
        live: LiveStream,
        encoded: str | bytes | LongBytes | None,
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
        item: bytes | Splitter = b""
        size = self._cap + 1
        if headers is None and trailers is None and isinstance(encoded, (str, bytes)) and len(encoded) < size:
            # Nearly every frame, and as good as always one that fits.
            item = self.envelopes.wrap("data", live.id, encoded, None, end)
            size = len(item)
        if size > self._cap:
            item, size = self._pack("data", live.id, encoded, headers, end, trailers)
        # Judged only now: a codec of the application's may have switched.
        verdict = (_SEND_END if end else _SEND_DATA)[live.state]
        if not isinstance(verdict, StreamState):
            raise StreamClosed(f"stream {live.id} has ended on this side")
        if headers is not None and live.answered:
            raise ProtocolError(
                f"stream {live.id}: headers ride this side's first frame only"
                + ("; pass them to open()" if live.local else "")
            )
        live.answered = True
        self.lanes.put(live.lane, item, size)
        if end:
            live.state = verdict
            if verdict is CLOSED:
                self._forget(live)

    def _pack(
        self,
        kind: str,
        stream_id: int,
        encoded: str | bytes | LongBytes | None,
        headers: Mapping[str, Any] | None,
        end: bool,
        trailers: Mapping[str, Any] | None,
    ) -> tuple[bytes | Splitter, int]:
        """What to put into the lane for this frame, and how many bytes it counts."""
        if not isinstance(encoded, LongBytes) and (encoded is None or len(encoded) <= self._cap):
            message = self.envelopes.wrap(kind, stream_id, encoded, headers, end, trailers)
            size = len(message)
            if size <= self._cap:
                return message, size
            if encoded is None:
                raise ProtocolError(
                    f"stream {stream_id}: headers or trailers of {size} bytes are over the cap of {self._cap} bytes of "
                    f"one message; they are never fragmented"
                )
        splitter = Splitter(
            self._codec,
            self.envelopes,
            kind,
            stream_id,
            encoded,
            headers,
            end,
            trailers,
            self._cap,
            self._bulk is not None,
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
            asked: True takes the place of the frames still queued on the lane (PROTOCOL §6); False queues behind them.
            payload: An error object; left out where it cannot be encoded or does not fit beside the rest.
        """
        if live.state is CLOSED:
            return
        if asked:
            self.lanes.discard(live.lane, keep_unsent_open=True)
        self._close(live)
        self._queue_reset(live.lane, code, reason, payload)

    def _queue_reset(self, lane: Lane, code: int, reason: str | None, payload: Any = ABSENT) -> None:
        code = int(code)
        reason = None if reason is None else clip_utf8(reason, MAX_REASON_BYTES)
        message = None
        if payload is not ABSENT:
            try:
                message = self._encode(Frame("reset", stream=lane.stream, payload=payload, code=code, reason=reason))
            except Exception as error:  # whatever a codec makes of an odd error object, the reset itself must go out
                self._report(f"an error payload was left out of its reset: {type(error).__name__}")
        if message is None or len(message) > self._cap:
            message = self._encode(Frame("reset", stream=lane.stream, code=code, reason=reason))
        if len(message) > self._cap:
            message = self._encode(Frame("reset", stream=lane.stream, code=code))
        self.lanes.put(lane, message, len(message))

    def ping(self, nonce: str) -> None:
        """Queue a ping ahead of all streams."""
        self.lanes.put_control(self._encode(Frame("ping", nonce=nonce)))

    @property
    def goaway_sent(self) -> bool:
        """Whether a goaway has been queued: streams that the remote opens from then on are refused."""
        return self._goaway_code is not None

    def goaway(self, code: int, reason: str | None) -> None:
        """Queue a goaway; a second one only where it reports a fault that the first did not.

        Args:
            code: A reset code; NO_ERROR for an orderly end.
            reason: Text for people; cut to 1,000 bytes.
        """
        code = int(code)
        if self._goaway_code is not None and code in (ResetCode.NO_ERROR, self._goaway_code):
            return
        self._goaway_code = code
        reason = None if reason is None else clip_utf8(reason, MAX_REASON_BYTES)
        message = self._encode(Frame("goaway", code=code, reason=reason, last_stream=self._highest_remote))
        if len(message) > self._cap:
            message = self._encode(Frame("goaway", code=code, last_stream=self._highest_remote))
        self.lanes.put_control(message)

    def _encode(self, frame: Frame) -> bytes:
        message = self._codec.encode(frame)
        return message.encode() if isinstance(message, str) else message

    def take_batch(self) -> list[bytes]:
        """The messages to write next; empty where nothing waits."""
        lanes = self.lanes
        while True:
            batch, failed = lanes.take_batch()
            self._queued_pongs = 0
            for lane in failed:
                self._give_up(lane)
            # Again where all that came was a failure: what that has queued must not wait for somebody else's frame.
            if batch or not failed:
                return batch

    def _give_up(self, lane: Lane) -> None:
        """A fragment could not be built, so the remote will never get the rest."""
        failure, lane.failure = lane.failure, None
        if self.dead:
            return
        reason = f"a fragment could not be encoded: {type(failure).__name__}"
        live = self.streams.get(lane.stream)
        if live is None:
            # It has closed here, and what was to tell the remote stood behind the fragment.
            self._queue_reset(lane, ResetCode.INTERNAL_ERROR, reason)
            self._report(reason)
            return
        self.reset(live, ResetCode.INTERNAL_ERROR, reason, asked=False)
        error = self._error(live, ResetCode.INTERNAL_ERROR, reason)
        error.__cause__ = failure
        self._sink.failed(live, error)

    # Ends

    def handler_started(self, live: LiveStream) -> None:
        """A handler works on this live stream of the remote's: it counts against the limit until `handler_ended`."""
        live.running = live.state is not CLOSED
        if live.running:
            self._handed_bytes += live.opening_bytes

    def handler_ended(self, live: LiveStream) -> None:
        """The handler of this stream has ended."""
        if live.running:
            live.running = False
            self._handed_bytes -= live.opening_bytes
            if live.state is CLOSED:
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

    def _close(self, live: LiveStream) -> None:
        live.state = CLOSED
        self._forget(live)

    def _forget(self, live: LiveStream) -> None:
        del self.streams[live.id]
        if live.assembler is not None:
            self._assembling_bytes -= live.assembler.byte_length
            live.assembler = None
        if not live.local and not live.running:
            self._remote_streams -= 1

    def _error(self, live: LiveStream, code: ResetCode, reason: str) -> StreamReset:
        return error_for_reset(code, reason, stream_id=live.id)

    def _report(self, text: str, room: int = MAX_REPORTS) -> None:
        """Tell the sink of an oddity once, unless `room` others have been told of."""
        if self._reported is None:
            self._reported = {}
        if text not in self._reported and len(self._reported) < room:
            self._reported[text] = None
            self._sink.report(text)
