"""How long a payload holds up everybody else while it is encoded and decoded: `python -m tests.benchmarks.payloads`.

Both happen in one go, in the greenlet that sends and in the reader of the other end. What lies between, the cutting
into fragments and their way, leaves turns to others.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import muxws_green as m
from muxws_green.codecs import MsgpackCodec
from muxws_green.codecs.envelopes import bulk_of
from muxws_green.codecs.fast import FastJsonCodec
from muxws_green.protocol.fragments import MAX_FRAME_BYTES
from tests.benchmarks import workloads as w

SIZES = (1_024, 65_536, w.MEBIBYTE, 16 * w.MEBIBYTE)
REPEATS = 7


def rows(size: int) -> list[dict[str, Any]]:
    """Rows of about 60 bytes each."""
    return [dict(w.SMALL, id=number) for number in range(size // 60)]


def milliseconds(work: Callable[[], object]) -> float:
    """The least of some."""
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times) * 1e3


def steps(codec: m.Codec, payload: Any) -> tuple[Callable[[], object], Callable[[], object]]:
    """What a connection does with a payload in one go before it is cut, and when it has been put together."""
    encoded = codec.encode_payload(payload)
    bulk = bulk_of(codec)
    if bulk is None or type(payload) is not bytes or len(payload) <= MAX_FRAME_BYTES:
        return lambda: codec.encode_payload(payload), lambda: codec.decode_payload(encoded)
    assert isinstance(encoded, bytes)
    pieces = [encoded[at : at + MAX_FRAME_BYTES - 512] for at in range(0, len(encoded), MAX_FRAME_BYTES - 512)]
    return lambda: bulk.bytes_header(len(payload)), lambda: bulk.decode_pieces(pieces)


def main() -> None:
    """Measure and print a table."""
    kinds: list[tuple[str, m.Codec, Callable[[int], Any]]] = [
        ("rows, json", m.JsonCodec(), rows),
        ("rows, fast", FastJsonCodec(), rows),
        ("rows, msgpack", MsgpackCodec(), rows),
        ("text, json", m.JsonCodec(), lambda size: "x" * size),
        ("bytes, msgpack", MsgpackCodec(), lambda size: b"x" * size),
    ]
    names = [f"{size // 1024:,} KiB" for size in SIZES]
    print(f"| ms to encode / to decode | {' | '.join(names)} |")
    print(f"|---|{'---|' * len(names)}")
    for name, codec, make in kinds:
        cells = []
        for size in SIZES:
            encode, decode = steps(codec, make(size))
            there, back = milliseconds(encode), milliseconds(decode)
            cells.append(f"{there:.2g} / {back:.2g}")
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
