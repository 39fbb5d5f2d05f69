"""`Answers`: what `stream` returns, the bodies of one call's answers as they come."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any

from muxws_green import Stream
from muxws_green.messaging.errors import as_callers_see_it


class Answers(Iterator[Any]):
    """An iterator over the bodies of the answers of one call.

    Leaving it early stops the method at the other end: by `close`, by leaving a `with` over it, or by letting go of the
    last reference to it, as a `for` loop over the call itself does on `break`.

    Args:
        stream: The call, which has no other consumer.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        # Not a generator: one that is thrown away before its first step would never cancel anything.
        self._bodies = iter(stream)

    def __iter__(self) -> Answers:
        return self

    def __next__(self) -> Any:
        """The next body.

        Raises:
            ConnectionClosed, RemoteError, StreamRefused, StreamReset: As `MessagePeer.request`, after every body that
                had arrived: an answer that was cut short never looks complete.
        """
        with as_callers_see_it:
            return next(self._bodies)

    def close(self) -> None:
        """Stop the method if it has not ended, and drop what has arrived. Any number of times."""
        self._stream.cancel("the caller has seen enough")
        self._bodies = iter(())

    def __enter__(self) -> Answers:
        """Close it on leaving."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
