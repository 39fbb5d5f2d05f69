"""Makes new inputs of old ones, from a seeded generator: the same seed, the same inputs."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

#: What turns up at the edges of formats.
_WORDS: Sequence[bytes] = (
    b"\x00",
    b"\xff",
    b"\x7f",
    b"\x80",
    b"\x81",
    b"\x88\x02\x03\xe8",
    b"\x89\x00",
    b"\xff" * 8,
    b"\x7f" + b"\xff" * 7,
    b"\xed\xa0\xbd",
    b"\\ud83d",
    b"1e999",
    b"NaN",
    b"null",
    b"true",
    b"1.0",
    b"-1",
    b"2147483647",
    b"9007199254740993",
    b"{",
    b"}",
    b"[" * 40,
    b'"',
    b'"type":"open"',
    b'"type":"data"',
    b'"type":"reset"',
    b'"type":"goaway"',
    b'"stream":1',
    b'"stream":2',
    b'"fragment":"',
    b'"more":true',
    b'"end":true',
    b'"payload":',
    b"\x93\x01\xc4\x01a",
    b"\xdf\xff\xff\xff\xff",
    b"\xc1",
)


def mutate(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """A new input that resembles `data`, in a few places taken from `others`."""
    result = bytearray(data)
    for _ in range(1 << random.randrange(4)):
        at = random.randrange(len(result) + 1)
        match random.randrange(7):
            case 0 if result:
                result[at % len(result)] ^= 1 << random.randrange(8)
            case 1 if result:
                result[at % len(result)] = random.randrange(256)
            case 2:
                result[at:at] = random.choice(_WORDS)
            case 3:
                del result[at : at + 1 + random.randrange(16)]
            case 4:
                piece = random.choice(others)
                start = random.randrange(len(piece) + 1)
                result[at:at] = piece[start : start + random.randrange(64)]
            case 5:
                result[at:at] = result[at : at + random.randrange(64)] * (1 + random.randrange(3))
            case _:
                piece = random.choice(others)
                result[at:] = piece[random.randrange(len(piece) + 1) :]
    return bytes(result[:4096])
