"""What `websockets` makes of the bytes that a `MessageReader` was fed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from websockets.client import ClientProtocol
from websockets.exceptions import PayloadTooBig, ProtocolError
from websockets.frames import Frame, Opcode
from websockets.protocol import OPEN, Protocol
from websockets.server import ServerProtocol
from websockets.uri import parse_uri


class Verdict(NamedTuple):
    messages: list[str | bytes]
    #: Code and reason of the close frame.
    close: tuple[int, str] | None
    #: The code that the violation is to be answered with.
    violation: int | None


class _SizeOfMessagesOnly(Protocol):
    """The library's limit binds control frames as well; here they have one of their own, that of RFC 6455 §5.5.

    The limit is asked for before each frame, when its first byte has come.
    """

    _limit: int | None = None

    @property
    def max_message_size(self) -> int | None:
        if self.reader.buffer[0] & 0x08:
            return 125 + (self.current_size or 0)
        return self._limit

    @max_message_size.setter
    def max_message_size(self, limit: int | None) -> None:
        self._limit = limit


class _Server(_SizeOfMessagesOnly, ServerProtocol):
    pass


class _Client(_SizeOfMessagesOnly, ClientProtocol):
    pass


class Oracle:
    """The library's side of one connection, with the messages put together from its frames."""

    def __init__(self, *, client: bool, max_message_bytes: int) -> None:
        self.protocol: Protocol
        if client:
            self.protocol = _Client(parse_uri("ws://localhost/"), state=OPEN, max_size=max_message_bytes)
        else:
            self.protocol = _Server(state=OPEN, max_size=max_message_bytes)
        self._limit = max_message_bytes
        self._messages: list[str | bytes] = []
        self._parts: list[bytes] = []
        self._text = False
        self._not_utf_8 = False

    def feed(self, pieces: Iterable[bytes]) -> Verdict:
        for piece in pieces:
            self.protocol.receive_data(piece)
        for event in self.protocol.events_received():
            assert isinstance(event, Frame)
            self._take(event)
        close = self.protocol.close_rcvd
        violation = self._violation()
        return Verdict(
            list(self._messages),
            (int(close.code), close.reason) if close and violation is None else None,
            violation,
        )

    def feed_the_rest(self) -> Verdict:
        """As if the frame that is being waited for had come, filled with zeros: it is judged at its end only."""
        return self.feed([bytes(max(self._limit, 125) + 14)])

    @property
    def error(self) -> Exception | None:
        return self.protocol.parser_exc

    def _violation(self) -> int | None:
        if self._not_utf_8:
            return 1007
        if self.error is None or str(self.error) == "incomplete fragmented message":
            # The library's name for a close frame before the last fragment. RFC 6455 §5.4 allows it there.
            return None
        if isinstance(self.error, PayloadTooBig):
            return 1009
        return 1002 if isinstance(self.error, ProtocolError) else 1007

    def _take(self, frame: Frame) -> None:
        if self._not_utf_8 or frame.opcode not in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            return
        if frame.opcode is not Opcode.CONT:
            self._text = frame.opcode is Opcode.TEXT
            self._parts = []
        self._parts.append(bytes(frame.data))
        if not frame.fin:
            return
        whole = b"".join(self._parts)
        try:
            self._messages.append(whole.decode() if self._text else whole)
        except UnicodeDecodeError:
            self._not_utf_8 = True
