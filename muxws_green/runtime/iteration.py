"""The iterator of a stream, which cancels it when it is left early, however that happens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from muxws_green.runtime.stream import Stream


class Iteration:
    """The iterator of one stream. Not a generator: one that is thrown away before its first step would not notice."""

    __slots__ = ("_stream",)

    def __init__(self, stream: Stream) -> None:
        self._stream: Stream | None = stream

    def __iter__(self) -> Iteration:
        return self

    def __next__(self) -> Any:
        stream = self._stream
        if stream is None:
            raise StopIteration
        inbox = stream._inbox
        while True:
            if inbox.items:
                return inbox.take()
            if inbox.error is not None or inbox.ended:
                self._stream = inbox.taker = None
                stream._iterating = False
                raise StopIteration if inbox.error is None else inbox.error.clone()
            stream._wait(None)

    def close(self) -> None:
        """Leave the iteration, as a generator is left."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream._leave()

    def __del__(self) -> None:
        stream = self._stream
        if stream is not None:
            stream._link.tidy_up(stream._leave)
