"""The data-frame loop: bytes as `recv` returned them become whole messages (RFC 6455 §5).

Invariant: whatever a remote sends, nothing is raised and no more is kept than one message of the allowed size and one
incomplete frame. A frame is judged from its header, before its payload is waited for or copied. No extension is ever
negotiated, so every reserved bit is a violation.

Used by the transports, one reader for each socket. `websockets` judges the same bytes in the same way, at several times
the cost: its rules for close frames are called from here, and the tests compare the rest.
"""

from __future__ import annotations

from typing import NamedTuple

from websockets.exceptions import ProtocolError as BrokenRule
from websockets.frames import Close as CloseRules

from muxws_green.websocket.mask import apply_mask

PROTOCOL_ERROR = 1002
INVALID_DATA = 1007
MESSAGE_TOO_BIG = 1009

#: Continuation frames without payload that one message may have. They escape the bound on size, so without a bound of
#: their own a remote could keep one message open, and us busy, for ever; no sender has a reason for more than a few.
MAX_EMPTY_CONTINUATIONS = 64

_FIN = 0x80
_RESERVED = 0x70
_CONTROL = 0x08
_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
_OPCODES = frozenset([_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG])
#: Above this a payload is not sliced but viewed, which costs more than copying less would.
_SHORT_BYTES = 4096
_WHOLE_TEXT = _FIN | _TEXT
_WHOLE = (_WHOLE_TEXT, _FIN | _BINARY)


class Close(NamedTuple):
    """The remote's close frame.

    Attributes:
        code: The code on the wire; 1005 where the frame was empty.
        reason: The text beside it, maybe empty.
    """

    code: int
    reason: str


class Violation(NamedTuple):
    """A rule that the remote broke; the connection is to be failed with a close frame made of these two.

    Attributes:
        code: 1002 for the protocol, 1007 for text that is not UTF-8, 1009 for size.
        reason: Which rule; holds nothing that the remote sent but numbers.
    """

    code: int
    reason: str


class MessageReader:
    """Turns the bytes of one socket into messages.

    After a `feed` that has set `noticed` look at `close`, `violation` and `take_ping`.

    Args:
        client: True where this end is the client: what arrives must not be masked. False where it is the server: what
            arrives must be masked (RFC 6455 §5.1).
        max_message_bytes: The longest message to accept, at least 1; one that is announced longer, in one frame or in
            the sum of its fragments, is a violation with 1009 and is not read.

    Raises:
        ValueError: `max_message_bytes` is less than 1.
    """

    __slots__ = (
        "_dropping",
        "_empty_continuations",
        "_fragments",
        "_key_bytes",
        "_limit",
        "_mask_bit",
        "_needed",
        "_ping",
        "_rest",
        "_text",
        "close",
        "noticed",
        "violation",
    )

    def __init__(self, *, client: bool, max_message_bytes: int) -> None:
        if max_message_bytes < 1:
            raise ValueError(f"max_message_bytes must be at least 1, not {max_message_bytes}")
        #: The remote's close frame, once it has arrived; None before.
        self.close: Close | None = None
        #: The rule that the remote broke; None as long as it has not.
        self.violation: Violation | None = None
        #: Whether there was anything besides messages since `take_ping`.
        self.noticed = False
        self._mask_bit = 0 if client else 0x80
        self._key_bytes = 0 if client else 4
        self._limit = max_message_bytes
        self._dropping = False
        self._ping: bytes | None = None
        # An incomplete frame, and how many bytes it must have before it is worth another look.
        self._rest = bytearray()
        self._needed = 0
        # The fragmented message that is open: None where there is none.
        self._fragments: bytearray | None = None
        self._text = False
        self._empty_continuations = 0

    def feed(self, data: bytes) -> list[str | bytes]:
        """Take the next bytes of the socket and return the messages that they complete, oldest first.

        What was complete before a close frame or a violation in the same bytes is returned too; what follows either is
        dropped, now and in later calls.

        Args:
            data: Any number of bytes, cut anywhere.

        Returns:
            A str for each text message, bytes for each binary one; often empty.
        """
        position = 0
        rest = self._rest
        messages: list[str | bytes] = []
        try:
            if rest:
                if len(rest) + len(data) < self._needed:
                    rest += data
                    return messages
                position = self._complete(data, messages)
            if not rest and not self._dropping:
                position = self._read(data, position, messages)
                if position < len(data):
                    rest += memoryview(data)[position:]
        except UnicodeDecodeError as error:
            self._fail(INVALID_DATA, f"text is not UTF-8 at byte {error.start}")
        return messages

    def take_ping(self) -> bytes | None:
        """The payload of the latest ping that has not been taken yet, or None.

        Earlier ones are forgotten: only the latest must be answered (RFC 6455 §5.5.3), and a remote that sends pings
        without reading cannot make pongs pile up.
        """
        self.noticed = False
        ping, self._ping = self._ping, None
        return ping

    def _complete(self, data: bytes, messages: list[str | bytes]) -> int:
        """Make the incomplete frame whole with the first bytes of `data`, and read it; how many bytes that took.

        No more is added than the frame lacks, so that what follows it is not copied.
        """
        position = 0
        rest = self._rest
        view = memoryview(data)
        while rest and len(rest) + len(data) - position >= self._needed:
            taken = self._needed - len(rest)
            frame = b"".join((rest, view[position : position + taken]))
            position += taken
            rest.clear()
            if not self._read(frame, 0, messages):
                # It was a header, and its payload is still to come.
                rest += frame
        if rest:
            rest += view[position:]
        return position

    def _read(self, data: bytes, position: int, messages: list[str | bytes]) -> int:
        """Read whole frames in one pass, from `position` on; the position of what is left, after setting `_needed`.

        Nearly every frame is a short message by itself: such a frame is read here, without a call or anything else that
        it does not need, and the others by `_read_any`, which takes every kind.
        """
        end = len(data)
        mask_bit = self._mask_bit
        head_bytes = 2 + self._key_bytes
        short = min(self._limit, _SHORT_BYTES)
        whole = _WHOLE if self._fragments is None else ()
        while end - position >= 2:
            first = data[position]
            length = data[position + 1] ^ mask_bit
            if first in whole and length < 127:
                start = position + head_bytes
                if length == 126 and end - position >= 4:
                    length = data[position + 2] << 8 | data[position + 3]
                    start += 2
                stop = start + length
                if length <= short and stop <= end:
                    payload = data[start:stop]
                    if mask_bit:
                        payload = apply_mask(payload, data[start - 4 : start])
                    messages.append(payload.decode() if first == _WHOLE_TEXT else payload)
                    position = stop
                    continue
            stop = self._read_any(data, position, messages)
            if stop == position:
                return position
            position = stop
            whole = _WHOLE if self._fragments is None else ()
        self._needed = 2
        return position

    def _read_any(self, data: bytes, position: int, messages: list[str | bytes]) -> int:
        """Read one frame of any kind.

        Returns:
            Where it ends; `position` itself where it is incomplete, with `_needed` set; the end of `data` where nothing
            is to be read any more.
        """
        end = len(data)
        first = data[position]
        # A mask bit on the wrong side leaves more than seven bits.
        length = data[position + 1] ^ self._mask_bit
        fault = self._fault(first, length)
        if fault:
            self._fail(PROTOCOL_ERROR, fault)
            return end
        start = position + 2
        if length > 125:
            start += 2 if length == 126 else 8
            if start > end:
                self._needed = start - position
                return position
            # The top bit of 64 must be 0 (RFC 6455 §5.2); with it set the length is over any limit.
            length = int.from_bytes(data[position + 2 : start], "big")
        if first & _CONTROL:
            if length > 125:
                self._fail(PROTOCOL_ERROR, "a control frame of more than 125 bytes")
                return end
        elif length + len(self._fragments or b"") > self._limit:
            self._fail(MESSAGE_TOO_BIG, f"a message of more than {self._limit} bytes")
            return end
        start += self._key_bytes
        stop = start + length
        if stop > end:
            self._needed = stop - position
            return position
        payload: bytes | memoryview = memoryview(data)[start:stop]
        if self._key_bytes:
            payload = apply_mask(payload, data[start - 4 : start])
        message = self._take(first, payload)
        if message is not None:
            messages.append(message)
        return end if self._dropping else stop

    def _fault(self, first: int, length: int) -> str:
        """What is wrong with a frame that begins with these two bytes; empty where nothing is."""
        opcode = first & 0x0F
        if opcode not in _OPCODES:
            return f"opcode {opcode} is reserved"
        if length > 127:
            return "a frame from the server is masked" if self._key_bytes == 0 else "a frame is not masked"
        if first & _RESERVED:
            return "a reserved bit is set, but no extension was negotiated"
        if first & _CONTROL:
            if not first & _FIN:
                return "a control frame is fragmented"
        elif opcode == _CONTINUATION:
            if self._fragments is None:
                return "a continuation frame without a message to continue"
        elif self._fragments is not None:
            return "a new message before the fragmented one has ended"
        return ""

    def _take(self, first: int, payload: bytes | memoryview) -> str | bytes | None:
        """Act on a frame without a fault; the message that it is or completes, None where there is none."""
        opcode = first & 0x0F
        if opcode == _PING:
            self._ping = bytes(payload)
            self.noticed = True
        elif opcode == _CLOSE:
            self._take_close(bytes(payload))
        elif opcode != _PONG:
            return self._take_data(opcode, bool(first & _FIN), payload)
        return None

    def _take_data(self, opcode: int, last: bool, payload: bytes | memoryview) -> str | bytes | None:
        fragments = self._fragments
        if fragments is None:
            if last:
                return str(payload, "utf-8") if opcode == _TEXT else bytes(payload)
            self._text = opcode == _TEXT
            self._empty_continuations = 0
            self._fragments = bytearray(payload)
            return None
        fragments += payload
        if last:
            self._fragments = None
            return fragments.decode() if self._text else bytes(fragments)
        if not payload:
            self._empty_continuations += 1
            if self._empty_continuations > MAX_EMPTY_CONTINUATIONS:
                self._fail(MESSAGE_TOO_BIG, f"a message with more than {MAX_EMPTY_CONTINUATIONS} empty fragments")
        return None

    def _take_close(self, payload: bytes) -> None:
        try:
            close = CloseRules.parse(payload)
        except BrokenRule:
            self._fail(PROTOCOL_ERROR, "a close frame with an invalid code")
        else:
            self.close = Close(int(close.code), close.reason)
            self.noticed = True
            self._drop()

    def _fail(self, code: int, reason: str) -> None:
        self.violation = Violation(code, reason)
        self.noticed = True
        self._drop()

    def _drop(self) -> None:
        self._dropping = True
        self._fragments = None
        self._rest.clear()
