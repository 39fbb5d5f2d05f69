"""Cutting an encoded payload into fragments (PROTOCOL §5); `assembler` puts them together again.

Every size is the length of a whole encoded message, and the places to cut are part of the protocol: both reference
ports cut exactly there. `Splitter` is what the connection uses; it builds one fragment at a time, when it is about to
leave. `split_frame` does the same to a `Frame` at once.

Pure, but for what a codec does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar, cast

from muxws_green.errors import ProtocolError
from muxws_green.protocol.frames import ABSENT, Frame
from muxws_green.protocol.longbytes import LongBytes

if TYPE_CHECKING:
    from muxws_green.interfaces import ICodec, IEnvelopeCodec

#: The longest message that a sender emits and the shortest bound that a receiver may have, in bytes. A constant of
#: the protocol: never negotiated, never configured.
MAX_FRAME_BYTES: Final = 65_536

#: Below this cap, which only tests use, a later fragment may fail to fit although the first and the last do.
_COMFORTABLE_CAP_BYTES: Final = 512

T = TypeVar("T")

#: What is cut, UTF-8 if it is text, and what is cut out of it.
Encoded: TypeAlias = bytes | memoryview | LongBytes
Piece: TypeAlias = bytes | memoryview


def _encoded_bytes(encoded: str | bytes) -> bytes:
    return encoded.encode() if isinstance(encoded, str) else encoded


class _Cuts(Generic[T]):
    """The rule of where to cut, over one encoded payload.

    Args:
        data: The encoded payload.
        text: The same once more if it is text, and cuts must fall between code points; else None.
        cap: The longest fragment message, in bytes.
        build: Makes the fragment of (piece, first, last) and tells the length of its message.
        measure: The length of a middle fragment, for a codec under which pieces add up: a code point takes the same
            room wherever it stands. None where that is not known.
    """

    __slots__ = ("_budget", "_build", "_measure", "cap", "data", "text")

    def __init__(
        self,
        data: Encoded,
        text: bytes | None,
        cap: int,
        build: Callable[[Piece, bool, bool], tuple[T, int]],
        measure: Callable[[Piece], int] | None = None,
    ) -> None:
        self.data = data
        self.text = text
        self.cap = cap
        self._budget = max(1, cap - min(512, cap // 2))
        self._build = build
        self._measure = measure

    def at(self, position: int, first: bool) -> tuple[T, int, bool]:
        """The fragment that begins at `position`.

        Returns:
            It, where the next one begins, and whether it is the last.

        Raises:
            ProtocolError: No fragment fits there.
        """
        data, cap = self.data, self.cap
        total = len(data)
        if total - position <= cap:
            fragment, size = self._build(data[position:], first, True)
            if size <= cap:
                return fragment, total, True
        if position == total:
            raise ProtocolError(
                f"a cap of {cap} bytes cannot hold the last fragment, even empty: trailers are never fragmented"
            )
        stop = self._floor(min(position + self._budget, total))
        if stop <= position:
            stop = self._after(position)
        fragment, size = self._build(data[position:stop], first, False)
        if size > cap:
            stop, fragment = self._longest(position, stop, first)
        return fragment, stop, False

    def _floor(self, cut: int) -> int:
        """The last place at or before `cut` where a fragment may end."""
        text = self.text
        if text is not None:
            while 0 < cut < len(text) and text[cut] & 0xC0 == 0x80:
                cut -= 1
        return cut

    def _after(self, position: int) -> int:
        """The first place behind `position` where a fragment of text may end."""
        text = self.text
        cut = position + 1
        while text is not None and cut < len(text) and text[cut] & 0xC0 == 0x80:
            cut += 1
        return cut

    def _longest(self, position: int, stop: int, first: bool) -> tuple[int, T]:
        """The longest middle fragment that fits, and where it ends, given that the one up to `stop` does not fit."""
        found = None if self._measure is None else self._estimate(position, stop, first, self._measure)
        if found is None:
            found = self._probe(position, stop, first)
        if found is None or found[0] <= position:
            raise ProtocolError(
                f"a cap of {self.cap} bytes cannot hold the fields of this frame and one unit of payload beside them; "
                f"headers and trailers are never fragmented"
            )
        return found

    def _probe(self, position: int, stop: int, first: bool) -> tuple[int, T] | None:
        """By bisection over whole fragments, as PROTOCOL §5 words it."""
        low, high = 1, stop - position
        found: tuple[int, T] | None = None
        while low <= high:
            middle = (low + high) // 2
            cut = self._floor(position + middle)
            fragment, size = self._build(self.data[position:cut], first, False)
            if size <= self.cap:
                found = cut, fragment
                low = middle + 1
            else:
                high = middle - 1
        return found

    def _estimate(self, position: int, stop: int, first: bool, measure: Callable[[Piece], int]) -> tuple[int, T] | None:
        """The same fragment for the work of encoding it twice: each step measures only the half that is new.

        Returns:
            None where the codec turns out not to add up.
        """
        empty = measure(b"")
        room = self.cap - self._build(b"", first, False)[1]
        low, high = position, stop
        while low < high:
            cut = self._floor((low + high + 1) // 2)
            if cut <= low:
                cut = self._after(low)
            size = measure(self.data[low:cut]) - empty
            if size <= room:
                room -= size
                low = cut
            else:
                high = self._floor(cut - 1)
        fragment, size = self._build(self.data[position:low], first, False)
        return (low, fragment) if size <= self.cap else None


def split_frame(frame: Frame, cap: int = MAX_FRAME_BYTES, codec: ICodec | None = None) -> list[Frame]:
    """The fragments that replace a frame whose message is too long.

    Args:
        frame: What to send.
        cap: The longest message, in bytes.
        codec: Says how long a message is. Required; it has a default only because the reference gives it one.

    Returns:
        `[frame]` where it fits as it is.

    Raises:
        ProtocolError: Without a codec; below a cap of 2; where the frame is too long without having a payload; or
            where headers, trailers or the envelope leave no room for a payload.
    """
    if codec is None:
        raise ProtocolError("split_frame needs the codec whose messages are to fit")
    if cap < 2:
        raise ProtocolError(f"a cap of {cap} bytes cannot hold any frame")
    length = len(_encoded_bytes(codec.encode(frame)))
    if length <= cap:
        return [frame]
    if frame.payload is ABSENT:
        raise ProtocolError(
            f"a {frame.type} frame of {length} bytes without payload is over the cap of {cap} bytes; only payloads are "
            f"fragmented"
        )
    encoded = codec.encode_payload(frame.payload)
    text = isinstance(encoded, str)

    def build(piece: Piece, first: bool, last: bool) -> tuple[Frame, int]:
        fragment = Frame(
            type=frame.type,
            stream=frame.stream,
            fragment=str(piece, "utf-8") if text else bytes(piece),
            more=not last,
            headers=frame.headers if first else None,
            end=frame.end and last,
            trailers=frame.trailers if last else None,
            code=frame.code,
            reason=frame.reason,
            nonce=frame.nonce,
            last_stream=frame.last_stream,
        )
        return fragment, len(_encoded_bytes(codec.encode(fragment)))

    data = _encoded_bytes(encoded)
    cuts = _Cuts(data, data if text else None, cap, build)
    fragments: list[Frame] = []
    position, done = 0, False
    while not done:
        fragment, position, done = cuts.at(position, first=not fragments)
        fragments.append(fragment)
    return fragments


class Splitter:
    """Cuts one encoded payload into messages, each when it is asked for.

    Nothing is prepared ahead but the first message, so a payload that cannot be cut raises here, at its sender. What
    the caller does to `headers` and `trailers` afterwards changes nothing.

    Args:
        codec: The connection's codec.
        envelopes: Its envelope operations. Where they are a text codec's own, its fragments are taken to be quoted
            code point by code point, and the places to cut are found without bisecting over whole fragments.
        kind: `open` or `data`.
        stream: The stream's id.
        encoded: What `codec.encode_payload` gave, or the same of bytes that have not been encoded.
        headers: For the first fragment.
        end: Whether the last fragment ends this side.
        trailers: For the last fragment.
        cap: The longest message, in bytes.
        views: Whether the codec takes views for pieces (`IBulkCodec`).

    Raises:
        ProtocolError: Headers, or trailers, or at a tiny cap any fragment, cannot fit.
    """

    __slots__ = ("_cuts", "_done", "_end", "_headers", "_kind", "_position", "_ready", "_stream", "_trailers", "_wrap")

    def __init__(
        self,
        codec: ICodec,
        envelopes: IEnvelopeCodec,
        kind: str,
        stream: int,
        encoded: str | bytes | LongBytes,
        headers: Mapping[str, Any] | None,
        end: bool,
        trailers: Mapping[str, Any] | None,
        cap: int,
        views: bool = False,
    ) -> None:
        self._wrap = envelopes.wrap_fragment
        self._kind = kind
        self._stream = stream
        self._headers = headers
        self._end = end
        # They leave with the last fragment, perhaps much later.
        self._trailers = None if trailers is None else codec.decode_payload(codec.encode_payload(dict(trailers)))
        self._position = 0
        self._done = False
        data: Encoded
        quoted: bytes | None = None
        if isinstance(encoded, str):
            data = quoted = encoded.encode()
        else:
            # Slices of a view are no copies.
            data = memoryview(encoded) if views and isinstance(encoded, bytes) else encoded
        # Without quoting, hence under a binary codec, a fragment is as good as never too long at the first attempt.
        measure = self._measure if quoted is not None and cast("object", envelopes) is codec else None
        self._cuts = _Cuts(data, quoted, cap, self._build, measure)
        self._ready: tuple[bytes, int, bool] | None = self._cuts.at(0, first=True)
        if cap < _COMFORTABLE_CAP_BYTES:
            _, position, done = self._ready
            while not done:
                _, position, done = self._cuts.at(position, first=False)
        elif self._build(b"", False, True)[1] > cap:
            raise ProtocolError(f"trailers do not fit a message of {cap} bytes, and they are never fragmented")
        self._headers = None

    @property
    def done(self) -> bool:
        """Whether the last message has been taken."""
        return self._done

    @property
    def remaining_bytes(self) -> int:
        """How many bytes of the encoded payload have not been taken yet."""
        return len(self._cuts.data) - self._position

    def next_message(self) -> bytes:
        """Take the next message. Not to be called when `done`."""
        if self._done:
            raise RuntimeError("the last fragment has been taken already")
        ready, self._ready = self._ready, None
        if ready is None:
            ready = self._cuts.at(self._position, first=False)
        message, self._position, self._done = ready
        return message

    def _build(self, piece: Piece, first: bool, last: bool) -> tuple[bytes, int]:
        message = self._wrap(
            self._kind,
            self._stream,
            piece,
            not last,
            self._headers if first else None,
            self._end and last,
            self._trailers if last else None,
        )
        return message, len(message)

    def _measure(self, piece: Piece) -> int:
        return len(self._wrap(self._kind, self._stream, piece, True))


def checked_cap(cap: int, codec: ICodec) -> int:
    """`cap`, if peers can work with it (PROTOCOL §5). Another than `MAX_FRAME_BYTES` is for tests only.

    Args:
        cap: The longest message, in bytes.
        codec: Its envelopes have to fit.

    Raises:
        ValueError: It is not an int above zero, or over `MAX_FRAME_BYTES`, which no sender may exceed.
        ProtocolError: It cannot hold an envelope and one unit of payload.
    """
    if isinstance(cap, bool) or not isinstance(cap, int) or not 0 < cap <= MAX_FRAME_BYTES:
        raise ValueError(f"max_frame_bytes must be an int from 1 to {MAX_FRAME_BYTES}, not {cap!r}")
    if cap != MAX_FRAME_BYTES:
        try:
            split_frame(Frame("data", stream=1, payload={"a": "a" * cap}), cap, codec)
        except ProtocolError as error:
            raise ProtocolError(f"max_frame_bytes={cap} is too small for the {codec.name} codec: {error}") from error
    return cap
