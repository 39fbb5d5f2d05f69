"""One end of a WebSocket that says exactly what a test tells it to: whole frames, half ones, forbidden ones, nothing.

A raw end answers nothing by itself, neither pings nor close frames, and checks nothing of what it sends. What it hears
it hands out frame by frame, and every wait has an end. `RawClient` (in `raw_client`) plays the dialler, `RawServer` (in
`raw_server`) the acceptor. Of one end, one greenlet reads and one writes at a time.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Collection, Mapping
from types import TracebackType
from typing import Any, Self

from gevent.socket import socket as GeventSocket  # noqa: N812

from muxws_green.codecs.registry import resolve_codec
from muxws_green.interfaces import IClock, ICodec
from muxws_green.protocol.frames import Frame
from muxws_green.runtime.clock import default_clock
from muxws_green.testing.wire import Opcode, WireFrame, encode_close_payload, encode_frame, parse_frame
from muxws_green.transports.deadline import Deadline

#: Seconds of an end's clock that each of its waits takes at most, unless a test says otherwise.
PATIENCE = 10.0

_READ_BYTES = 65_536
_MAX_HEAD_BYTES = 1_048_576


class Gone(Exception):
    """The other end says nothing more: it has closed, or the socket is at its end.

    Attributes:
        close: Its close frame; None where there was none.
        was_reset: Whether the socket was reset, and not only at its end.
    """

    def __init__(self, close: WireFrame | None = None, *, was_reset: bool = False) -> None:
        self.close = close
        self.was_reset = was_reset
        if close is not None:
            how = f"has closed with {self.code} {close.close_reason!r}"
        else:
            how = "has reset the connection" if was_reset else "has ended the connection without a close frame"
        super().__init__(f"the other end {how}")

    @property
    def code(self) -> int:
        """What an API for WebSockets would report: the close frame's code, 1005 for an empty one, 1006 for none."""
        if self.close is None:
            return 1006
        return 1005 if self.close.close_code is None else self.close.close_code


class RawEnd:
    """One end of a connection. As a context manager it closes the socket on leaving.

    Args:
        sock: A connected gevent socket, which belongs to this object from now on.
        client: Whether this is the client's end, whose frames are masked unless a test says otherwise.
        codec: What `send` and `receive` translate frames with; a codec or a registered name.
        clock: Stamps what is heard, and tells how long a wait may take. With a `FakeClock` here, waiting lets its time
            pass; with the real one, waits are bounded by real time and leave fake time alone.
        timeout: Seconds of `clock` for each wait; `math.inf`: for ever.

    Attributes:
        sock: The socket, for whatever this class does not do.
        heard: The muxws frames that have been read, as (time, frame), in order.
    """

    def __init__(
        self,
        sock: GeventSocket,
        *,
        client: bool,
        codec: ICodec | str = "json",
        clock: IClock = default_clock,
        timeout: float = PATIENCE,
    ) -> None:
        sock.settimeout(None)
        if sock.family != socket.AF_UNIX:
            # A second small write would wait for an acknowledgement, some 40 ms that no fake clock can see.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self.client = client
        self.codec = resolve_codec(codec)
        self.clock = clock
        self.timeout = timeout
        self.heard: list[tuple[float, Frame]] = []
        self._buffer = bytearray()
        self._end: Gone | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # Saying

    def send_bytes(self, data: bytes) -> None:
        """Write `data` as it is.

        Raises:
            Gone: The other end takes nothing any more.
            TimeoutError: It has stopped reading.
        """
        with self._within(None, "the other end did not take what was sent"):
            try:
                self.sock.sendall(data)
            except OSError as error:
                raise Gone(was_reset=True) from error

    def send_frame(
        self,
        opcode: int,
        payload: bytes = b"",
        *,
        fin: bool = True,
        rsv: int = 0,
        masked: bool | None = None,
        announce: int | None = None,
        stop_after: int | None = None,
    ) -> None:
        """Send one WebSocket frame, legal or not.

        Args:
            opcode: An `Opcode` or any other number from 0 to 15.
            payload: What it carries.
            fin: False where its message goes on in the next frame.
            rsv: The reserved bits, 0 to 7; 4 is RSV1.
            masked: None: as this end has to.
            announce: The length to announce; None: the true one.
            stop_after: Send only so many bytes of the frame, header included; None: all of it. `send_bytes` can send
                the rest, which is the same bytes each time.
        """
        masked = self.client if masked is None else masked
        frame = encode_frame(opcode, payload, masked=masked, fin=fin, rsv=rsv, announce=announce)
        self.send_bytes(frame[:stop_after])

    def send_close(self, code: int | None = 1000, reason: str = "") -> None:
        """Send a close frame with any code from 0 to 65535, None: an empty one; the socket stays open."""
        self.send_frame(Opcode.CLOSE, encode_close_payload(code, reason))

    def send(self, frame: Frame | Mapping[str, Any]) -> None:
        """Send one muxws frame.

        Args:
            frame: A `Frame`; or a mapping, which goes out as it is with whatever is wrong with it, for codecs such as
                `json` and `msgpack` whose messages are encoded mappings.

        Raises:
            TypeError, ValueError: The codec cannot encode it.
        """
        codec = self.codec
        message = codec.encode(frame) if isinstance(frame, Frame) else codec.encode_payload(dict(frame))
        data = message.encode("utf-8", "surrogatepass") if isinstance(message, str) else message
        self.send_frame(Opcode.BINARY if codec.binary else Opcode.TEXT, data)

    # Hearing

    def read_frame(self, timeout: float | None = None) -> WireFrame:
        """The next WebSocket frame, whatever it is.

        Args:
            timeout: Seconds; None: this end's own.

        Raises:
            Gone: The socket is at its end. A close frame is a frame like any other here.
            TimeoutError: Nothing has come, or not a whole frame.
        """
        with self._within(timeout, "no frame came"):
            while (found := parse_frame(self._buffer)) is None:
                self._fill()
        frame, stop = found
        del self._buffer[:stop]
        return frame

    def receive(self, timeout: float | None = None) -> Frame:
        """The next muxws frame. WebSocket pings and pongs are passed over; fragments of a message are joined.

        Args:
            timeout: Seconds; None: this end's own.

        Raises:
            Gone: The other end has sent a close frame, or the socket is at its end.
            ProtocolError: A message that the codec cannot decode.
            TimeoutError: Nothing has come.
        """
        parts: list[bytes] = []
        kind = -1
        with self._within(timeout, "no muxws frame came"):
            while True:
                frame = self.read_frame(float("inf"))
                if frame.opcode == Opcode.CLOSE:
                    raise Gone(frame)
                if frame.opcode in (Opcode.PING, Opcode.PONG):
                    continue
                if frame.opcode != Opcode.CONTINUATION:
                    kind = frame.opcode
                parts.append(frame.payload)
                if frame.fin:
                    break
        message = b"".join(parts)
        heard = self.codec.decode(message.decode("utf-8", "surrogatepass") if kind == Opcode.TEXT else message)
        self.heard.append((self.clock.now(), heard))
        return heard

    def expect(
        self,
        type: str,  # noqa: A002
        *,
        skip: Collection[str] = (),
        timeout: float | None = None,
        **fields: Any,
    ) -> Frame:
        """The next muxws frame, which is to be of this type and to have these values.

        Args:
            type: Such as "open".
            skip: Types to pass over, such as `("ping",)`.
            timeout: Seconds; None: this end's own.
            fields: What further fields of the `Frame` are to be: `stream=1, payload={"job": 7}`. Fields that are not
                named may be anything.

        Raises:
            AssertionError: It is another frame; the message shows both.
            Gone: The other end has closed, or the socket is at its end.
            TimeoutError: Nothing has come.
        """
        wanted = {"type": type, **fields}
        with self._within(timeout, f"no frame came; expected was {_show(wanted)}"):
            frame = self.receive(float("inf"))
            while frame.type in skip and frame.type != type:
                frame = self.receive(float("inf"))
        if any(getattr(frame, name) != value for name, value in wanted.items()):
            raise AssertionError(f"expected {_show(wanted)}, and {frame} came")
        return frame

    def expect_close(
        self, code: int | None = None, *, skip: Collection[str] = (), timeout: float | None = None
    ) -> WireFrame:
        """The close frame that is to come next.

        Args:
            code: What its code is to be; 1005: none at all; None: any.
            skip: Types of muxws frames to pass over, such as `("goaway",)`.
            timeout: Seconds; None: this end's own.

        Raises:
            AssertionError: Another frame came, or another code.
            Gone: The socket is at its end without a close frame.
            TimeoutError: Nothing has come.
        """
        with self._within(timeout, "no close frame came"):
            try:
                frame = self.receive(float("inf"))
                while frame.type in skip:
                    frame = self.receive(float("inf"))
            except Gone as gone:
                if gone.close is None:
                    raise
                if code not in (None, gone.code):
                    raise AssertionError(f"expected a close frame with {code}, and {gone}") from None
                return gone.close
        raise AssertionError(f"expected a close frame, and {frame} came")

    def expect_end(self, timeout: float | None = None) -> bool:
        """Wait for the end of the socket, before which nothing more is to come.

        Args:
            timeout: Seconds; None: this end's own.

        Returns:
            Whether it was a reset.

        Raises:
            AssertionError: Something came.
            TimeoutError: Nothing came, the end neither.
        """
        rest = self.read_rest(timeout)
        if rest:
            raise AssertionError(f"expected the end of the connection, and {len(rest)} bytes came: {rest[:100]!r}")
        return self._end is not None and self._end.was_reset

    def expect_silence(self, seconds: float) -> None:
        """Wait, and make sure that nothing comes meanwhile.

        Args:
            seconds: How long, by this end's clock.

        Raises:
            AssertionError: Something came, the end of the connection included.
        """
        try:
            if not self._buffer:
                with self._within(seconds, "as it should be"):
                    self._fill()
        except TimeoutError:
            return
        except Gone as gone:
            raise AssertionError(f"expected {seconds} seconds of silence, and {gone}") from None
        raise AssertionError(f"expected {seconds} seconds of silence, and this came: {bytes(self._buffer[:100])!r}")

    def read_rest(self, timeout: float | None = None) -> bytes:
        """Everything up to the end of the socket, undecoded.

        Raises:
            TimeoutError: It does not end.
        """
        with self._within(timeout, "the connection did not end"):
            try:
                while True:
                    self._fill()
            except Gone:
                rest = bytes(self._buffer)
                self._buffer.clear()
                return rest

    def fill(self, limit_bytes: int = _READ_BYTES) -> int:
        """Read once from the socket, for a test that reads slowly; what was read is decoded later.

        Args:
            limit_bytes: How many bytes to take at most.

        Returns:
            How many there were.

        Raises:
            Gone: There will be none.
            TimeoutError: There are none yet.
        """
        with self._within(None, "nothing came"):
            return self._fill(limit_bytes)

    # What most scripts are made of

    def greet(self) -> Frame:
        """Take the hello and acknowledge it, as an acceptor does.

        Raises:
            AssertionError, Gone, TimeoutError: As `expect`.
        """
        hello = self.expect("open", end=True)
        self.send(Frame("data", hello.stream, end=True))
        return hello

    def answer(self, frame: Frame) -> None:
        """Answer a ping with its pong and a call with its own payload; nothing else is answered."""
        if frame.type == "ping":
            self.send(Frame("pong", nonce=frame.nonce))
        elif frame.type == "open" and frame.end:
            self.send(Frame("data", frame.stream, payload=frame.payload, end=True))

    def serve(self) -> None:
        """Answer everything until the other end is gone; then raises `Gone`, which ends a script in peace."""
        while True:
            self.answer(self.receive(float("inf")))

    # Ending

    def shut_write(self) -> None:
        """Send the end of the stream and go on reading; nothing where the connection is gone."""
        self._quietly(lambda: self.sock.shutdown(socket.SHUT_WR))

    def close(self) -> None:
        """Close the socket without a word; any number of times."""
        self.sock.close()

    def reset(self) -> None:
        """Vanish with a RST (TCP); over a Unix socket a plain close."""
        self._quietly(lambda: reset_on_close(self.sock))
        self.sock.close()

    # Inside

    def _within(self, timeout: float | None, message: str) -> Deadline:
        seconds = self.timeout if timeout is None else timeout
        return Deadline(self.clock, seconds, f"{message} within {seconds} seconds")

    def _fill(self, limit_bytes: int = _READ_BYTES) -> int:
        """As `fill`, for as long as it takes."""
        if self._end is not None:
            raise self._end
        try:
            data = self.sock.recv(limit_bytes)
        except OSError as error:
            self._end = Gone(was_reset=True)
            raise self._end from error
        if not data:
            self._end = Gone()
            raise self._end
        self._buffer += data
        return len(data)

    def _read_head(self) -> str:
        """The head of an HTTP request or answer, up to and without the empty line."""
        with self._within(None, "no whole HTTP head came"):
            while (stop := self._buffer.find(b"\r\n\r\n")) < 0:
                if len(self._buffer) > _MAX_HEAD_BYTES:
                    raise AssertionError("what came is no HTTP head")
                self._fill()
        head = self._buffer[:stop].decode("latin-1")
        del self._buffer[: stop + 4]
        return head

    @staticmethod
    def _quietly(act: Callable[[], object]) -> None:
        try:
            act()
        except OSError:
            # Not connected any more.
            pass


def reset_on_close(sock: GeventSocket) -> None:
    """Make the next close of a TCP socket throw away what it holds and send a RST."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def parse_headers(lines: list[str]) -> list[tuple[str, str]]:
    """The header lines of a head as (name, value)."""
    split = [line.partition(":") for line in lines]
    return [(name, value.strip()) for name, _, value in split]


def _show(fields: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in fields.items())
