"""Long payloads that come one after another do not have their memory mapped and cleared anew each time."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from muxws_green.protocol import assembler, collecting
from muxws_green.protocol.assembler import KEPT_ROOM_BYTES, keep_room
from tests.protocol.cores import CODECS, JSON, End

#: Says how many pages had to be made for each payload, with and without room that is kept.
PROGRAM = """
import resource, sys
from muxws_green.protocol.assembler import Assembler, keep_room

def take_one():
    collected = Assembler()
    for _ in range(16):
        collected.add(bytes(bytearray(65_500)))
    if sys.argv[1] == "with":
        keep_room(collected.byte_length)
    return collected.join()

for _ in range(3):
    take_one()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    take_one()
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 20)
"""

#: Half of the pages of one payload.
MANY_FAULTS = 128


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="this is what glibc does")
def test_pages_of_the_last_payload_serve_the_next():
    def faults(how: str) -> float:
        run = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True)
        return float(run.stdout)

    assert faults("without") > MANY_FAULTS > faults("with")


def test_room_is_made_once_for_a_length_and_for_no_longer_one_than_that(monkeypatch):
    made = []
    monkeypatch.setattr(assembler, "_longest", 100_000)
    monkeypatch.setattr(assembler, "bytes", made.append, raising=False)
    for size in (50_000, 200_000, 200_000, 150_000, KEPT_ROOM_BYTES, KEPT_ROOM_BYTES + 1):
        keep_room(size)
    assert made == [400_000, 2 * KEPT_ROOM_BYTES]


@pytest.mark.parametrize("codec", CODECS, ids=["json", "msgpack"])
def test_it_is_made_when_a_payload_is_put_together(codec, monkeypatch):
    sizes = []
    monkeypatch.setattr(collecting, "keep_room", sizes.append)
    near, far = End(dialer=True, codec=codec), End(codec=codec)
    for size in (100, 200_000):
        near.core.open(near.core.encode("x" * size), None, True)
        while batch := near.core.take_batch():
            for message in batch:
                far.core.receive(message.decode() if codec is JSON else message)
    # What fits one frame is put together by nobody.
    assert len(sizes) == 1
    assert sizes[0] >= 200_000
