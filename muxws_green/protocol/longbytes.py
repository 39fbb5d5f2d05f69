"""Bytes of the application's as a payload that is not encoded before it is cut. Pure."""

from __future__ import annotations


class LongBytes:
    """What `encode_payload` would make of long bytes: a header, and behind it the bytes, which are not copied.

    Args:
        header: What the codec puts before them (`IBulkCodec.bytes_header`).
        body: The bytes.
    """

    __slots__ = ("_body", "_header")

    def __init__(self, header: bytes, body: bytes) -> None:
        self._header = header
        self._body = memoryview(body)

    def __len__(self) -> int:
        return len(self._header) + len(self._body)

    def __getitem__(self, part: slice) -> bytes | memoryview:
        """A slice, step 1, from `start` (None: 0) to `stop` (None: the end); neither is negative."""
        before = len(self._header)
        start = part.start or 0
        stop = len(self) if part.stop is None else part.stop
        if start >= before:
            return self._body[start - before : stop - before]
        return self._header[start:stop] + self._body[: max(0, stop - before)]
