"""Putting the fragments of a payload together again (PROTOCOL §5). Pure."""

from __future__ import annotations

from muxws_green.errors import ProtocolError

#: Fragments that are shorter are copied together; each object of its own costs some dozens of bytes.
LONG_PIECE_BYTES = 4_096


#: The longest payload after which the C library is made to keep as much as such a one takes.
KEPT_ROOM_BYTES = 4_194_304

_longest = LONG_PIECE_BYTES * 16


def keep_room(size: int) -> None:
    """Have the memory of a payload of `size` bytes, which is about to be put together, kept for the next one.

    glibc gives memory back to the system once twice the longest block is free that it has ever mapped by itself. That
    is what a payload and its pieces come to, so that every other long payload would have its pages mapped and cleared
    anew, for a third of what it takes in all. A block of twice its size moves that bound; nobody writes to it, so it
    takes two system calls, once for each new length. Other C libraries do not mind.
    """
    global _longest
    if _longest < size <= KEPT_ROOM_BYTES:
        _longest = size
        bytes(2 * size)


class Assembler:
    """Collects the fragments of one payload.

    Long ones are kept as they came, short ones in one run of bytes: a remote that sends very short ones makes nothing
    grow faster. Of a view only what it shows is counted, so it is kept where that is most of what it keeps alive.
    """

    __slots__ = ("_pieces", "_run", "_text", "byte_length")

    def __init__(self) -> None:
        self._pieces: list[bytes | memoryview] = []
        #: What stands behind the pieces.
        self._run = bytearray()
        #: Bytes collected so far; UTF-8 if text.
        self.byte_length = 0
        #: None while no fragment has come.
        self._text: bool | None = None

    @property
    def in_progress(self) -> bool:
        """Whether a fragment, be it empty, has come since the last `join` or `clear`."""
        return self._text is not None

    def add(self, piece: str | bytes | memoryview) -> None:
        """Append one fragment. What a view shows must not change any more.

        Raises:
            ProtocolError: The fragments of one payload mix text and bytes.
        """
        text = isinstance(piece, str)
        if self._text is None:
            self._text = text
        elif text is not self._text:
            raise ProtocolError("the fragments of one payload mix text and bytes")
        # A lone surrogate may stand in a fragment; whether it may stand in a payload is the codec's to say.
        data = piece.encode("utf-8", "surrogatepass") if isinstance(piece, str) else piece
        self.byte_length += len(data)
        if len(data) < LONG_PIECE_BYTES:
            self._run += data
            return
        if self._run:
            self._pieces.append(bytes(self._run))
            self._run.clear()
        if isinstance(data, memoryview) and 2 * len(data) < memoryview(data.obj).nbytes:
            data = bytes(data)
        self._pieces.append(data)

    def take(self) -> list[bytes | memoryview]:
        """The encoded payload of a binary codec in pieces, at least one; what was collected is let go."""
        pieces = [*self._pieces, bytes(self._run)]
        self.clear()
        return pieces

    def join(self) -> str | bytes:
        """The encoded payload, str if its fragments were; what was collected is let go."""
        collected, text = b"".join((*self._pieces, self._run)), self._text
        self.clear()
        return collected.decode("utf-8", "surrogatepass") if text else collected

    def clear(self) -> None:
        """Let go of what was collected."""
        self._pieces.clear()
        self._run = bytearray()
        self.byte_length = 0
        self._text = None
